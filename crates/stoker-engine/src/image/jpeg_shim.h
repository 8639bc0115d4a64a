/* What the C files of the room share: one JPEG being decoded. */

#ifndef STOKER_JPEG_SHIM_H
#define STOKER_JPEG_SHIM_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* What of libjpeg-turbo has no public interface is replaced in the versions whose structures are known. */
#define STOKER_KNOWS_LIBJPEG                                                             \
  (LIBJPEG_TURBO_VERSION_NUMBER >= 3000000 && LIBJPEG_TURBO_VERSION_NUMBER < 3002000 &&   \
   JPEG_LIB_VERSION < 70)

/* How many bits a look-up goes by: more for coefficients, of which it may give two. */
enum { DC_BITS = 10, AC_BITS = 11 };

/* What codes of up to 16 bits stand for, by their length. */
struct codes {
  /* The largest code, or -1; and what makes a code a place in symbols. */
  int32_t most[18];
  int32_t offset[18];
  /* What they were made of, if they were. */
  int are_made;
  UINT8 counts[17];
  UINT8 symbols[256];
};

/* Huffman tables as jpeg_huffman.c reads them, by the next bits; see there. */
struct dc_table {
  uint32_t quick[1 << DC_BITS];
  struct codes codes;
};

struct ac_table {
  uint64_t quick[1 << AC_BITS];
  struct codes codes;
};

/* Decodes the coefficients of an MCU, where nothing is out of the ordinary; says whether it did. */
typedef boolean quick_decoder(j_decompress_ptr jpeg, JCOEF *const *blocks);

/* The entropy decoder of one image, and the tables of the last, which are mostly the same. */
struct huffman {
  quick_decoder *quickly;
  uint64_t buffer;
  int bits;
  unsigned int restarts_to_go;
  boolean exhausted;
  int last_dc[MAX_COMPS_IN_SCAN];
  const struct dc_table *dc[D_MAX_BLOCKS_IN_MCU];
  const struct ac_table *ac[D_MAX_BLOCKS_IN_MCU];
  struct dc_table dc_tables[NUM_HUFF_TBLS];
  struct ac_table ac_tables[NUM_HUFF_TBLS];
};

/* Blocks are transformed by four, which lie side by side: row by row, and of each row all four. MCUs are
 * decoded until their blocks fill whole fours: at the most, four MCUs of an odd number of blocks. */
enum { LANES = 4, FOUR = LANES * DCTSIZE2, MOST_FOURS = D_MAX_BLOCKS_IN_MCU - 1 };

_Static_assert(D_MAX_BLOCKS_IN_MCU % 2 == 0, "the largest odd number of blocks is one less");

/* How far noise can go on after the last coefficient but one. */
enum { PLACES = 256 };

/* Makes samples of four blocks, which are zeros after that: of two rows the first block's, then the
 * second's, and so on. */
typedef void transform(JCOEF *coefficients, const JCOEF *factors, JSAMPLE *samples);

/* Where the samples of a block belong: to a column of eight rows, or nowhere. */
struct lane {
  JSAMPARRAY rows;
  JDIMENSION column;
  /* How far the same block of the next MCUs is. */
  JDIMENSION step;
};

/* What becomes of coefficients. */
struct blocks {
  transform *transform;
  /* How many MCUs fill whole fours. */
  JDIMENSION together;
  /* Where in a block a coefficient lies, by its number in the file; past the last one, the last, and
   * from twice as many on a place that no block has. */
  uint16_t order[PLACES];
  JCOEF *places[MOST_FOURS * LANES];
  struct lane lanes[MOST_FOURS * LANES];
  /* What no block has lies behind them. */
  _Alignas(64) JCOEF coefficients[2 * MOST_FOURS * FOUR];
  _Alignas(64) JCOEF factors[MOST_FOURS * FOUR];
  _Alignas(64) JSAMPLE samples[FOUR];
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
  struct blocks blocks;
};

static inline struct decode *decode_of(j_decompress_ptr jpeg) { return (struct decode *)jpeg->client_data; }

/* How an image is to be decoded. */
struct ask {
  /* That it is to have when it is shrunk by 1, 2, 4 or 8. */
  unsigned int width, height, shrink;
  /* 3 for RGB, 4 for CMYK as stored. */
  int channels;
  /* Whether our entropy decoder may be used; and whether the processor has BMI and BMI2. */
  int quick, bmi;
  /* Ours, or null for libjpeg-turbo's; only used where our entropy decoder is. */
  transform *transform;
  /* Whether the image may give planes instead of RGB. */
  int planes;
  int max_scans;
};

/* Puts our entropy decoder in place of libjpeg's, for an image that was started and that it can decode; else
 * does nothing. */
void stoker_jpeg_quicken(struct decode *decode, const struct ask *ask);

/* Then makes samples of what it decodes, by `transform` instead of libjpeg's, if there is one and it can. */
void stoker_jpeg_take_blocks(struct decode *decode, transform *transform);

/* As libjpeg's own: decodes the coefficients of an MCU, whose blocks are zeros, to where they are wanted. */
boolean stoker_jpeg_decode_mcu(j_decompress_ptr jpeg, JCOEF *const *blocks);

#endif
