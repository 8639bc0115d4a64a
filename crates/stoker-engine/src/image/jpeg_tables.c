/* From the Huffman tables of a file to those that jpeg_quick.c looks up. */

#include <string.h>

#include "jpeg_huffman.h"

/* Fills a table of entries of one coefficient. */
static void fill(uint64_t *quick, int is_dc, const struct codes *codes) {
  int code = 0, place = 0;
  for (int i = 0; i < 1 << TABLE_BITS; i++) quick[i] = RARE;
  for (int length = 1; length <= TABLE_BITS; length++, code <<= 1) {
    int left = TABLE_BITS - length;
    for (int i = 0; i < codes->counts[length]; i++, code++, place++) {
      uint64_t entry = long_entry(is_dc, length, codes->symbols[place]);
      for (uint64_t bits = (uint64_t)code << left, end = bits + (1u << left); bits < end; bits++)
        quick[bits] = BITS(entry) <= TABLE_BITS ? entry_of(entry, bits << (64 - TABLE_BITS)) : entry;
    }
  }
}

void stoker_jpeg_make_codes(struct codes *codes, const JHUFF_TBL *from) {
  if (codes->made > 0 && memcmp(codes->counts, from->bits, sizeof codes->counts) == 0 &&
      memcmp(codes->symbols, from->huffval, sizeof codes->symbols) == 0)
    return;
  codes->made++;
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
}

void stoker_jpeg_make_table(struct table *table, const struct codes *codes, const struct codes *then) {
  enum { MASK = (1 << TABLE_BITS) - 1 };
  uint64_t ones[1 << TABLE_BITS];
  if (table->codes == codes && table->then == then && table->made == codes->made &&
      table->then_made == then->made)
    return;
  table->codes = codes;
  table->then = then;
  table->made = codes->made;
  table->then_made = then->made;
  fill(table->quick, codes != then, codes);
  fill(ones, 0, then);
  for (uint64_t i = 0; i <= MASK; i++) {
    uint64_t first = table->quick[i];
    if ((first & LONG) != 0 || AHEAD(first) == END_OF_BLOCK) continue;
    uint64_t second = ones[i << BITS(first) & MASK];
    if ((second & LONG) == 0 && BITS(first) + BITS(second) <= TABLE_BITS)
      table->quick[i] = pair_of(first, second);
  }
}
