//! Pixels to patches on AVX-512, for patches of 16 pixels.
//!
//! One permutation parts a row of 16 pixels into its channels. What is written is whole cache lines:
//! a row of 16 f32, two of bf16, four of bytes. Division is multiplication by the inverse with one
//! correction, where [`Formula`](super::values::Formula) found that to give every value exactly.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::x86_64::{
    __m128i, __m512, __m512bh, __m512i, _mm512_castps_si512, _mm512_castsi512_si128,
    _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtne2ps_pbh, _mm512_div_ps,
    _mm512_extracti32x4_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_si512,
    _mm512_maskz_loadu_epi8, _mm512_mul_ps, _mm512_permutexvar_epi8, _mm512_set1_ps,
    _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_stream_si512,
    _mm512_sub_ps,
};

use std::mem::transmute;

use super::passes::Rows;
use super::patchify::Patchify;
use super::values::Values;
use crate::simd::Avx512;

/// Side of a patch.
const P: usize = 16;
/// Bytes of a row of a patch.
const ROW: usize = 3 * P;
/// Bytes of a cache line, and of a register.
const LINE: usize = 64;

/// As the scalar strip, for patches of 16 pixels; says whether these are.
pub(super) fn strip(
    _: Avx512,
    patchify: &Patchify,
    strip: Rows<'_>,
    out: &mut [u8],
    stream: bool,
) -> bool {
    if patchify.patch != P || patchify.values.has_subnormals() {
        return false;
    }
    let patches = out.len() / patchify.row_bytes();
    let width = patches / patchify.merge * ROW;
    assert!(
        patches.is_multiple_of(patchify.merge * patchify.merge)
            && (patchify.strip_height() - 1) * strip.stride + width <= strip.bytes.len(),
        "the strip holds the pixels of all patches"
    );
    let stream = stream && out.as_ptr().addr().is_multiple_of(LINE);
    // SAFETY: the proof says that AVX-512 is there; the assertion, that all pixels are; a patch is
    // whole lines, so that all lines have the alignment of `out`.
    unsafe {
        match (&patchify.values, stream) {
            (Values::F32(_), true) => patches_of::<4, true>(patchify, strip, out),
            (Values::F32(_), false) => patches_of::<4, false>(patchify, strip, out),
            (Values::Bf16(_), true) => patches_of::<2, true>(patchify, strip, out),
            (Values::Bf16(_), false) => patches_of::<2, false>(patchify, strip, out),
            (Values::U8(_), true) => patches_of::<1, true>(patchify, strip, out),
            (Values::U8(_), false) => patches_of::<1, false>(patchify, strip, out),
        }
    }
    true
}

/// `(u / unit - mean) / std` in all lanes.
struct Channel {
    unit: Option<__m512>,
    mean: __m512,
    std: __m512,
    inverse: Option<__m512>,
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512bf16")]
unsafe fn patches_of<const BYTES: usize, const STREAM: bool>(
    patchify: &Patchify,
    strip: Rows<'_>,
    out: &mut [u8],
) {
    let formula = &patchify.formula;
    let channels: [Channel; 3] = std::array::from_fn(|channel| Channel {
        unit: formula.unit.map(|unit| _mm512_set1_ps(unit)),
        mean: _mm512_set1_ps(formula.mean[channel]),
        std: _mm512_set1_ps(formula.std[channel]),
        inverse: formula.inverse.map(|inverse| _mm512_set1_ps(inverse[channel])),
    });
    // SAFETY: the table has 64 bytes.
    let order = unsafe { _mm512_loadu_si512(const { order() }.as_ptr().cast()) };
    // rows that make a line
    let step = 4 / BYTES;
    let frame = P * P * BYTES;
    for (index, out) in out.chunks_exact_mut(patchify.row_bytes()).enumerate() {
        let (x, y) = patchify.corner(index);
        let corner = &strip.bytes[y * strip.stride + x * 3..];
        for row in (0..P).step_by(step) {
            let part = |row: usize| {
                // SAFETY: the caller promises 16 pixels in each of the 16 rows.
                let pixels = unsafe {
                    let at = corner.as_ptr().add(row * strip.stride);
                    _mm512_maskz_loadu_epi8((1 << ROW) - 1, at.cast())
                };
                _mm512_permutexvar_epi8(order, pixels)
            };
            // no closures in what is inlined from elsewhere: that lacks the features of this function
            let mut lines = [_mm512_setzero_si512(); 3];
            if BYTES == 1 {
                lines = bytes([part(row), part(row + 1), part(row + 2), part(row + 3)]);
            } else if BYTES == 2 {
                let (upper, lower) = (planes(part(row)), planes(part(row + 1)));
                for (channel, line) in lines.iter_mut().enumerate() {
                    let upper = normalise(upper[channel], &channels[channel]);
                    let lower = normalise(lower[channel], &channels[channel]);
                    // SAFETY: both are 64 bytes of plain numbers.
                    *line = unsafe {
                        transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(lower, upper))
                    };
                }
            } else {
                let planes = planes(part(row));
                for (channel, line) in lines.iter_mut().enumerate() {
                    *line = _mm512_castps_si512(normalise(planes[channel], &channels[channel]));
                }
            }
            for (channel, line) in lines.into_iter().enumerate() {
                for copy in 0..patchify.copies {
                    let offset = (channel * patchify.copies + copy) * frame + row * P * BYTES;
                    // SAFETY: `out` holds 3 channels of `copies` frames of 16 rows; the caller
                    // promises their alignment if STREAM.
                    unsafe { put::<STREAM>(out.as_mut_ptr().add(offset), line) };
                }
            }
        }
    }
}

/// Red, then green, then blue of 16 pixels; the rest does not matter.
const fn order() -> [u8; LINE] {
    let mut order = [0; LINE];
    let mut byte = 0;
    while byte < ROW {
        order[byte] = (byte % P * 3 + byte / P) as u8;
        byte += 1;
    }
    order
}

/// The channels of a row.
#[inline]
#[target_feature(enable = "avx512f")]
fn planes(row: __m512i) -> [__m128i; 3] {
    [
        _mm512_castsi512_si128(row),
        _mm512_extracti32x4_epi32::<1>(row),
        _mm512_extracti32x4_epi32::<2>(row),
    ]
}

/// A line of each channel from four rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn bytes([a, b, c, d]: [__m512i; 4]) -> [__m512i; 3] {
    // red and green of two rows each, then blue
    let upper = _mm512_shuffle_i32x4::<0b01_00_01_00>(a, b);
    let lower = _mm512_shuffle_i32x4::<0b01_00_01_00>(c, d);
    let blue = _mm512_shuffle_i32x4::<0b10_10_10_10>(a, b);
    let more = _mm512_shuffle_i32x4::<0b10_10_10_10>(c, d);
    [
        _mm512_shuffle_i32x4::<0b10_00_10_00>(upper, lower),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(upper, lower),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(blue, more),
    ]
}

/// 16 bytes, normalised.
#[inline]
#[target_feature(enable = "avx512f")]
fn normalise(bytes: __m128i, channel: &Channel) -> __m512 {
    let mut values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    if let Some(unit) = channel.unit {
        values = _mm512_div_ps(values, unit);
    }
    values = _mm512_sub_ps(values, channel.mean);
    match channel.inverse {
        Some(inverse) => {
            let nearly = _mm512_mul_ps(values, inverse);
            let left = _mm512_fnmadd_ps(nearly, channel.std, values);
            _mm512_fmadd_ps(left, inverse, nearly)
        }
        None => _mm512_div_ps(values, channel.std),
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn put<const STREAM: bool>(at: *mut u8, line: __m512i) {
    // SAFETY: the caller promises 64 bytes, aligned if STREAM.
    unsafe {
        if STREAM {
            _mm512_stream_si512(at.cast(), line);
        } else {
            _mm512_storeu_si512(at.cast(), line);
        }
    }
}
