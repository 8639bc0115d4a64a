//! From brightness and colour to RGB on AVX2: the same integers as the scalar code, 32 pixels at a time.
//!
//! Left and right pixels stay apart, as 16-bit numbers, until they are bytes: packing them puts eight left ones
//! before eight right ones, and the shuffles that make pixels of three bytes take them from there. To round a
//! share of colour is one multiplication ([`RED`], [`BLUE`]): the factor in 15 bits gives all 256 values that
//! libjpeg's gives in 17.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cvtepu8_epi16, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_mulhrs_epi16, _mm256_or_si256, _mm256_packs_epi32, _mm256_packus_epi16,
    _mm256_permute2x128_si256, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_shuffle_epi8,
    _mm256_srai_epi16, _mm256_srai_epi32, _mm256_srli_epi16, _mm256_storeu_si256,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi16,
};

use super::colours::{Chroma, Row};
use crate::simd::Avx2;

/// Pixels made at a time.
const PIXELS: usize = 32;
/// 16-bit numbers that a register holds.
const LANES: usize = 16;

/// 1.402 in steps of 2⁻¹⁴: `(2 * x * RED + 2¹⁴) >> 15` is `(91881 * x + 2¹⁵) >> 16` for all colours.
pub(super) const RED: i16 = 22_971;
/// 1.772, the same.
pub(super) const BLUE: i16 = 29_033;
/// Blue's share of green and red's, halves of libjpeg's, next to each other in 32 bits: blue in the lower ones.
pub(super) const GREEN: i32 = 0x1_0000 * -23_401 + (0x1_0000 - 11_277);
/// Half a step of them.
pub(super) const GREEN_HALF: i32 = 1 << 14;

/// As [`super::colours::mix`].
pub(super) fn mix(_: Avx2, row: &Row<'_>, sums: [&[u16]; 2], out: &mut [u8]) {
    let blocks = out.len().div_ceil(3).next_multiple_of(PIXELS);
    assert!(blocks <= row.luma.len(), "there is a sample for each pixel");
    assert!(sums.iter().all(|sums| blocks / 2 + 2 <= sums.len()), "and sums around them");
    // SAFETY: the proof says that AVX2 is there; the assertions, that what is read lies within.
    unsafe { mix_blocks(row, sums, out) }
}

/// As `weigh` in [`super::colours`] does without SIMD.
pub(super) fn weigh(_: Avx2, chroma: &Chroma<'_>, out: &mut [u16]) {
    let count = out.len();
    assert!(count.is_multiple_of(LANES), "rows are whole blocks");
    assert!(count <= chroma.near.len() && count <= chroma.far.len(), "there are as many samples");
    // SAFETY: the proof says that AVX2 is there; the assertions, that what is read lies within.
    unsafe { weigh_row(chroma, out) }
}

#[target_feature(enable = "avx2")]
unsafe fn weigh_row(chroma: &Chroma<'_>, out: &mut [u16]) {
    for at in (0..out.len()).step_by(LANES) {
        // SAFETY: the caller says that 16 samples and sums lie there.
        unsafe {
            let samples =
                |row: &[u8]| _mm256_cvtepu8_epi16(_mm_loadu_si128(row.as_ptr().add(at).cast()));
            let (near, far) = (samples(chroma.near), samples(chroma.far));
            let sum = _mm256_add_epi16(_mm256_add_epi16(near, near), _mm256_add_epi16(near, far));
            _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), sum);
        }
    }
}

/// Which bytes of one colour are in 16 bytes of the result, of which that many of 48 are before them.
const fn order(before: usize, colour: usize) -> [u8; 16] {
    let (mut order, mut at) = ([0x80; 16], 0);
    while at < 16 {
        let byte = before + at;
        let pixel = byte / 3;
        if byte % 3 == colour {
            order[at] = (pixel % 2 * 8 + pixel / 2) as u8;
        }
        at += 1;
    }
    order
}

/// For each 16 bytes of the result and each colour.
static ORDER: [[[u8; 16]; 3]; 3] = [
    [order(0, 0), order(0, 1), order(0, 2)],
    [order(16, 0), order(16, 1), order(16, 2)],
    [order(32, 0), order(32, 1), order(32, 2)],
];

#[target_feature(enable = "avx2")]
unsafe fn mix_blocks(row: &Row<'_>, sums: [&[u16]; 2], out: &mut [u8]) {
    // What is added before the division makes colours lie around 0 too.
    let rounding = |it: i16| _mm256_set1_epi16(it - (128 << 4));
    let (left, right) = (rounding(row.rounding.left), rounding(row.rounding.right));
    let mut last = [0; PIXELS * 3];
    for (block, out) in out.chunks_mut(PIXELS * 3).enumerate() {
        let at = block * PIXELS;
        // SAFETY: the caller says that 32 samples and 18 sums lie there.
        let (luma, blue, red) = unsafe {
            let luma = _mm256_loadu_si256(row.luma.as_ptr().add(at).cast());
            let colour = |sums: &[u16]| spread(sums.as_ptr().add(at / 2), left, right);
            (luma, colour(sums[0]), colour(sums[1]))
        };
        let lefts = rgb(_mm256_and_si256(luma, _mm256_set1_epi16(0xff)), blue.0, red.0);
        let rights = rgb(_mm256_srli_epi16::<8>(luma), blue.1, red.1);
        let bytes = interleave(
            _mm256_packus_epi16(lefts.0, rights.0),
            _mm256_packus_epi16(lefts.1, rights.1),
            _mm256_packus_epi16(lefts.2, rights.2),
        );
        // Only the last block may be less than whole.
        if let Ok(out) = <&mut [u8; PIXELS * 3]>::try_from(&mut *out) {
            store(bytes, out);
        } else {
            store(bytes, &mut last);
            out.copy_from_slice(&last[..out.len()]);
        }
    }
}

/// Colours of 16 left pixels and of the right ones beside them, of the 18 sums there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn spread(sums: *const u16, left: __m256i, right: __m256i) -> (__m256i, __m256i) {
    // SAFETY: the caller says that they are there.
    let (before, own, after) = unsafe {
        let sums = |from: usize| _mm256_loadu_si256(sums.add(from).cast());
        (sums(0), sums(1), sums(2))
    };
    let own = _mm256_add_epi16(_mm256_add_epi16(own, own), own);
    let of = |next, rounding| {
        _mm256_srai_epi16::<4>(_mm256_add_epi16(_mm256_add_epi16(own, next), rounding))
    };
    (of(before, left), of(after, right))
}

/// As `rgb` in [`super::colours`], of 16 pixels.
#[inline]
#[target_feature(enable = "avx2")]
fn rgb(luma: __m256i, blue: __m256i, red: __m256i) -> (__m256i, __m256i, __m256i) {
    let share = |colour, factor| {
        _mm256_mulhrs_epi16(_mm256_add_epi16(colour, colour), _mm256_set1_epi16(factor))
    };
    let green = |pairs| {
        let shares = _mm256_madd_epi16(pairs, _mm256_set1_epi32(GREEN));
        _mm256_srai_epi32::<15>(_mm256_add_epi32(shares, _mm256_set1_epi32(GREEN_HALF)))
    };
    let (low, high) = (_mm256_unpacklo_epi16(blue, red), _mm256_unpackhi_epi16(blue, red));
    (
        _mm256_add_epi16(luma, share(red, RED)),
        _mm256_add_epi16(luma, _mm256_packs_epi32(green(low), green(high))),
        _mm256_add_epi16(luma, share(blue, BLUE)),
    )
}

/// Pixels of three bytes, of 32 of each colour, in each half eight left ones before eight right ones.
#[inline]
#[target_feature(enable = "avx2")]
fn interleave(red: __m256i, green: __m256i, blue: __m256i) -> [__m256i; 3] {
    let of = |colour, order: &[u8; 16]| {
        // SAFETY: these are 16 bytes.
        let order = unsafe { _mm_loadu_si128(order.as_ptr().cast()) };
        _mm256_shuffle_epi8(colour, _mm256_broadcastsi128_si256(order))
    };
    let part = |order: &[[u8; 16]; 3]| {
        let red_green = _mm256_or_si256(of(red, &order[0]), of(green, &order[1]));
        _mm256_or_si256(red_green, of(blue, &order[2]))
    };
    let (first, second, third) = (part(&ORDER[0]), part(&ORDER[1]), part(&ORDER[2]));
    [
        _mm256_permute2x128_si256::<0x20>(first, second),
        _mm256_permute2x128_si256::<0x30>(third, first),
        _mm256_permute2x128_si256::<0x31>(second, third),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(bytes: [__m256i; 3], out: &mut [u8; PIXELS * 3]) {
    for (bytes, out) in bytes.into_iter().zip(out.chunks_exact_mut(32)) {
        // SAFETY: it has as many bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), bytes) };
    }
}
