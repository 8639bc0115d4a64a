/* The entropy decoder of baseline JPEG, in place of libjpeg-turbo's: the same coefficients, sooner.
 *
 * Huffman decoding is the largest part of a decode, and libjpeg-turbo takes each coefficient in two
 * steps: its code, then its bits. Here one look-up by the next ten bits mostly gives all of it: the
 * value, how many zeros precede it and how many bits it took. The bit buffer is filled without a
 * branch, eight bytes at a time, unless one of them is 0xFF.
 *
 * Near the end of the data, and around markers, each bit is asked for by itself, as libjpeg does it:
 * what is read past a marker is zeros, and after that the rest of the segment stays grey. So noise
 * gives the same pixels, too, with one exception: where 0xFF is followed by 0xFF and 0 in the data,
 * which no encoder writes, libjpeg-turbo's own quick path leaves coefficients behind that its slow path
 * does not make; here it is the slow path's. libjpeg's module has no public interface; what is replaced is one
 * pointer of an internal structure, and only in the versions whose structure is known. */

#include <string.h>

#include "jpeg_shim.h"

#if LIBJPEG_TURBO_VERSION_NUMBER >= 3000000 && LIBJPEG_TURBO_VERSION_NUMBER < 3002000

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

/* An entry by the next ten bits: in the lowest byte how many bits it takes; in the second how far the
 * last coefficient is from the one before it; in the upper half the value. Where the bits do not hold
 * all of it, LONG is set, and the lowest byte is the length of the code or 0, the second the symbol. */
enum { LONG = 0x80, END_OF_BLOCK = 128, RUN_OF_16 = 0xF0, LAST = DCTSIZE2 - 1 };

/* Bytes of data that no block exceeds. */
enum { MOST_OF_A_BLOCK = DCTSIZE2 * 8 };

static const uint8_t NATURAL_ORDER[DCTSIZE2] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

static struct decode *decode_of(j_decompress_ptr jpeg) { return (struct decode *)jpeg->client_data; }

/* The number that `size` bits stand for. */
static int extend(unsigned int bits, int size) {
  if (size == 0) return 0;
  return bits < 1u << (size - 1) ? (int)bits - (int)(1u << size) + 1 : (int)bits;
}

/* How far a symbol of an AC table goes on. */
static int distance(int symbol) {
  if ((symbol & 15) != 0) return (symbol >> 4) + 1;
  return symbol == RUN_OF_16 ? 16 : END_OF_BLOCK;
}

static uint32_t entry_of(int is_dc, int length, int symbol, unsigned int rest) {
  int size = symbol & 15;
  int left = QUICK_BITS - length - size;
  if (left < 0) return LONG | (uint32_t)length | (uint32_t)symbol << 8;
  int far = is_dc ? 0 : distance(symbol);
  uint32_t value = (uint32_t)extend(rest >> left, size);
  return (uint32_t)(length + size) | (uint32_t)far << 8 | value << 16;
}

static void make_table(struct huffman_table *table, int is_dc, const JHUFF_TBL *from) {
  if (table->is_made && table->is_dc == is_dc &&
      memcmp(table->counts, from->bits, sizeof table->counts) == 0 &&
      memcmp(table->symbols, from->huffval, sizeof table->symbols) == 0)
    return;
  table->is_made = 1;
  table->is_dc = is_dc;
  memcpy(table->counts, from->bits, sizeof table->counts);
  memcpy(table->symbols, from->huffval, sizeof table->symbols);
  for (int i = 0; i < 1 << QUICK_BITS; i++) table->quick[i] = LONG;
  /* libjpeg has checked that the counts make a tree of at most 256 leaves. */
  int code = 0, place = 0;
  for (int length = 1; length <= 16; length++) {
    table->offset[length] = place - code;
    for (int i = 0; i < from->bits[length]; i++, code++, place++) {
      if (length > QUICK_BITS) continue;
      int rest = QUICK_BITS - length;
      for (int bits = 0; bits < 1 << rest; bits++)
        table->quick[(code << rest) + bits] =
            entry_of(is_dc, length, from->huffval[place], (unsigned int)bits);
    }
    table->most[length] = from->bits[length] > 0 ? code - 1 : -1;
    code <<= 1;
  }
  /* What is no code ends here. */
  table->most[17] = INT32_MAX;
}

/* The length of the code at the head of the buffer, which is at least `length` long, and its symbol.
 * What is no code is 17 bits long and counts as 0, as in libjpeg. */
static int symbol_at(const struct huffman_table *table, uint64_t buffer, int *length) {
  int l = *length;
  while ((int32_t)(buffer >> (64 - l)) > table->most[l]) l++;
  *length = l;
  if (l > 16) return 0;
  return table->symbols[((int32_t)(buffer >> (64 - l)) + table->offset[l]) & 0xFF];
}

/* A whole entry for what does not fit the quick table; its value may need all 32 bits. */
static int long_entry(const struct huffman_table *table, uint64_t buffer, uint32_t *entry) {
  int length = (int)(*entry & 0x1F), symbol = (int)(*entry >> 8);
  if (length == 0) {
    length = QUICK_BITS + 1;
    symbol = symbol_at(table, buffer, &length);
  }
  int size = symbol & 15;
  *entry = (uint32_t)(length + size) | (uint32_t)(table->is_dc ? 0 : distance(symbol)) << 8;
  return size == 0 ? 0 : extend((unsigned int)(buffer << length >> (64 - size)), size);
}

/* Fills the buffer to at least 56 bits. Below them it may hold more of what comes next. */
#define REFILL                                                                       \
  do {                                                                               \
    uint64_t bytes;                                                                  \
    memcpy(&bytes, at, 8);                                                           \
    if (__builtin_expect(((~bytes - ONES) & bytes & (ONES << 7)) != 0, 0)) {           \
      while (bits < 56) {                                                            \
        uint64_t byte = *at++;                                                       \
        if (byte == 0xFF && *at++ != 0) return FALSE;                                \
        buffer |= byte << (56 - bits);                                               \
        bits += 8;                                                                   \
      }                                                                              \
    } else {                                                                         \
      buffer |= big_endian(bytes) >> bits;                                           \
      at += (63 - bits) >> 3;                                                        \
      bits |= 56;                                                                    \
    }                                                                                \
  } while (0)

#define TAKE(entry) (buffer <<= (entry) & 0x3F, bits -= (int)((entry) & 0x3F))

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
 * will be written again, if it does not, or if it meets a marker. */
INLINED boolean decode_quickly_with(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  const uint8_t *at = jpeg->src->next_input_byte, *end = at + jpeg->src->bytes_in_buffer;
  uint64_t buffer = huffman->buffer;
  int bits = huffman->bits;
  int last_dc[MAX_COMPS_IN_SCAN];
  memcpy(last_dc, huffman->last_dc, sizeof last_dc);
  for (int number = 0; number < jpeg->blocks_in_MCU; number++) {
    if (end - at < MOST_OF_A_BLOCK) return FALSE;
    JCOEF *block = *blocks[number];
    const struct huffman_table *table = huffman->dc[number];
    REFILL;
    uint32_t entry = table->quick[buffer >> (64 - QUICK_BITS)];
    int value = (int32_t)entry >> 16;
    if (entry & LONG) value = long_entry(table, buffer, &entry);
    TAKE(entry);
    int *dc = &last_dc[jpeg->MCU_membership[number]];
    *dc = (int)((unsigned int)*dc + (unsigned int)value);
    block[0] = (JCOEF)*dc;
    table = huffman->ac[number];
    const uint32_t *quick = table->quick;
    unsigned int k = 0;
    for (;;) {
      REFILL;
      entry = quick[buffer >> (64 - QUICK_BITS)];
      value = (int32_t)entry >> 16;
      if (__builtin_expect(entry & LONG, 0)) value = long_entry(table, buffer, &entry);
      TAKE(entry);
      k += entry >> 8 & 0xFF;
      if (k >= LAST) break;
      block[NATURAL_ORDER[k]] = (JCOEF)value;
      /* 25 bits are left at least: enough for two more quick ones. */
      entry = quick[buffer >> (64 - QUICK_BITS)];
      if (__builtin_expect(entry & LONG, 0)) continue;
      value = (int32_t)entry >> 16;
      TAKE(entry);
      k += entry >> 8 & 0xFF;
      if (k >= LAST) break;
      block[NATURAL_ORDER[k]] = (JCOEF)value;
      entry = quick[buffer >> (64 - QUICK_BITS)];
      if (__builtin_expect(entry & LONG, 0)) continue;
      value = (int32_t)entry >> 16;
      TAKE(entry);
      k += entry >> 8 & 0xFF;
      if (k >= LAST) break;
      block[NATURAL_ORDER[k]] = (JCOEF)value;
    }
    /* Noise may go past the last coefficient, and means it then. */
    if (k < END_OF_BLOCK) block[LAST] = (JCOEF)value;
  }
  jpeg->src->bytes_in_buffer -= (size_t)(at - jpeg->src->next_input_byte);
  jpeg->src->next_input_byte = at;
  huffman->buffer = buffer;
  huffman->bits = bits;
  memcpy(huffman->last_dc, last_dc, sizeof last_dc);
  return TRUE;
}

static boolean decode_quickly(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
  return decode_quickly_with(jpeg, blocks);
}

#if defined(__x86_64__) && defined(__GNUC__)

/* The same, with shifts of one instruction instead of three, which is what a coefficient waits for. */
__attribute__((target("bmi,bmi2"))) static boolean decode_quickly_bmi(j_decompress_ptr jpeg,
                                                                      JBLOCKROW *blocks) {
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
static int take_symbol(j_decompress_ptr jpeg, const struct huffman_table *table) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  int length = 1;
  for (want(jpeg, 1); (int32_t)(huffman->buffer >> (64 - length)) > table->most[length];)
    want(jpeg, ++length);
  int symbol = symbol_at(table, huffman->buffer, &length);
  huffman->buffer <<= length;
  huffman->bits -= length;
  return symbol;
}

static void decode_bit_by_bit(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  /* What was loaded ahead is loaded again. */
  huffman->buffer &= huffman->bits > 0 ? ~(uint64_t)0 << (64 - huffman->bits) : 0;
  for (int number = 0; number < jpeg->blocks_in_MCU; number++) {
    JCOEF *block = *blocks[number];
    int size = take_symbol(jpeg, huffman->dc[number]) & 15;
    int *dc = &huffman->last_dc[jpeg->MCU_membership[number]];
    *dc = (int)((unsigned int)*dc + (unsigned int)extend(take_bits(jpeg, size), size));
    block[0] = (JCOEF)*dc;
    for (int k = 0; k < LAST;) {
      int symbol = take_symbol(jpeg, huffman->ac[number]);
      k += distance(symbol);
      size = symbol & 15;
      if (size == 0) continue;
      int value = extend(take_bits(jpeg, size), size);
      block[k < LAST ? NATURAL_ORDER[k] : LAST] = (JCOEF)value;
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

/* As libjpeg's own: decodes the coefficients of an MCU, whose blocks are zeros. */
static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *blocks) {
  struct huffman *huffman = &decode_of(jpeg)->huffman;
  if (jpeg->restart_interval != 0 && huffman->restarts_to_go == 0 && !restart(jpeg)) return FALSE;
  if (!huffman->exhausted) {
    if (jpeg->unread_marker != 0 || !huffman->quickly(jpeg, blocks)) decode_bit_by_bit(jpeg, blocks);
  }
  if (jpeg->restart_interval != 0) huffman->restarts_to_go--;
  return TRUE;
}

void stoker_jpeg_quicken(struct decode *decode, int bmi) {
  j_decompress_ptr jpeg = &decode->jpeg;
  struct huffman *huffman = &decode->huffman;
  if (jpeg->progressive_mode || jpeg->arith_code || jpeg->buffered_image ||
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
    if (!component->component_needed) return;
    make_table(&huffman->tables[dc], 1, jpeg->dc_huff_tbl_ptrs[dc]);
    make_table(&huffman->tables[NUM_HUFF_TBLS + ac], 0, jpeg->ac_huff_tbl_ptrs[ac]);
    huffman->dc[number] = &huffman->tables[dc];
    huffman->ac[number] = &huffman->tables[NUM_HUFF_TBLS + ac];
  }
  huffman->quickly = bmi ? decode_quickly_bmi : decode_quickly;
  jpeg->entropy->decode_mcu = decode_mcu;
}

#else

void stoker_jpeg_quicken(struct decode *decode, int bmi) { (void)decode, (void)bmi; }

#endif
