/* What the two C files of the room share: one JPEG being decoded. */

#ifndef STOKER_JPEG_SHIM_H
#define STOKER_JPEG_SHIM_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum { QUICK_BITS = 10, TABLES = 2 * NUM_HUFF_TBLS };

/* A Huffman table as jpeg_huffman.c reads it. */
struct huffman_table {
  /* By the next QUICK_BITS bits: see jpeg_huffman.c. */
  uint32_t quick[1 << QUICK_BITS];
  /* By length of code: the largest code, or -1; and what makes a code a place in symbols. */
  int32_t most[18];
  int32_t offset[18];
  /* What it was made of, if it was made. */
  int is_made;
  int is_dc;
  UINT8 counts[17];
  UINT8 symbols[256];
};

/* Decodes an MCU where nothing is out of the ordinary; says whether it did. */
typedef boolean quick_decoder(j_decompress_ptr jpeg, JBLOCKROW *blocks);

/* The entropy decoder of one image, and the tables of the last, which are mostly the same. */
struct huffman {
  quick_decoder *quickly;
  uint64_t buffer;
  int bits;
  unsigned int restarts_to_go;
  boolean exhausted;
  int last_dc[MAX_COMPS_IN_SCAN];
  const struct huffman_table *dc[D_MAX_BLOCKS_IN_MCU];
  const struct huffman_table *ac[D_MAX_BLOCKS_IN_MCU];
  struct huffman_table tables[TABLES];
};

struct decode {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  struct jpeg_progress_mgr progress;
  jmp_buf escape;
  int outcome;
  int max_scans;
  int planes;
  char message[JMSG_LENGTH_MAX];
  struct huffman huffman;
};

/* Puts our entropy decoder in place of libjpeg's, for an image that was started and that it can
 * decode; else does nothing. bmi is whether the processor has BMI and BMI2. */
void stoker_jpeg_quicken(struct decode *decode, int bmi);

#endif
