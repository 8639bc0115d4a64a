/* Huffman tables, as jpeg_tables.c makes them, and jpeg_quick.c and jpeg_huffman.c read them. */

#ifndef STOKER_JPEG_HUFFMAN_H
#define STOKER_JPEG_HUFFMAN_H

#include "jpeg_shim.h"

/* An entry has two coefficients, or the same one twice. From the lowest byte: how many bits both take, how far the
 * second is from where we are, how far the first is, how many bits the first takes alone; then both values.
 *
 * Where the bits do not hold all of the first one's value, it is LONG, and there is no second; in place of the value
 * stand the length of the code and how many bits follow it. Where they do not even hold the code, it is RARE too. */
enum { RUN_OF_16 = 0xF0, LAST = DCTSIZE2 - 1 };
#define LONG 0x40000000u
#define RARE 0xC0000000u

/* How far the end of a block is: further than noise goes on from any of its coefficients. */
enum { END_OF_BLOCK = DCTSIZE2 + LONGEST_RUN };

#define BITS(entry) ((entry) & 0x3F)
#define AHEAD(entry) ((entry) >> 8 & 0xFF)
#define AHEAD_FIRST(entry) ((entry) >> 16 & 0xFF)
#define BITS_FIRST(entry) ((entry) >> 24 & 0x3F)
#define FIRST(entry) ((JCOEF)((entry) >> 32))
#define SECOND(entry) ((JCOEF)((entry) >> 48))

/* The entry of two coefficients. */
static inline uint64_t pair_of(uint64_t first, uint64_t second) {
  uint64_t ahead = AHEAD(first) + AHEAD(second);
  return (BITS(first) + BITS(second)) | ahead << 8 | (first & 0xFFFFFFFF0000) | second >> 48 << 48;
}

/* The entry of the first alone. */
static inline uint64_t first_of(uint64_t entry) {
  uint64_t value = entry >> 32 & 0xFFFF;
  return BITS_FIRST(entry) | AHEAD_FIRST(entry) << 8 | (entry & 0xFFFF0000) | value << 32 | value << 48;
}

/* The number that `size` bits stand for. */
static inline int extend(unsigned int bits, int size) {
  if (size == 0) return 0;
  return bits < 1u << (size - 1) ? (int)bits - (int)(1u << size) + 1 : (int)bits;
}

/* How far a symbol of an AC table goes on. */
static inline int distance(int symbol) {
  if ((symbol & 15) != 0) return (symbol >> 4) + 1;
  return symbol == RUN_OF_16 ? 16 : END_OF_BLOCK;
}

/* The entry of one coefficient, of a code of that length. */
static inline uint64_t long_entry(int is_dc, int length, int symbol) {
  int size = symbol & 15;
  uint64_t far = is_dc ? 0 : (uint64_t)distance(symbol), bits = (uint64_t)(length + size);
  return bits | far << 8 | far << 16 | bits << 24 | LONG | (uint64_t)length << 32 | (uint64_t)size << 40;
}

/* The same, with the value that it has where these bits begin with its code. */
static inline uint64_t entry_of(uint64_t entry, uint64_t bits) {
  int length = (int)(entry >> 32 & 0xFF), size = (int)(entry >> 40 & 0xFF);
  int number = size == 0 ? 0 : extend((unsigned int)(bits << length >> (64 - size)), size);
  uint64_t value = (uint16_t)number;
  return (entry & (uint32_t)~RARE) | value << 32 | value << 48;
}

/* The length of the code at the head of the buffer, which is at least `length` long, and its symbol.
 * What is no code is 17 bits long and counts as 0, as in libjpeg. */
static inline int symbol_at(const struct codes *codes, uint64_t buffer, int *length) {
  int l = *length;
  while ((int32_t)(buffer >> (64 - l)) > codes->most[l]) l++;
  *length = l;
  if (l > 16) return 0;
  return codes->symbols[((int32_t)(buffer >> (64 - l)) + codes->offset[l]) & 0xFF];
}

/* Takes over what libjpeg read, which has checked that it makes a tree of at most 256 leaves. */
void stoker_jpeg_make_codes(struct codes *codes, const JHUFF_TBL *from);

/* Makes a table of both codes, if they are others than they were. Where they are the same, it is of the
 * coefficients of a block but the first. */
void stoker_jpeg_make_table(struct table *table, const struct codes *codes, const struct codes *then);

/* The state of a reader at the beginning of a block, with so many bits left; and how many are left. */
static inline uint64_t state_of(int bits) { return (uint64_t)(63 - bits) | DC_PLACE << 8; }
static inline int bits_left(uint64_t state) { return 63 - (int)(state & 63); }

/* Gives the one that suits the processor. */
code_reader *stoker_jpeg_code_reader(int bmi);

#endif
