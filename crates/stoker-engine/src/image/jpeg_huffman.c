/* The entropy decoder of baseline JPEG, in place of libjpeg-turbo's: the same coefficients, sooner.
 *
 * Most of it is jpeg_quick.c's.
 *
 * Near the end of the data, and around markers, each bit is asked for by itself, as libjpeg does it:
 * what is read past a marker is zeros, and after that the rest of the segment stays grey. So noise
 * gives the same pixels, too, with one exception: where 0xFF is followed by 0xFF and 0 in the data,
 * which no encoder writes, libjpeg-turbo's own quick path leaves coefficients behind that its slow path
 * does not make; here it is the slow path's. libjpeg's module has no public interface; what is replaced is one
 * pointer of an internal structure, and only in the versions whose structure is known. */

#include <string.h>

#include "jpeg_huffman.h"

#if STOKER_KNOWS_LIBJPEG

/* The heads of structures of libjpeg-turbo's jpegint.h. */
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr jpeg);
  boolean (*decode_mcu)(j_decompress_ptr jpeg, JBLOCKROW *blocks);
};

struct jpeg_marker_reader {
  void (*reset_marker_reader)(j_decompress_ptr jpeg);
  int (*read_markers)(j_decompress_ptr jpeg);
  boolean (*read_restart_marker)(j_decompress_ptr jpeg);
};

/* The next byte of the file; past its end this does not return. */
static int next_byte(j_decompress_ptr jpeg) {
  struct jpeg_source_mgr *source = jpeg->src;
  if (source->bytes_in_buffer == 0) source->fill_input_buffer(jpeg);
  source->bytes_in_buffer--;
  return *source->next_input_byte++;
}

/* Makes sure of `wanted` bits: past a marker they are zeros. */
static void want(j_decompress_ptr jpeg, int wanted) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  while (huffman->bits <= 48 && jpeg->unread_marker == 0) {
    int byte = next_byte(jpeg);
    if (byte == 0xFF) {
      do byte = next_byte(jpeg);
      while (byte == 0xFF);
      if (byte != 0) {
        jpeg->unread_marker = byte;
        break;
      }
      byte = 0xFF;
    }
    huffman->buffer |= (uint64_t)byte << (56 - huffman->bits);
    huffman->bits += 8;
  }
  if (huffman->bits < wanted) {
    huffman->exhausted = TRUE;
    huffman->bits = 56;
  }
}

static unsigned int take_bits(j_decompress_ptr jpeg, int count) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  if (count == 0) return 0;
  want(jpeg, count);
  unsigned int taken = (unsigned int)(huffman->buffer >> (64 - count));
  huffman->buffer <<= count;
  huffman->bits -= count;
  return taken;
}

/* The next symbol, of whose code only the bits that it has are wanted. */
static int take_symbol(j_decompress_ptr jpeg, const struct codes *codes) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  int length = 1;
  for (want(jpeg, 1); (int32_t)(huffman->buffer >> (64 - length)) > codes->most[length];)
    want(jpeg, ++length);
  int symbol = symbol_at(codes, huffman->buffer, &length);
  huffman->buffer <<= length;
  huffman->bits -= length;
  return symbol;
}

/* Makes first coefficients of what they differ by from the ones before them. */
static void add_dc(const struct block *block, const struct block *end) {
  for (; block != end; block++) {
    *block->last_dc = (int)((unsigned int)*block->last_dc + (unsigned int)block->coefficients[0]);
    block->coefficients[0] = (JCOEF)*block->last_dc;
  }
}

static void decode_bit_by_bit(j_decompress_ptr jpeg, size_t from, size_t to) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  const uint16_t *order = decode_of(jpeg)->blocks.order + DC_PLACE;
  const struct block *each = decode_of(jpeg)->blocks.each, *end = each + to;
  /* What was loaded ahead is loaded again. */
  huffman->buffer &= huffman->bits > 0 ? ~(uint64_t)0 << (64 - huffman->bits) : 0;
  for (const struct block *block = each + from; block != end; block++) {
    int size = take_symbol(jpeg, block->first->codes) & 15;
    block->coefficients[0] = (JCOEF)extend(take_bits(jpeg, size), size);
    for (int k = 0; k < LAST;) {
      int symbol = take_symbol(jpeg, block->rest->codes);
      k += distance(symbol);
      size = symbol & 15;
      if (size == 0) continue;
      /* Noise may go past the last coefficient, and means it then. */
      block->coefficients[order[k]] = (JCOEF)extend(take_bits(jpeg, size), size);
    }
  }
  add_dc(each + from, end);
}

static boolean restart(j_decompress_ptr jpeg) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  huffman->buffer = 0;
  huffman->bits = 0;
  if (!jpeg->marker->read_restart_marker(jpeg)) return FALSE;
  memset(huffman->last_dc, 0, sizeof huffman->last_dc);
  huffman->restarts_to_go = jpeg->restart_interval;
  /* Another marker right away: this segment has no data either. */
  if (jpeg->unread_marker == 0) huffman->exhausted = FALSE;
  return TRUE;
}

/* Stands behind the last block: nothing is taken there. */
static const struct table NOTHING;

/* Decodes blocks quickly; says whether it did. If not, nothing has changed but coefficients that will be written
 * again. */
static boolean decode_quickly(j_decompress_ptr jpeg, size_t from, size_t to) {
  enum { MOST_OF_A_FILL = 2 * 8 };
  struct decode *decode = decode_of(jpeg);
  struct huffman *huffman = &decode->huffman;
  struct block *first = &decode->blocks.each[from], *behind = &decode->blocks.each[to], kept = *behind;
  size_t left = jpeg->src->bytes_in_buffer;
  if (left < MOST_OF_A_FILL) return FALSE;
  const uint8_t *at = jpeg->src->next_input_byte, *last = at + left - MOST_OF_A_FILL;
  struct reader reader = {huffman->buffer, state_of(huffman->bits), at, last, first, behind, first->first};
  behind->first = behind->rest = &NOTHING;
  boolean is_read = huffman->read(&reader, decode->blocks.order);
  *behind = kept;
  if (!is_read) return FALSE;
  add_dc(first, behind);
  huffman->buffer = reader.buffer;
  huffman->bits = bits_left(reader.state);
  jpeg->src->next_input_byte = reader.at;
  jpeg->src->bytes_in_buffer -= (size_t)(reader.at - at);
  return TRUE;
}

/* Decodes blocks of whole MCUs: where it can, all of them quickly, else each MCU as it can. */
static void decode_blocks(j_decompress_ptr jpeg, size_t from, size_t to) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  size_t of_mcu = (size_t)jpeg->blocks_in_MCU;
  if (jpeg->unread_marker == 0 && !huffman->exhausted && decode_quickly(jpeg, from, to)) return;
  for (; from < to && !huffman->exhausted; from += of_mcu)
    if (jpeg->unread_marker != 0 || !decode_quickly(jpeg, from, from + of_mcu))
      decode_bit_by_bit(jpeg, from, from + of_mcu);
}

boolean stoker_jpeg_decode_mcus(j_decompress_ptr jpeg, size_t count) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  size_t of_mcu = (size_t)jpeg->blocks_in_MCU, each = jpeg->restart_interval;
  for (size_t from = 0, some = count; from < count; from += some) {
    if (each != 0 && huffman->restarts_to_go == 0 && !restart(jpeg)) return FALSE;
    some = each != 0 && huffman->restarts_to_go < count - from ? huffman->restarts_to_go : count - from;
    decode_blocks(jpeg, from * of_mcu, (from + some) * of_mcu);
    if (each != 0) huffman->restarts_to_go -= (unsigned int)some;
  }
  return TRUE;
}

/* The same for libjpeg-turbo's transforms, whose blocks have no place for what is past their end. */
static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *rows) {
  struct blocks *blocks = &decode_of(jpeg)->blocks;
  size_t of_mcu = (size_t)jpeg->blocks_in_MCU;
  if (!stoker_jpeg_decode_mcus(jpeg, 1)) return FALSE;
  for (size_t number = 0; number < of_mcu; number++)
    memcpy(*rows[number], blocks->each[number].coefficients, sizeof(JBLOCK));
  memset(blocks->coefficients, 0, of_mcu * sizeof(JBLOCK));
  return TRUE;
}

/* A lossless file need not have any for coefficients. */
static int has_table(JHUFF_TBL *const *tables, int number) {
  return number >= 0 && number < NUM_HUFF_TBLS && tables[number] != NULL;
}

/* The table of a component's first coefficients: that of one before it, if it has the same codes. */
static struct table *firsts_of(j_decompress_ptr jpeg, int number) {
  const jpeg_component_info *const *components = (const jpeg_component_info *const *)jpeg->cur_comp_info;
  int same = 0;
  while (components[same]->dc_tbl_no != components[number]->dc_tbl_no ||
         components[same]->ac_tbl_no != components[number]->ac_tbl_no)
    same++;
  return &decode_of(jpeg)->huffman.firsts[same];
}

/* Says how each block is to be read. */
static void tell_blocks(j_decompress_ptr jpeg) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  struct blocks *blocks = &decode_of(jpeg)->blocks;
  size_t of_mcu = (size_t)jpeg->blocks_in_MCU, count = blocks->together * of_mcu;
  for (size_t i = 0; i < count; i++) {
    int number = jpeg->MCU_membership[i % of_mcu];
    int dc = jpeg->cur_comp_info[number]->dc_tbl_no, ac = jpeg->cur_comp_info[number]->ac_tbl_no;
    const struct codes *dc_codes = &huffman->dc_codes[dc], *ac_codes = &huffman->ac_codes[ac];
    struct table *first = firsts_of(jpeg, number), *rest = &huffman->rests[ac];
    stoker_jpeg_make_table(first, dc_codes, ac_codes);
    stoker_jpeg_make_table(rest, ac_codes, ac_codes);
    blocks->each[i].first = first;
    blocks->each[i].rest = rest;
    blocks->each[i].last_dc = &huffman->last_dc[number];
  }
}

void stoker_jpeg_quicken(struct decode *decode, const struct ask *ask) {
  j_decompress_ptr jpeg = &decode->jpeg;
  struct huffman *huffman = &decode->huffman;
  if (!ask->quick || jpeg->progressive_mode || jpeg->arith_code || jpeg->buffered_image ||
      jpeg->comps_in_scan != jpeg->num_components || jpeg_has_multiple_scans(jpeg))
    return;
  huffman->buffer = 0;
  huffman->bits = 0;
  huffman->exhausted = FALSE;
  huffman->restarts_to_go = jpeg->restart_interval;
  memset(huffman->last_dc, 0, sizeof huffman->last_dc);
  for (int i = 0; i < jpeg->comps_in_scan; i++) {
    const jpeg_component_info *component = jpeg->cur_comp_info[i];
    int dc = component->dc_tbl_no, ac = component->ac_tbl_no;
    if (!component->component_needed || !has_table(jpeg->dc_huff_tbl_ptrs, dc) ||
        !has_table(jpeg->ac_huff_tbl_ptrs, ac))
      return;
    stoker_jpeg_make_codes(&huffman->dc_codes[dc], jpeg->dc_huff_tbl_ptrs[dc]);
    stoker_jpeg_make_codes(&huffman->ac_codes[ac], jpeg->ac_huff_tbl_ptrs[ac]);
  }
  huffman->read = stoker_jpeg_code_reader(ask->bmi);
  jpeg->entropy->decode_mcu = decode_mcu;
  stoker_jpeg_take_blocks(decode, ask->transform);
  tell_blocks(jpeg);
}

#else

void stoker_jpeg_quicken(struct decode *decode, const struct ask *ask) { (void)decode, (void)ask; }

#endif
