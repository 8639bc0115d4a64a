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

/* How many bits a look-up goes by: some more than most codes with their values have, as it may give two. */
enum { TABLE_BITS = 11 };

/* What codes of up to 16 bits stand for, by their length. */
struct codes {
  /* The largest code, or -1; and what makes a code a place in symbols. */
  int32_t most[18];
  int32_t offset[18];
  /* What they were made of, and how often they were others. */
  UINT8 counts[17];
  UINT8 symbols[256];
  unsigned int made;
};

/* A Huffman table by the next bits (jpeg_huffman.h): of the coefficients of a block but the first; or of the
 * first, and where there is room, of the next one. */
struct table {
  uint64_t quick[1 << TABLE_BITS];
  /* Of the first coefficient of an entry and of the second one, and how often they had been made. */
  const struct codes *codes, *then;
  unsigned int made, then_made;
};

/* A block that is decoded: where its coefficients lie, and how they are read. */
struct block {
  JCOEF *coefficients;
  const struct table *first, *rest;
  /* What its first coefficient is told from. */
  int *last_dc;
};

/* The codes of some blocks of an image. */
struct reader {
  /* Bits that were not taken yet, the first one uppermost; and in one register, how many were taken in the lowest
   * byte, and the place of the last coefficient in the next one. */
  uint64_t buffer, state;
  /* The bytes after that, and the last of which it may take some. */
  const uint8_t *at, *last;
  const struct block *block, *end;
  const struct table *table;
};

/* Reads codes to the end; says whether it could. Coefficients go to places in that order. */
typedef boolean code_reader(struct reader *reader, const uint16_t *order);

/* The entropy decoder of one image, and the tables of the last, which are mostly the same. */
struct huffman {
  code_reader *read;
  uint64_t buffer;
  int bits;
  unsigned int restarts_to_go;
  boolean exhausted;
  int last_dc[MAX_COMPS_IN_SCAN];
  struct codes dc_codes[NUM_HUFF_TBLS], ac_codes[NUM_HUFF_TBLS];
  struct table firsts[MAX_COMPS_IN_SCAN], rests[NUM_HUFF_TBLS];
};

/* Blocks are transformed by four, which lie side by side: row by row, and of each row all four. MCUs are
 * decoded until their blocks fill whole fours: at the most, four MCUs of an odd number of blocks. */
enum { LANES = 4, FOUR = LANES * DCTSIZE2, MOST_FOURS = D_MAX_BLOCKS_IN_MCU - 1 };

_Static_assert(D_MAX_BLOCKS_IN_MCU % 2 == 0, "the largest odd number of blocks is one less");

/* Coefficients are counted from here, so that the 64th sets the sign of a byte. */
enum { DC_PLACE = 65, PLACES = 256 };

/* How far noise can go on from a coefficient. */
enum { LONGEST_RUN = 16 };

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
  /* How many MCUs are decoded together, as they fill whole fours. */
  JDIMENSION together;
  /* Where in a block a coefficient lies, by its place in the file: DC_PLACE for the first. Past the last
   * one, the last; and for what ends a block, a place that no block has. */
  uint16_t order[PLACES];
  /* Those of MCUs that are decoded together; after them one that no image has, without coefficients. */
  struct block each[MOST_FOURS * LANES + 1];
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

/* Decodes the coefficients of the next MCUs, of as many as are decoded together or less, to their blocks, which
 * are zeros. */
boolean stoker_jpeg_decode_mcus(j_decompress_ptr jpeg, size_t count);

#endif
