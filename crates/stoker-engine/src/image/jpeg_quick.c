/* Huffman codes where nothing is out of the ordinary: well before the end of the data, and no marker among them.
 *
 * Decoding is the largest part of an image, and it is a chain: where a code begins is known when the one
 * before it is. A look-up by the next bits mostly gives all of a coefficient, and often of the next one too
 * (jpeg_huffman.h). No branch in the chain is hard to foretell: the first coefficients of blocks are looked up like
 * all others, in a table of their own, and the bit buffer is filled eight bytes at a time, unless one of them is
 * 0xFF. */

#include <string.h>

#include "jpeg_huffman.h"

#if STOKER_KNOWS_LIBJPEG

/* How many entries are looked up before bits are filled in again, of which there are at least so many then. Each
 * but the first takes no more bits than a table goes by: what is LONG is left to the next time. */
enum { STEPS = 4, FILLED = 56 };

_Static_assert(STEPS * TABLE_BITS <= FILLED && 16 + 15 <= FILLED, "bits do not run out");

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

/* Fills the buffer to at least 56 bits byte by byte, as one of them is 0xFF; not if there is a marker. */
INLINED boolean refill_by_bytes(struct reader *reader) {
  const uint8_t *at = reader->at;
  for (int bits = bits_left(reader->state); bits < FILLED; bits += 8) {
    uint64_t byte = *at++;
    if (byte == 0xFF && *at++ != 0) return FALSE;
    reader->buffer |= byte << (56 - bits);
  }
  reader->at = at;
  return TRUE;
}

/* Fills the buffer to at least 56 bits, below which it may hold more of what comes next; says whether it could. */
INLINED boolean refill(struct reader *reader) {
  uint64_t bytes;
  if (__builtin_expect(reader->at > reader->last, 0)) return FALSE;
  memcpy(&bytes, reader->at, 8);
  if (__builtin_expect(((~bytes - ONES) & bytes & (ONES << 7)) != 0, 0)) {
    if (!refill_by_bytes(reader)) return FALSE;
  } else {
    reader->buffer |= big_endian(bytes) >> (~reader->state & 63);
    reader->at += reader->state >> 3 & 7;
  }
  reader->state &= ~(uint64_t)0x38;
  return TRUE;
}

/* Goes on by an entry, and if the block ends there, to the next one. Returns the state that was reached before
 * that. A block's end is as hard to foretell as its coefficients are, so the sign of a sum chooses. */
INLINED uint64_t go_on(struct reader *reader, uint64_t entry) {
  const struct block *block = reader->block;
  uint64_t reached;
#if defined(__x86_64__) && defined(__GNUC__)
  const struct table *table = block->rest;
  uint64_t state = reader->state, begun;
  __asm__("addw %w[entry], %w[state]\n\t"
          "movzbl %b[state], %k[begun]\n\t"
          "leal %c[start](%q[begun]), %k[begun]\n\t"
          "movl %k[state], %k[reached]\n\t"
          "cmovs %[first], %[table]\n\t"
          "cmovs %q[begun], %q[state]\n\t"
          "leaq %c[size](%[block]), %q[begun]\n\t"
          "cmovs %q[begun], %[block]"
          : [state] "+&r"(state), [table] "+&r"(table), [block] "+r"(block), [begun] "=&r"(begun),
            [reached] "=&r"(reached)
          : [entry] "r"(entry), [first] "m"(block[1].first), [size] "i"(sizeof *block),
            [start] "i"(DC_PLACE << 8)
          : "cc");
  reader->state = state;
  reader->table = table;
  reader->block = block;
#else
  reached = reader->state + (entry & 0xFFFF);
  int is_end = (reached & 0x8000) != 0;
  reader->table = is_end ? block[1].first : block->rest;
  reader->state = is_end ? (reached & 0xFF) | DC_PLACE << 8 : reached;
  reader->block = block + is_end;
#endif
  return reached;
}

INLINED uint64_t look_up(const struct reader *reader) {
  return reader->table->quick[reader->buffer >> (64 - TABLE_BITS)];
}

#define IS_LONG(entry) __builtin_expect((uint32_t)(entry) >= LONG, 0)

/* The entry of what comes next, in place of one that is LONG. */
INLINED uint64_t whole_entry(const struct reader *reader, uint64_t entry) {
  if ((entry & RARE) == RARE) {
    int length = TABLE_BITS + 1, symbol = symbol_at(reader->table->codes, reader->buffer, &length);
    entry = long_entry(reader->table->codes != reader->table->then, length, symbol);
  }
  return entry_of(entry, reader->buffer);
}

/* Takes the coefficients of an entry. */
INLINED void take(struct reader *reader, const uint16_t *order, uint64_t entry) {
  JCOEF *coefficients = reader->block->coefficients;
  uint64_t place = (reader->state + (entry >> 8)) >> 8 & 0xFF;
  /* If the first coefficient is the block's last, the second is none of it. */
  if (__builtin_expect(place - (DC_PLACE + LAST) < LONGEST_RUN, 0)) entry = first_of(entry);
  coefficients[order[place]] = FIRST(entry);
  reader->buffer <<= BITS(entry);
  coefficients[order[go_on(reader, entry) >> 8]] = SECOND(entry);
}

/* Reads codes to the end; if it could not, nothing has changed but coefficients. */
INLINED boolean read_with(struct reader *from, const uint16_t *order) {
  struct reader reader = *from;
  do {
    if (!refill(&reader)) return FALSE;
    uint64_t entry = look_up(&reader);
    if (IS_LONG(entry)) {
      take(&reader, order, whole_entry(&reader, entry));
      continue;
    }
    take(&reader, order, entry);
    if (IS_LONG(entry = look_up(&reader))) continue;
    take(&reader, order, entry);
    if (IS_LONG(entry = look_up(&reader))) continue;
    take(&reader, order, entry);
    if (IS_LONG(entry = look_up(&reader))) continue;
    take(&reader, order, entry);
  } while (reader.block != reader.end);
  *from = reader;
  return TRUE;
}

static boolean read_codes(struct reader *reader, const uint16_t *order) { return read_with(reader, order); }

#if defined(__x86_64__) && defined(__GNUC__)

/* The same, with shifts of one instruction instead of three, which is what a coefficient waits for. */
__attribute__((target("bmi,bmi2"))) static boolean read_codes_bmi(struct reader *reader,
                                                                  const uint16_t *order) {
  return read_with(reader, order);
}

#else
#define read_codes_bmi read_codes
#endif

code_reader *stoker_jpeg_code_reader(int bmi) { return bmi ? read_codes_bmi : read_codes; }

#endif
