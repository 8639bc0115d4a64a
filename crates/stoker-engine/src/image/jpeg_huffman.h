/* Huffman tables, as jpeg_tables.c makes them and jpeg_huffman.c reads them. */

#ifndef STOKER_JPEG_HUFFMAN_H
#define STOKER_JPEG_HUFFMAN_H

#include "jpeg_shim.h"

/* An entry by the next bits, of a DC table: in the lowest byte how many bits it takes; in the upper half
 * the value. Where the bits do not hold all of it, LONG is set, and the lowest bits are the length of the code
 * or 0, the second byte the symbol.
 *
 * Of an AC table, LONG is the same; else there are two coefficients, or the same one twice: how many bits both
 * take, how far the second is from where we are, how far the first is, how many bits it takes alone, and both
 * values. */
enum { LONG = 0x80, END_OF_BLOCK = 128, RUN_OF_16 = 0xF0, LAST = DCTSIZE2 - 1 };

#define BITS(entry) ((int)((entry) & 0x3F))
#define AHEAD(entry) ((unsigned int)((entry) >> 8) & 0xFF)
#define AHEAD_FIRST(entry) ((unsigned int)((entry) >> 16) & 0xFF)
#define BITS_FIRST(entry) ((int)((entry) >> 24) & 0x3F)
#define FIRST(entry) ((JCOEF)((entry) >> 32))
#define SECOND(entry) ((JCOEF)((entry) >> 48))

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

/* Makes a table, if it is another than it was. libjpeg has checked what it is made of. */
void stoker_jpeg_make_dc(struct dc_table *table, const JHUFF_TBL *from);
void stoker_jpeg_make_ac(struct ac_table *table, const JHUFF_TBL *from);

#endif
