/* From coefficients to samples, in place of libjpeg-turbo's: the same samples, four blocks at a time.
 *
 * libjpeg-turbo transforms each block by itself, as it comes, with half of a block's row to a register. Here
 * MCUs are decoded until their blocks fill whole fours, with the coefficients of four blocks side by side;
 * the transform is given by Rust (idct.rs).
 *
 * libjpeg's module has no public interface; what is replaced is one pointer of an internal structure, and
 * only in the versions whose structure is known. */

#include <string.h>

#include "jpeg_shim.h"

#if STOKER_KNOWS_LIBJPEG

/* The heads of structures of libjpeg-turbo's jpegint.h. */
struct jpeg_d_coef_controller {
  void (*start_input_pass)(j_decompress_ptr jpeg);
  int (*consume_data)(j_decompress_ptr jpeg);
  void (*start_output_pass)(j_decompress_ptr jpeg);
  int (*decompress_data)(j_decompress_ptr jpeg, JSAMPIMAGE planes);
};

struct jpeg_input_controller {
  int (*consume_input)(j_decompress_ptr jpeg);
  void (*reset_input_controller)(j_decompress_ptr jpeg);
  void (*start_input_pass)(j_decompress_ptr jpeg);
  void (*finish_input_pass)(j_decompress_ptr jpeg);
};

static const uint8_t NATURAL_ORDER[DCTSIZE2] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* Where the samples of the first MCUs of a row belong. */
static void begin_row(j_decompress_ptr jpeg, JSAMPIMAGE planes, int row, int is_last) {
  struct blocks *blocks = &decode_of(jpeg)->blocks;
  struct lane *lane = blocks->lanes;
  for (JDIMENSION mcu = 0; mcu < blocks->together; mcu++)
    for (int i = 0; i < jpeg->comps_in_scan; i++) {
      const jpeg_component_info *component = jpeg->cur_comp_info[i];
      JDIMENSION width = (JDIMENSION)component->MCU_width;
      for (int down = 0; down < component->MCU_height; down++)
        for (JDIMENSION across = 0; across < width; across++, lane++) {
          int is_there = !is_last || row + down < component->last_row_height;
          lane->rows = is_there ? planes[component->component_index] + (row + down) * DCTSIZE : NULL;
          lane->column = (mcu * width + across) * DCTSIZE;
          lane->step = blocks->together * width * DCTSIZE;
        }
    }
}

/* Leaves out what lies beyond the right edge: of the last MCUs, of which there are so many. */
static void end_row(j_decompress_ptr jpeg, JDIMENSION count) {
  struct blocks *blocks = &decode_of(jpeg)->blocks;
  struct lane *lane = blocks->lanes;
  for (JDIMENSION mcu = 0; mcu < blocks->together; mcu++)
    for (int i = 0; i < jpeg->comps_in_scan; i++) {
      const jpeg_component_info *component = jpeg->cur_comp_info[i];
      int width = mcu + 1 < count ? component->MCU_width : mcu < count ? component->last_col_width : 0;
      for (int block = 0; block < component->MCU_blocks; block++, lane++)
        if (block % component->MCU_width >= width) lane->rows = NULL;
    }
}

/* Transforms a four, and puts its samples where they belong. */
static void transform_four(struct blocks *blocks, size_t four) {
  blocks->transform(blocks->coefficients + four * FOUR, blocks->factors + four * FOUR, blocks->samples);
  struct lane *lane = blocks->lanes + four * LANES;
  for (size_t i = 0; i < LANES; i++, lane++) {
    const JSAMPLE *from = blocks->samples + i * 2 * DCTSIZE;
    if (lane->rows == NULL) continue;
    for (size_t row = 0; row < DCTSIZE; row++)
      memcpy(lane->rows[row] + lane->column, from + row / 2 * (LANES * 2 * DCTSIZE) + row % 2 * DCTSIZE,
             DCTSIZE);
    lane->column += lane->step;
  }
}

/* As libjpeg's own: samples of a row of whole MCUs, of all components. */
static int decompress_row(j_decompress_ptr jpeg, JSAMPIMAGE planes) {
  struct blocks *blocks = &decode_of(jpeg)->blocks;
  size_t of_mcu = (size_t)jpeg->blocks_in_MCU;
  int is_last = jpeg->input_iMCU_row + 1 == jpeg->total_iMCU_rows;
  const jpeg_component_info *first = jpeg->cur_comp_info[0];
  int rows = jpeg->comps_in_scan > 1 ? 1 : is_last ? first->last_row_height : first->v_samp_factor;
  for (int row = 0; row < rows; row++) {
    begin_row(jpeg, planes, row, is_last);
    JDIMENSION count = blocks->together;
    for (JDIMENSION left = jpeg->MCUs_per_row; left > 0; left -= count) {
      if (left <= count) end_row(jpeg, count = left);
      if (!stoker_jpeg_decode_mcus(jpeg, count)) return JPEG_SUSPENDED;
      size_t fours = (count * of_mcu + LANES - 1) / LANES;
      for (size_t four = 0; four < fours; four++) transform_four(blocks, four);
    }
  }
  jpeg->output_iMCU_row++;
  if (++jpeg->input_iMCU_row < jpeg->total_iMCU_rows) return JPEG_ROW_COMPLETED;
  jpeg->inputctl->finish_input_pass(jpeg);
  return JPEG_SCAN_COMPLETED;
}

/* Where no image has a block, behind those that are decoded. */
enum { NOWHERE = MOST_FOURS * FOUR };

/* Coefficients lie in rows that are so far apart. */
static void make_order(uint16_t *order, int row) {
  for (int place = 0; place < PLACES; place++) {
    int k = place < DC_PLACE ? 0 : place - DC_PLACE;
    int natural = NATURAL_ORDER[k < DCTSIZE2 ? k : DCTSIZE2 - 1];
    int there = natural / DCTSIZE * row + natural % DCTSIZE;
    order[place] = (uint16_t)(k < DCTSIZE2 + LONGEST_RUN ? there : NOWHERE);
  }
}

/* Gives a block its place in the fours, and the factors of its coefficients. */
static void place(struct blocks *blocks, size_t block, const JQUANT_TBL *from) {
  size_t at = block / LANES * FOUR + block % LANES * DCTSIZE;
  blocks->each[block].coefficients = blocks->coefficients + at;
  for (size_t i = 0; i < DCTSIZE2; i++)
    blocks->factors[at + i / DCTSIZE * (LANES * DCTSIZE) + i % DCTSIZE] = (JCOEF)from->quantval[i];
}

/* Whether all components are transformed at full size, by the one transform that is ours. */
static int are_whole(j_decompress_ptr jpeg) {
  for (int i = 0; i < jpeg->comps_in_scan; i++) {
    const jpeg_component_info *component = jpeg->cur_comp_info[i];
    if (component->DCT_scaled_size != DCTSIZE || component->quant_table == NULL) return 0;
  }
  return jpeg->dct_method == JDCT_ISLOW;
}

void stoker_jpeg_take_blocks(struct decode *decode, transform *transform) {
  j_decompress_ptr jpeg = &decode->jpeg;
  struct blocks *blocks = &decode->blocks;
  size_t of_mcu = (size_t)jpeg->blocks_in_MCU;
  memset(blocks->coefficients, 0, sizeof blocks->coefficients);
  if (transform == NULL || !are_whole(jpeg)) {
    make_order(blocks->order, DCTSIZE);
    blocks->together = 1;
    for (size_t block = 0; block < of_mcu; block++)
      blocks->each[block].coefficients = blocks->coefficients + block * DCTSIZE2;
    blocks->each[of_mcu].coefficients = blocks->coefficients + NOWHERE;
    return;
  }
  make_order(blocks->order, LANES * DCTSIZE);
  blocks->transform = transform;
  blocks->together = 1;
  while (blocks->together * of_mcu % LANES != 0) blocks->together *= 2;
  for (size_t block = 0; block < blocks->together * of_mcu; block++)
    place(blocks, block, jpeg->cur_comp_info[jpeg->MCU_membership[block % of_mcu]]->quant_table);
  blocks->each[blocks->together * of_mcu].coefficients = blocks->coefficients + NOWHERE;
  jpeg->coef->decompress_data = decompress_row;
}

#endif
