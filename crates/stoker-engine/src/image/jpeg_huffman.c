/* The entropy decoder of baseline JPEG, in place of libjpeg-turbo's: the same coefficients, sooner.
 *
 * Huffman decoding is the largest part of a decode, and libjpeg-turbo takes each coefficient in two
 * steps: its code, then its bits. Here one look-up by the next bits mostly gives all of it, and often of the
 * next one too (jpeg_huffman.h). The bit buffer is filled without a branch, eight bytes at a time, unless one
 * of them is 0xFF.
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

/* Bytes of data that no block exceeds. */
enum { MOST_OF_A_BLOCK = DCTSIZE2 * 8 };

/* The length of the code at the head of the buffer, which is at least `length` long, and its symbol.
 * What is no code is 17 bits long and counts as 0, as in libjpeg. */
static int symbol_at(const struct codes *codes, uint64_t buffer, int *length) {
  int l = *length;
  while ((int32_t)(buffer >> (64 - l)) > codes->most[l]) l++;
  *length = l;
  if (l > 16) return 0;
  return codes->symbols[((int32_t)(buffer >> (64 - l)) + codes->offset[l]) & 0xFF];
}

/* A coefficient that does not fit a table. */
struct coefficient {
  int value;
  int symbol;
  int bits;
};

/* What the buffer begins with, of a LONG entry by that many bits. */
static struct coefficient long_one(const struct codes *codes, uint64_t buffer, uint32_t entry, int bits) {
  int length = (int)(entry & 0x1F), symbol = (int)(entry >> 8 & 0xFF);
  if (length == 0) {
    length = bits + 1;
    symbol = symbol_at(codes, buffer, &length);
  }
  int size = symbol & 15;
  int value = size == 0 ? 0 : extend((unsigned int)(buffer << length >> (64 - size)), size);
  return (struct coefficient){value, symbol, length + size};
}

/* Fills the buffer to at least 56 bits. Below them it may hold more of what comes next. */
#define REFILL                                                                       \
  do {                                                                               \
    uint64_t bytes;                                                                  \
    memcpy(&bytes, at, 8);                                                           \
    if (__builtin_expect(((~bytes - ONES) & bytes & (ONES << 7)) != 0, 0)) {           \
      for (bits &= 63; bits < 56; bits += 8) {                                       \
        uint64_t byte = *at++;                                                       \
        if (byte == 0xFF && *at++ != 0) return FALSE;                                \
        buffer |= byte << (56 - bits);                                               \
      }                                                                              \
    } else {                                                                         \
      buffer |= big_endian(bytes) >> (bits & 63);                                    \
      at += ~bits >> 3 & 7;                                                          \
      bits |= 56;                                                                    \
    }                                                                                \
  } while (0)

/* Takes both coefficients of an entry, which do not end the block. */
#define TAKE_BOTH                                                                    \
  do {                                                                               \
    block[order[k + AHEAD_FIRST(entry)]] = FIRST(entry);                               \
    k += AHEAD(entry);                                                                 \
    block[order[k]] = SECOND(entry);                                                 \
    buffer <<= BITS(entry);                                                          \
    bits -= entry;                                                                   \
  } while (0)

static const uint64_t ONES = 0x0101010101010101;

static uint64_t big_endian(uint64_t bytes) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return bytes;
#else
  return __builtin_bswap64(bytes);
#endif
}

#if defined(__x86_64__) && defined(__GNUC__)
#define INLINED static inline __attribute__((always_inline))
#else
#define INLINED static inline
#endif

/* Decodes an MCU that ends well before the data; FALSE, with nothing changed but coefficients that
 * will be written again, if it does not, or if it meets a marker. Of `bits` only the lowest six are looked at
 * here, so that entries are subtracted as they are. */
INLINED boolean decode_quickly_with(j_decompress_ptr jpeg, JCOEF *const *blocks) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  const uint8_t *at = jpeg->src->next_input_byte, *end = at + jpeg->src->bytes_in_buffer;
  const uint16_t *order = decode_of(jpeg)->blocks.order;
  uint64_t buffer = huffman->buffer, bits = (uint64_t)huffman->bits;
  int last_dc[MAX_COMPS_IN_SCAN];
  memcpy(last_dc, huffman->last_dc, sizeof last_dc);
  for (int number = 0; number < jpeg->blocks_in_MCU; number++) {
    if (end - at < MOST_OF_A_BLOCK) return FALSE;
    JCOEF *block = blocks[number];
    REFILL;
    uint32_t dc_entry = huffman->dc[number]->quick[buffer >> (64 - DC_BITS)];
    struct coefficient one = {(int32_t)dc_entry >> 16, 0, BITS(dc_entry)};
    if (__builtin_expect(dc_entry & LONG, 0))
      one = long_one(&huffman->dc[number]->codes, buffer, dc_entry, DC_BITS);
    buffer <<= one.bits;
    bits -= (uint64_t)one.bits;
    int *dc = &last_dc[jpeg->MCU_membership[number]];
    *dc = (int)((unsigned int)*dc + (unsigned int)one.value);
    block[0] = (JCOEF)*dc;
    const uint64_t *quick = huffman->ac[number]->quick;
    unsigned int k = 0;
    uint64_t entry;
    for (;;) {
      REFILL;
      entry = quick[buffer >> (64 - AC_BITS)];
      if (__builtin_expect(entry & LONG, 0)) {
        one = long_one(&huffman->ac[number]->codes, buffer, (uint32_t)entry, AC_BITS);
        buffer <<= one.bits;
        bits -= (uint64_t)one.bits;
        k += (unsigned int)distance(one.symbol);
        block[order[k]] = (JCOEF)one.value;
        if (k >= LAST) break;
        continue;
      }
      if (k + AHEAD(entry) >= LAST) break;
      TAKE_BOTH;
      /* So many bits are left that three more entries need no others. */
      entry = quick[buffer >> (64 - AC_BITS)];
      if (__builtin_expect(entry & LONG, 0)) continue;
      if (k + AHEAD(entry) >= LAST) break;
      TAKE_BOTH;
      entry = quick[buffer >> (64 - AC_BITS)];
      if (__builtin_expect(entry & LONG, 0)) continue;
      if (k + AHEAD(entry) >= LAST) break;
      TAKE_BOTH;
      entry = quick[buffer >> (64 - AC_BITS)];
      if (__builtin_expect(entry & LONG, 0)) continue;
      if (k + AHEAD(entry) >= LAST) break;
      TAKE_BOTH;
    }
    if (k >= LAST) continue;
    /* If the first coefficient is the block's last, the second is none of it. */
    int is_first = k + AHEAD_FIRST(entry) >= LAST;
    block[order[k + AHEAD_FIRST(entry)]] = FIRST(entry);
    block[order[is_first ? END_OF_BLOCK : k + AHEAD(entry)]] = SECOND(entry);
    int taken = is_first ? BITS_FIRST(entry) : BITS(entry);
    buffer <<= taken;
    bits -= (uint64_t)taken;
  }
  jpeg->src->bytes_in_buffer -= (size_t)(at - jpeg->src->next_input_byte);
  jpeg->src->next_input_byte = at;
  huffman->buffer = buffer;
  huffman->bits = (int)(bits & 63);
  memcpy(huffman->last_dc, last_dc, sizeof last_dc);
  return TRUE;
}

static boolean decode_quickly(j_decompress_ptr jpeg, JCOEF *const *blocks) {
  return decode_quickly_with(jpeg, blocks);
}

#if defined(__x86_64__) && defined(__GNUC__)

/* The same, with shifts of one instruction instead of three, which is what a coefficient waits for. */
__attribute__((target("bmi,bmi2"))) static boolean decode_quickly_bmi(j_decompress_ptr jpeg,
                                                                      JCOEF *const *blocks) {
  return decode_quickly_with(jpeg, blocks);
}

#else
#define decode_quickly_bmi decode_quickly
#endif

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

static void decode_bit_by_bit(j_decompress_ptr jpeg, JCOEF *const *blocks) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  const uint16_t *order = decode_of(jpeg)->blocks.order;
  /* What was loaded ahead is loaded again. */
  huffman->buffer &= huffman->bits > 0 ? ~(uint64_t)0 << (64 - huffman->bits) : 0;
  for (int number = 0; number < jpeg->blocks_in_MCU; number++) {
    JCOEF *block = blocks[number];
    int size = take_symbol(jpeg, &huffman->dc[number]->codes) & 15;
    int *dc = &huffman->last_dc[jpeg->MCU_membership[number]];
    *dc = (int)((unsigned int)*dc + (unsigned int)extend(take_bits(jpeg, size), size));
    block[0] = (JCOEF)*dc;
    for (int k = 0; k < LAST;) {
      int symbol = take_symbol(jpeg, &huffman->ac[number]->codes);
      k += distance(symbol);
      size = symbol & 15;
      if (size == 0) continue;
      /* Noise may go past the last coefficient, and means it then. */
      block[order[k]] = (JCOEF)extend(take_bits(jpeg, size), size);
    }
  }
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

boolean stoker_jpeg_decode_mcu(j_decompress_ptr jpeg, JCOEF *const *blocks) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  if (jpeg->restart_interval != 0 && huffman->restarts_to_go == 0 && !restart(jpeg)) return FALSE;
  if (!huffman->exhausted) {
    if (jpeg->unread_marker != 0 || !huffman->quickly(jpeg, blocks)) decode_bit_by_bit(jpeg, blocks);
  }
  if (jpeg->restart_interval != 0) huffman->restarts_to_go--;
  return TRUE;
}

/* The same for libjpeg-turbo's transforms, whose blocks have no place for what is past their end. */
static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *rows) {
  struct blocks *blocks = &decode_of(jpeg)->blocks;
  size_t bytes = (size_t)jpeg->blocks_in_MCU * sizeof(JBLOCK);
  if (!stoker_jpeg_decode_mcu(jpeg, blocks->places)) return FALSE;
  for (int number = 0; number < jpeg->blocks_in_MCU; number++)
    memcpy(*rows[number], blocks->places[number], sizeof(JBLOCK));
  memset(blocks->coefficients, 0, bytes);
  return TRUE;
}

/* A lossless file need not have any for coefficients. */
static int has_table(JHUFF_TBL *const *tables, int number) {
  return number >= 0 && number < NUM_HUFF_TBLS && tables[number] != NULL;
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
  for (int number = 0; number < jpeg->blocks_in_MCU; number++) {
    jpeg_component_info *component = jpeg->cur_comp_info[jpeg->MCU_membership[number]];
    int dc = component->dc_tbl_no, ac = component->ac_tbl_no;
    if (!component->component_needed || !has_table(jpeg->dc_huff_tbl_ptrs, dc) ||
        !has_table(jpeg->ac_huff_tbl_ptrs, ac))
      return;
    stoker_jpeg_make_dc(&huffman->dc_tables[dc], jpeg->dc_huff_tbl_ptrs[dc]);
    stoker_jpeg_make_ac(&huffman->ac_tables[ac], jpeg->ac_huff_tbl_ptrs[ac]);
    huffman->dc[number] = &huffman->dc_tables[dc];
    huffman->ac[number] = &huffman->ac_tables[ac];
  }
  huffman->quickly = ask->bmi ? decode_quickly_bmi : decode_quickly;
  jpeg->entropy->decode_mcu = decode_mcu;
  stoker_jpeg_take_blocks(decode, ask->transform);
}

#else

void stoker_jpeg_quicken(struct decode *decode, const struct ask *ask) { (void)decode, (void)ask; }

#endif
