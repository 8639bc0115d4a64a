//! The two passes of the resize on AVX-512: the same integers as the scalar code, in other lanes.
//!
//! Across, a register holds the sums of 16 neighbouring bytes of the result, and four of them are
//! packed together. A permutation of the bytes from where the first of them begins brings each its
//! next two taps (every third byte, as pixels have three), and a dot product adds them, weighted; what
//! a register needs to know is made once for each axis ([`Across`]). Downwards, bytes of two rows are
//! interleaved, as on AVX2.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::x86_64::{
    __m128i, __m512i, _mm_cvtsi32_si128, _mm512_add_epi16, _mm512_add_epi32, _mm512_dpwssd_epi32,
    _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_packs_epi32, _mm512_packus_epi16,
    _mm512_permutexvar_epi8, _mm512_permutexvar_epi32, _mm512_set1_epi16, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_slli_epi32, _mm512_sra_epi32, _mm512_storeu_si512,
    _mm512_unpackhi_epi8, _mm512_unpacklo_epi8,
};

use super::axis::Axis;
use super::passes::{Rows, SLACK};
use crate::simd::Avx512;

/// Bytes that a register holds.
const WIDTH: usize = 64;
/// Sums that a register holds.
const LANES: usize = 16;
/// Groups whose bytes fill a register.
const QUAD: usize = 4;
/// Bytes that two taps of a row are apart from the next two.
const PAIR: usize = 6;
/// The place of a byte that is never loaded, and so is zero.
const ZERO: u8 = 63;
/// All bytes but that one.
const LOADED: u64 = !(1 << ZERO);

/// An axis as the horizontal pass takes it, 16 bytes of the result after the other, in fours.
#[derive(Debug)]
pub(super) struct Across {
    groups: Vec<Group>,
    /// For each group, word and pair of taps: the weights of its lanes.
    weights: Vec<[i32; LANES]>,
    /// Whether all taps of a group lie within a register's bytes.
    near: bool,
}

/// Which bytes 16 neighbouring ones of the result are made of.
#[derive(Debug)]
struct Group {
    /// The first of them.
    start: usize,
    /// Where from there the first two taps of each lane are, as 16 bits each.
    order: [u8; WIDTH],
}

impl Across {
    /// `None` where the first taps of 16 neighbouring bytes are further apart than a register
    /// reaches, which is when an image is shrunk to less than a third.
    pub(super) fn new(axis: &Axis) -> Option<Self> {
        let (pairs, words) = (axis.taps / 2, axis.words());
        let count = (axis.key.to * 3).div_ceil(LANES).next_multiple_of(QUAD);
        let mut groups = Vec::with_capacity(count);
        let mut weights = vec![[0; LANES]; count * pairs * words];
        let mut furthest = 0;
        for (group, weights) in weights.chunks_exact_mut(pairs * words).enumerate() {
            // the lanes past the end of the row make bytes that nobody reads
            let bytes =
                (group * LANES).min(axis.key.to * 3)..(group * LANES + LANES).min(axis.key.to * 3);
            let start = axis.starts[bytes.start / 3 - usize::from(bytes.is_empty())] as usize * 3;
            let mut order = [ZERO; WIDTH];
            for (lane, byte) in bytes.enumerate() {
                let (pixel, channel) = (byte / 3, byte % 3);
                let first = axis.starts[pixel] as usize * 3 + channel - start;
                if first + 3 >= usize::from(ZERO) {
                    return None;
                }
                furthest = furthest.max(first + 3);
                (order[lane * 4], order[lane * 4 + 2]) = (first as u8, first as u8 + 3);
                let packed = &axis.packed[pixel * pairs * words..][..pairs * words];
                for (lanes, weight) in weights.iter_mut().zip(packed) {
                    lanes[lane] = *weight;
                }
            }
            groups.push(Group { start, order });
        }
        let near = furthest + (pairs - 1) * PAIR < usize::from(ZERO);
        Some(Self { groups, weights, near })
    }
}

/// As [`super::passes::horizontal`], all of it; says whether it can.
pub(super) fn horizontal(
    _: Avx512,
    axis: &Axis,
    source: Rows<'_>,
    rows: usize,
    out: &mut [u8],
    out_stride: usize,
) -> bool {
    let Some(across) = axis.across() else { return false };
    let length = across.groups.len() * LANES;
    assert!(length <= axis.key.to * 3 + SLACK && rows > 0, "the rows of the strip have slack");
    assert!((rows - 1) * out_stride + length <= out.len(), "the strip holds the rows");
    let last = (rows - 1) * source.stride + axis.key.from * 3;
    assert!(last <= source.bytes.len(), "the source has the rows");
    let job = Job { axis, across, source, rows, out_stride };
    // SAFETY: the proof says that AVX-512 is there; the assertions, that rows have the room that is
    // written. What is read lies within `source`, or is masked out.
    unsafe {
        match (axis.words(), axis.taps / 2, across.near) {
            (1, 2, true) => across_rows::<1, 2, true>(&job, out),
            (1, 3, true) => across_rows::<1, 3, true>(&job, out),
            (1, _, _) => across_rows::<1, ANY, false>(&job, out),
            (_, 2, true) => across_rows::<2, 2, true>(&job, out),
            (_, 3, true) => across_rows::<2, 3, true>(&job, out),
            (_, _, _) => across_rows::<2, ANY, false>(&job, out),
        }
    }
    true
}

/// What a horizontal step does.
struct Job<'a> {
    axis: &'a Axis,
    across: &'a Across,
    source: Rows<'a>,
    rows: usize,
    out_stride: usize,
}

/// In place of a number of pairs of taps that is known to the compiler: 2 when enlarging, 3 when
/// shrinking a little, which is what most images need.
const ANY: usize = 0;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn across_rows<const WORDS: usize, const PAIRS: usize, const NEAR: bool>(
    job: &Job<'_>,
    out: &mut [u8],
) {
    let Job { axis, across, source, rows, out_stride } = *job;
    let pairs = if PAIRS == ANY { axis.taps / 2 } else { PAIRS };
    let (half, bits) = rounding(axis.precision);
    let zero = _mm512_setzero_si512();
    let further = _mm512_set1_epi16(PAIR as i16);
    // SAFETY: 16 numbers are 64 bytes.
    let in_order = unsafe { load(IN_ORDER.as_ptr().cast()) };
    // bytes from the start of a group in the last row that may be loaded for it
    let reach = if NEAR { WIDTH } else { WIDTH + (pairs - 1) * PAIR };
    let room = source.bytes.len() - (rows - 1) * source.stride;
    let mut weights = across.weights.as_ptr();
    for (number, quad) in across.groups.as_chunks::<QUAD>().0.iter().enumerate() {
        let whole = quad[QUAD - 1].start + reach <= room;
        let mut from = source.bytes.as_ptr();
        // SAFETY: the caller promises room for whole quads in each row.
        let mut to = unsafe { out.as_mut_ptr().add(number * WIDTH) };
        for row in 0..rows {
            let mut sums = [half; QUAD];
            let mut weights = weights;
            for (group, sum) in quad.iter().zip(&mut sums) {
                let piece = |offset: usize| {
                    let mut mask = LOADED;
                    if !whole {
                        let skipped = row * source.stride + group.start + offset;
                        let left = source.bytes.len().saturating_sub(skipped);
                        mask = if left < WIDTH { LOADED & ((1 << left) - 1) } else { LOADED };
                    }
                    // SAFETY: the mask leaves out what is not there.
                    unsafe {
                        let at = from.wrapping_add(group.start + offset);
                        _mm512_maskz_loadu_epi8(mask, at.cast())
                    }
                };
                // SAFETY: `order` has 64 bytes.
                let mut order = unsafe { load(group.order.as_ptr()) };
                let near = if NEAR { piece(0) } else { zero };
                let mut high = zero;
                for pair in 0..pairs {
                    let pixels = if NEAR { near } else { piece(pair * PAIR) };
                    let taps = _mm512_permutexvar_epi8(order, pixels);
                    // SAFETY: each group has 16 weights, 64 bytes, for each pair and word.
                    unsafe {
                        *sum = _mm512_dpwssd_epi32(*sum, taps, load(weights.cast()));
                        if WORDS == 2 {
                            high = _mm512_dpwssd_epi32(high, taps, load(weights.add(1).cast()));
                        }
                        weights = weights.add(WORDS);
                    }
                    if NEAR {
                        // only the low byte of each 16 bits: the other is the place of the zero
                        order = _mm512_add_epi16(order, further);
                    }
                }
                *sum = finish::<WORDS>(*sum, high, bits);
            }
            let [a, b, c, d] = sums;
            let bytes = _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
            // SAFETY: the caller promises room for whole quads in each row.
            unsafe {
                _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi32(in_order, bytes));
                to = to.wrapping_add(out_stride);
                from = from.wrapping_add(source.stride);
            }
        }
        // SAFETY: the next quad's, or the end.
        weights = unsafe { weights.add(QUAD * pairs * WORDS) };
    }
}

/// Packing takes four sums of each of four groups in turn.
const IN_ORDER: [i32; LANES] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

/// As [`super::passes::vertical`], for rows of at least one step; says whether this is one.
pub(super) fn vertical(
    _: Avx512,
    axis: &Axis,
    to: usize,
    source: Rows<'_>,
    out: &mut [u8],
) -> bool {
    if out.len() < WIDTH {
        return false;
    }
    let rows = axis.span(to).len();
    assert!((rows - 1) * source.stride + out.len() <= source.bytes.len(), "all taps are there");
    // SAFETY: the proof says that AVX-512 is there; `rows` rows of `out.len()` bytes are in `source`.
    unsafe {
        match (axis.words(), rows.div_ceil(2)) {
            (1, 2) => down_row::<1, 2>(axis, to, source, out),
            (1, 3) => down_row::<1, 3>(axis, to, source, out),
            (1, _) => down_row::<1, ANY>(axis, to, source, out),
            (_, 2) => down_row::<2, 2>(axis, to, source, out),
            (_, 3) => down_row::<2, 3>(axis, to, source, out),
            (_, _) => down_row::<2, ANY>(axis, to, source, out),
        }
    }
    true
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_row<const WORDS: usize, const PAIRS: usize>(
    axis: &Axis,
    to: usize,
    source: Rows<'_>,
    out: &mut [u8],
) {
    let rows = axis.span(to).len();
    let pairs = if PAIRS == ANY { rows.div_ceil(2) } else { PAIRS };
    let weights = &axis.packed[to * axis.taps / 2 * WORDS..][..pairs * WORDS];
    let (half, bits) = rounding(axis.precision);
    let zero = _mm512_setzero_si512();
    // the weight of a missing last row is zero
    let lone = rows % 2 == 1;
    let mut start = 0;
    while start < out.len() {
        // the last step ends with the row and makes some bytes a second time
        let offset = start.min(out.len() - WIDTH);
        let (mut sums, mut high) = ([half; 4], [zero; 4]);
        let mut from = source.bytes[offset..].as_ptr();
        for (pair, weights) in weights.chunks_exact(WORDS).enumerate() {
            // SAFETY: the caller promises `rows` rows of `out.len()` bytes.
            let (upper, lower) = unsafe {
                let second = if lone && pair + 1 == pairs { 0 } else { source.stride };
                (load(from), load(from.wrapping_add(second)))
            };
            from = from.wrapping_add(2 * source.stride);
            let left = _mm512_unpacklo_epi8(upper, lower);
            let right = _mm512_unpackhi_epi8(upper, lower);
            let taps = [
                _mm512_unpacklo_epi8(left, zero),
                _mm512_unpackhi_epi8(left, zero),
                _mm512_unpacklo_epi8(right, zero),
                _mm512_unpackhi_epi8(right, zero),
            ];
            let weight = _mm512_set1_epi32(weights[0]);
            for (sum, taps) in sums.iter_mut().zip(taps) {
                *sum = _mm512_dpwssd_epi32(*sum, taps, weight);
            }
            if WORDS == 2 {
                let weight = _mm512_set1_epi32(weights[1]);
                for (high, taps) in high.iter_mut().zip(taps) {
                    *high = _mm512_dpwssd_epi32(*high, taps, weight);
                }
            }
        }
        for (sum, high) in sums.iter_mut().zip(high) {
            *sum = finish::<WORDS>(*sum, high, bits);
        }
        let [a, b, c, d] = sums;
        let bytes = _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
        // SAFETY: `offset + WIDTH <= out.len()`.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(offset).cast(), bytes) };
        start += WIDTH;
    }
}

/// One half in the fixed point of the sums, and how many bits of them are fraction.
#[inline]
#[target_feature(enable = "avx512f")]
fn rounding(precision: u32) -> (__m512i, __m128i) {
    (_mm512_set1_epi32(1 << (precision - 1)), _mm_cvtsi32_si128(precision as i32))
}

/// Joins the parts of a sum, which has its half already, and drops the fraction.
#[inline]
#[target_feature(enable = "avx512f")]
fn finish<const WORDS: usize>(sum: __m512i, high: __m512i, bits: __m128i) -> __m512i {
    let whole = if WORDS == 2 { _mm512_add_epi32(sum, _mm512_slli_epi32::<8>(high)) } else { sum };
    _mm512_sra_epi32(whole, bits)
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(place: *const u8) -> __m512i {
    // SAFETY: the caller promises 64 bytes.
    unsafe { _mm512_loadu_si512(place.cast()) }
}
