//! From brightness and colour to RGB on AVX-512: the same integers as the scalar code, 64 pixels at a time.
//!
//! As on AVX2 ([`super::colours_avx2`]), where the factors are explained; but pixels of three bytes are made by
//! permutations of whole registers, and green by dot products.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::x86_64::{
    __m512i, _mm256_loadu_si256, _mm512_add_epi16, _mm512_and_si512, _mm512_cvtepu8_epi16,
    _mm512_dpwssd_epi32, _mm512_loadu_si512, _mm512_mask_permutexvar_epi8, _mm512_mulhrs_epi16,
    _mm512_packs_epi32, _mm512_packus_epi16, _mm512_permutexvar_epi8, _mm512_set1_epi16,
    _mm512_set1_epi32, _mm512_srai_epi16, _mm512_srai_epi32, _mm512_srli_epi16,
    _mm512_storeu_si512, _mm512_unpackhi_epi16, _mm512_unpacklo_epi16,
};

use super::colours::{Chroma, Row};
use super::colours_avx2::{BLUE, GREEN, GREEN_HALF, RED};
use crate::simd::Avx512;

/// Pixels made at a time, and bytes that a register holds.
const PIXELS: usize = 64;
/// 16-bit numbers that it holds.
const LANES: usize = 32;

/// As [`super::colours::mix`].
pub(super) fn mix(_: Avx512, row: &Row<'_>, sums: [&[u16]; 2], out: &mut [u8]) {
    let blocks = out.len().div_ceil(3).next_multiple_of(PIXELS);
    assert!(blocks <= row.luma.len(), "there is a sample for each pixel");
    assert!(sums.iter().all(|sums| blocks / 2 + 2 <= sums.len()), "and sums around them");
    // SAFETY: the proof says that AVX-512 is there; the assertions, that what is read lies within.
    unsafe { mix_blocks(row, sums, out) }
}

/// As `weigh` in [`super::colours`] does without SIMD.
pub(super) fn weigh(_: Avx512, chroma: &Chroma<'_>, out: &mut [u16]) {
    let count = out.len();
    assert!(count.is_multiple_of(LANES), "rows are whole blocks");
    assert!(count <= chroma.near.len() && count <= chroma.far.len(), "there are as many samples");
    // SAFETY: the proof says that AVX-512 is there; the assertions, that what is read lies within.
    unsafe { weigh_row(chroma, out) }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn weigh_row(chroma: &Chroma<'_>, out: &mut [u16]) {
    for at in (0..out.len()).step_by(LANES) {
        // SAFETY: the caller says that 32 samples and sums lie there.
        unsafe {
            let samples =
                |row: &[u8]| _mm512_cvtepu8_epi16(_mm256_loadu_si256(row.as_ptr().add(at).cast()));
            let (near, far) = (samples(chroma.near), samples(chroma.far));
            let sum = _mm512_add_epi16(_mm512_add_epi16(near, near), _mm512_add_epi16(near, far));
            _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), sum);
        }
    }
}

/// Where the pixels are, of which 64 bytes of the result are made: that many are before them. Packing puts eight
/// left pixels before eight right ones.
const fn order(before: usize) -> [u8; PIXELS] {
    let (mut order, mut at) = ([0; PIXELS], 0);
    while at < PIXELS {
        let pixel = (before + at) / 3;
        order[at] = (pixel / 16 * 16 + pixel % 2 * 8 + pixel % 16 / 2) as u8;
        at += 1;
    }
    order
}

/// Which of them are of a colour.
const fn bytes_of(colour: usize, before: usize) -> u64 {
    let (mut bytes, mut at) = (0, 0);
    while at < PIXELS {
        bytes |= (((before + at) % 3 == colour) as u64) << at;
        at += 1;
    }
    bytes
}

static ORDER: [[u8; PIXELS]; 3] = [order(0), order(PIXELS), order(2 * PIXELS)];
const GREENS: [u64; 3] = [bytes_of(1, 0), bytes_of(1, PIXELS), bytes_of(1, 2 * PIXELS)];
const BLUES: [u64; 3] = [bytes_of(2, 0), bytes_of(2, PIXELS), bytes_of(2, 2 * PIXELS)];

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
unsafe fn mix_blocks(row: &Row<'_>, sums: [&[u16]; 2], out: &mut [u8]) {
    // What is added before the division makes colours lie around 0 too.
    let rounding = |it: i16| _mm512_set1_epi16(it - (128 << 4));
    let (left, right) = (rounding(row.rounding.left), rounding(row.rounding.right));
    let mut last = [0; PIXELS * 3];
    for (block, out) in out.chunks_mut(PIXELS * 3).enumerate() {
        let at = block * PIXELS;
        // SAFETY: the caller says that 64 samples and 34 sums lie there.
        let (luma, blue, red) = unsafe {
            let luma = _mm512_loadu_si512(row.luma.as_ptr().add(at).cast());
            let colour = |sums: &[u16]| spread(sums.as_ptr().add(at / 2), left, right);
            (luma, colour(sums[0]), colour(sums[1]))
        };
        let lefts = rgb(_mm512_and_si512(luma, _mm512_set1_epi16(0xff)), blue.0, red.0);
        let rights = rgb(_mm512_srli_epi16::<8>(luma), blue.1, red.1);
        let colours = (
            _mm512_packus_epi16(lefts.0, rights.0),
            _mm512_packus_epi16(lefts.1, rights.1),
            _mm512_packus_epi16(lefts.2, rights.2),
        );
        // Only the last block may be less than whole.
        if let Ok(out) = <&mut [u8; PIXELS * 3]>::try_from(&mut *out) {
            interleave(colours, out);
        } else {
            interleave(colours, &mut last);
            out.copy_from_slice(&last[..out.len()]);
        }
    }
}

/// Colours of 32 left pixels and of the right ones beside them, of the 34 sums there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn spread(sums: *const u16, left: __m512i, right: __m512i) -> (__m512i, __m512i) {
    // SAFETY: the caller says that they are there.
    let (before, own, after) = unsafe {
        let sums = |from: usize| _mm512_loadu_si512(sums.add(from).cast());
        (sums(0), sums(1), sums(2))
    };
    let own = _mm512_add_epi16(_mm512_add_epi16(own, own), own);
    let of = |next, rounding| {
        _mm512_srai_epi16::<4>(_mm512_add_epi16(_mm512_add_epi16(own, next), rounding))
    };
    (of(before, left), of(after, right))
}

/// As `rgb` in [`super::colours`], of 32 pixels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn rgb(luma: __m512i, blue: __m512i, red: __m512i) -> (__m512i, __m512i, __m512i) {
    let share = |colour, factor| {
        _mm512_mulhrs_epi16(_mm512_add_epi16(colour, colour), _mm512_set1_epi16(factor))
    };
    let green = |pairs| {
        let half = _mm512_set1_epi32(GREEN_HALF);
        _mm512_srai_epi32::<15>(_mm512_dpwssd_epi32(half, pairs, _mm512_set1_epi32(GREEN)))
    };
    let (low, high) = (_mm512_unpacklo_epi16(blue, red), _mm512_unpackhi_epi16(blue, red));
    (
        _mm512_add_epi16(luma, share(red, RED)),
        _mm512_add_epi16(luma, _mm512_packs_epi32(green(low), green(high))),
        _mm512_add_epi16(luma, share(blue, BLUE)),
    )
}

/// Writes pixels of three bytes, of 64 of each colour in the order of [`ORDER`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn interleave((red, green, blue): (__m512i, __m512i, __m512i), out: &mut [u8; PIXELS * 3]) {
    for (part, out) in out.chunks_exact_mut(PIXELS).enumerate() {
        // SAFETY: these are 64 bytes.
        let order = unsafe { _mm512_loadu_si512(ORDER[part].as_ptr().cast()) };
        let bytes = _mm512_permutexvar_epi8(order, red);
        let bytes = _mm512_mask_permutexvar_epi8(bytes, GREENS[part], order, green);
        let bytes = _mm512_mask_permutexvar_epi8(bytes, BLUES[part], order, blue);
        // SAFETY: it has as many bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), bytes) };
    }
}
