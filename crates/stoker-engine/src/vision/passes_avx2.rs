//! The two passes of the resize on AVX2: the same integers as the scalar code, in other lanes.
//!
//! `pmaddwd` multiplies pixels with weights two at a time. Across, two rows share a register: four
//! neighbouring RGB pixels of each lie in 16 bytes, and two byte shuffles bring equal channels
//! together. Downwards, bytes of two rows are interleaved. Pillow's 22-bit weights are split into
//! their low byte and the rest, each summed by itself: `sum = (high << 8) + low`, with no more than
//! the scalar sum in it.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi32_si128, _mm_extract_epi32, _mm_loadl_epi64, _mm_loadu_si128,
    _mm_setr_epi8, _mm256_add_epi32, _mm256_broadcastsi128_si256, _mm256_castsi128_si256,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_inserti128_si256, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_packs_epi32, _mm256_packus_epi16, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_sra_epi32,
    _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
};

use super::axis::Axis;
use super::passes::{Rows, SLACK};
use crate::simd::Avx2;

/// Rows that the kernel takes across at a time.
const ROWS: usize = 4;
/// Bytes that hold four pixels as the kernel loads them.
const QUAD: usize = 16;
/// Bytes that hold two.
const PAIR: usize = 8;
/// Bytes of a row that one downward step makes.
const WIDTH: usize = 32;

/// As [`super::passes::horizontal`], for as many pixels from the left as it may read ahead for;
/// says how many.
pub(super) fn horizontal(
    _: Avx2,
    axis: &Axis,
    source: Rows<'_>,
    rows: usize,
    out: &mut [u8],
    out_stride: usize,
) -> usize {
    let last = (rows - 1) * source.stride;
    let (quads, pairs) = (axis.taps / 4, axis.taps / 2 % 2);
    let reach = if pairs == 1 { quads * 12 + PAIR } else { (quads - 1) * 12 + QUAD };
    let available = source.bytes.len() - last;
    let pixels = axis.starts.partition_point(|start| *start as usize * 3 + reach <= available);
    assert!((rows - 1) * out_stride + pixels * 3 + SLACK <= out.len(), "the strip has slack");
    for first in (0..rows).step_by(ROWS) {
        let row = |row: usize| (first + row).min(rows - 1);
        let from = std::array::from_fn(|index| source.bytes[row(index) * source.stride..].as_ptr());
        let to = std::array::from_fn(|index| out[row(index) * out_stride..].as_mut_ptr());
        // SAFETY: the proof says that AVX2 is there. For each of `pixels`, every row has `reach`
        // bytes from its start on, and room for its three bytes and one more in `out`.
        unsafe {
            match axis.words() {
                1 => horizontal_rows::<1>(axis, pixels, from, to),
                _ => horizontal_rows::<2>(axis, pixels, from, to),
            }
        }
    }
    pixels
}

#[target_feature(enable = "avx2")]
unsafe fn horizontal_rows<const WORDS: usize>(
    axis: &Axis,
    pixels: usize,
    from: [*const u8; ROWS],
    to: [*mut u8; ROWS],
) {
    let (quads, pairs) = (axis.taps / 4, axis.taps / 2 % 2);
    // red, green and blue of pixels 0 and 1, each value widened to 16 bits; then of 2 and 3
    let first = both(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    let second = both(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    let mut weights = axis.packed.as_ptr();
    for (pixel, start) in axis.starts[..pixels].iter().enumerate() {
        let mut offset = *start as usize * 3;
        let mut sums = [[_mm256_setzero_si256(); 2]; WORDS];
        // SAFETY: `packed` has WORDS words for each pair of the `taps` of every pixel; the caller
        // promises the pixels.
        unsafe {
            for _ in 0..quads {
                let rows = [quad(from[0], from[1], offset), quad(from[2], from[3], offset)];
                add::<WORDS>(&mut sums, shuffle(rows, first), weights);
                add::<WORDS>(&mut sums, shuffle(rows, second), weights.add(WORDS));
                weights = weights.add(2 * WORDS);
                offset += 12;
            }
            if pairs == 1 {
                let rows = [pair(from[0], from[1], offset), pair(from[2], from[3], offset)];
                add::<WORDS>(&mut sums, shuffle(rows, first), weights);
                weights = weights.add(WORDS);
            }
        }
        let sums = round::<WORDS>(sums, axis.precision);
        let words = _mm256_packs_epi32(sums[0], sums[1]);
        let bytes = _mm256_packus_epi16(words, words);
        let (low, high) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        let values = [
            _mm_extract_epi32::<0>(low),
            _mm_extract_epi32::<0>(high),
            _mm_extract_epi32::<1>(low),
            _mm_extract_epi32::<1>(high),
        ];
        for (to, value) in to.iter().zip(values) {
            // SAFETY: the caller promises room for four bytes from here.
            unsafe { to.add(pixel * 3).cast::<i32>().write_unaligned(value) };
        }
    }
}

/// As [`super::passes::vertical`], for rows of at least one step; says whether this is one.
pub(super) fn vertical(_: Avx2, axis: &Axis, to: usize, source: Rows<'_>, out: &mut [u8]) -> bool {
    if out.len() < WIDTH {
        return false;
    }
    let rows = axis.span(to).len();
    assert!((rows - 1) * source.stride + out.len() <= source.bytes.len(), "all taps are there");
    // SAFETY: the proof says that AVX2 is there; `rows` rows of `out.len()` bytes are in `source`.
    unsafe {
        match (axis.words(), rows.div_ceil(2)) {
            (1, 2) => vertical_row::<1, 2>(axis, to, source, out),
            (1, 3) => vertical_row::<1, 3>(axis, to, source, out),
            (1, _) => vertical_row::<1, ANY>(axis, to, source, out),
            (_, 2) => vertical_row::<2, 2>(axis, to, source, out),
            (_, 3) => vertical_row::<2, 3>(axis, to, source, out),
            (_, _) => vertical_row::<2, ANY>(axis, to, source, out),
        }
    }
    true
}

/// In place of a number of pairs of taps that is known to the compiler: 2 when enlarging, 3 when
/// shrinking a little, which is what most images need.
const ANY: usize = 0;

#[target_feature(enable = "avx2")]
unsafe fn vertical_row<const WORDS: usize, const PAIRS: usize>(
    axis: &Axis,
    to: usize,
    source: Rows<'_>,
    out: &mut [u8],
) {
    let rows = axis.span(to).len();
    let pairs = if PAIRS == ANY { rows.div_ceil(2) } else { PAIRS };
    let weights = axis.packed[to * axis.taps / 2 * WORDS..][..pairs * WORDS].as_ptr();
    let from = source.bytes.as_ptr();
    let zero = _mm256_setzero_si256();
    let mut start = 0;
    while start < out.len() {
        // the last step ends with the row and makes some bytes a second time
        let offset = start.min(out.len() - WIDTH);
        let (mut left, mut right) = ([[zero; 2]; WORDS], [[zero; 2]; WORDS]);
        for pair in 0..pairs {
            // the weight of a missing last row is zero
            let (upper, lower) = (pair * 2, (pair * 2 + 1).min(rows - 1));
            // SAFETY: the caller promises `rows` rows of `out.len()` bytes.
            unsafe {
                let upper = load(from.add(upper * source.stride + offset));
                let lower = load(from.add(lower * source.stride + offset));
                let weights = weights.add(pair * WORDS);
                let mixed = _mm256_unpacklo_epi8(upper, lower);
                add::<WORDS>(&mut left, widen(mixed), weights);
                let mixed = _mm256_unpackhi_epi8(upper, lower);
                add::<WORDS>(&mut right, widen(mixed), weights);
            }
        }
        let left = round::<WORDS>(left, axis.precision);
        let right = round::<WORDS>(right, axis.precision);
        let left = _mm256_packs_epi32(left[0], left[1]);
        let right = _mm256_packs_epi32(right[0], right[1]);
        // SAFETY: `offset + WIDTH <= out.len()`.
        unsafe {
            let at = out.as_mut_ptr().add(offset).cast();
            _mm256_storeu_si256(at, _mm256_packus_epi16(left, right));
        }
        start += WIDTH;
    }
}

/// Bytes to 16 bits, the lower and the upper eight of each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn widen(bytes: __m256i) -> [__m256i; 2] {
    let zero = _mm256_setzero_si256();
    [_mm256_unpacklo_epi8(bytes, zero), _mm256_unpackhi_epi8(bytes, zero)]
}

/// Adds pixels times weights, two products to a sum.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add<const WORDS: usize>(
    sums: &mut [[__m256i; 2]; WORDS],
    pixels: [__m256i; 2],
    weights: *const i32,
) {
    for (word, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller promises WORDS words.
        let weight = _mm256_set1_epi32(unsafe { weights.add(word).read() });
        for (sum, pixels) in sums.iter_mut().zip(pixels) {
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pixels, weight));
        }
    }
}

/// Joins the parts of a sum, adds one half and drops the fraction.
#[inline]
#[target_feature(enable = "avx2")]
fn round<const WORDS: usize>(sums: [[__m256i; 2]; WORDS], precision: u32) -> [__m256i; 2] {
    let half = _mm256_set1_epi32(1 << (precision - 1));
    let bits = _mm_cvtsi32_si128(precision as i32);
    let mut rounded = sums[0];
    for (sum, high) in rounded.iter_mut().zip(sums[WORDS - 1]) {
        *sum = _mm256_add_epi32(*sum, half);
        if WORDS == 2 {
            *sum = _mm256_add_epi32(*sum, _mm256_slli_epi32::<8>(high));
        }
        *sum = _mm256_sra_epi32(*sum, bits);
    }
    rounded
}

#[inline]
#[target_feature(enable = "avx2")]
fn shuffle(rows: [__m256i; 2], order: __m256i) -> [__m256i; 2] {
    [_mm256_shuffle_epi8(rows[0], order), _mm256_shuffle_epi8(rows[1], order)]
}

/// Four pixels of two rows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn quad(upper: *const u8, lower: *const u8, offset: usize) -> __m256i {
    // SAFETY: the caller promises 16 bytes in each row.
    unsafe {
        let upper = _mm_loadu_si128(upper.add(offset).cast());
        let lower = _mm_loadu_si128(lower.add(offset).cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(upper), lower)
    }
}

/// Two pixels of two rows.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pair(upper: *const u8, lower: *const u8, offset: usize) -> __m256i {
    // SAFETY: the caller promises 8 bytes in each row.
    unsafe {
        let upper = _mm_loadl_epi64(upper.add(offset).cast());
        let lower = _mm_loadl_epi64(lower.add(offset).cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(upper), lower)
    }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(place: *const u8) -> __m256i {
    // SAFETY: the caller promises 32 bytes.
    unsafe { _mm256_loadu_si256(place.cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn both(half: __m128i) -> __m256i {
    _mm256_broadcastsi128_si256(half)
}
