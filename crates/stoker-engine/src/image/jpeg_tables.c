/* From the Huffman tables of a file to those that jpeg_huffman.c looks up. */

#include <string.h>

#include "jpeg_huffman.h"

/* An entry of one coefficient, by that many bits; in the second byte how far it is. */
static uint32_t entry_of(int bits, int length, int symbol, int far, unsigned int rest) {
  int size = symbol & 15;
  int left = bits - length - size;
  if (left < 0) return LONG | (uint32_t)length | (uint32_t)symbol << 8;
  uint32_t value = (uint32_t)extend(rest >> left, size);
  return (uint32_t)(length + size) | (uint32_t)far << 8 | value << 16;
}

/* Fills a table of 2^bits entries. libjpeg has checked that the counts make a tree of at most 256 leaves. */
static void fill(uint32_t *quick, int bits, int is_dc, const JHUFF_TBL *from) {
  int code = 0, place = 0;
  for (int i = 0; i < 1 << bits; i++) quick[i] = LONG;
  for (int length = 1; length <= bits; length++, code <<= 1) {
    int rest = bits - length;
    for (int i = 0; i < from->bits[length]; i++, code++, place++) {
      int symbol = from->huffval[place], far = is_dc ? 0 : distance(symbol);
      for (int next = 0; next < 1 << rest; next++)
        quick[(code << rest) + next] = entry_of(bits, length, symbol, far, (unsigned int)next);
    }
  }
}

/* Whether the codes are new, and the tables before them are to be made. */
static int make_codes(struct codes *codes, const JHUFF_TBL *from) {
  if (codes->are_made && memcmp(codes->counts, from->bits, sizeof codes->counts) == 0 &&
      memcmp(codes->symbols, from->huffval, sizeof codes->symbols) == 0)
    return 0;
  codes->are_made = 1;
  memcpy(codes->counts, from->bits, sizeof codes->counts);
  memcpy(codes->symbols, from->huffval, sizeof codes->symbols);
  int code = 0, place = 0;
  for (int length = 1; length <= 16; length++, code <<= 1) {
    int count = from->bits[length];
    codes->offset[length] = place - code;
    code += count;
    place += count;
    codes->most[length] = count > 0 ? code - 1 : -1;
  }
  /* What is no code ends here. */
  codes->most[17] = INT32_MAX;
  return 1;
}

void stoker_jpeg_make_dc(struct dc_table *table, const JHUFF_TBL *from) {
  if (make_codes(&table->codes, from)) fill(table->quick, DC_BITS, 1, from);
}

void stoker_jpeg_make_ac(struct ac_table *table, const JHUFF_TBL *from) {
  enum { MASK = (1 << AC_BITS) - 1 };
  uint32_t quick[1 << AC_BITS];
  if (!make_codes(&table->codes, from)) return;
  fill(quick, AC_BITS, 0, from);
  for (int i = 0; i <= MASK; i++) {
    uint32_t first = quick[i];
    if (first & LONG) {
      table->quick[i] = first;
      continue;
    }
    uint32_t second = quick[i << BITS(first) & MASK];
    uint32_t bits = first & 0x3F, far = AHEAD(first), value = first >> 16;
    if (far < END_OF_BLOCK && !(second & LONG) && BITS(first) + BITS(second) <= AC_BITS) {
      bits += second & 0x3F;
      far += AHEAD(second);
      value = second >> 16;
    }
    table->quick[i] = bits | far << 8 | AHEAD(first) << 16 | (first & 0x3F) << 24 |
                      (uint64_t)(first >> 16) << 32 | (uint64_t)value << 48;
  }
}
