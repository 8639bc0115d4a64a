//! Pixels to patches on AVX2, for patches of 14 and 16 pixels.
//!
//! One row of a patch is three registers of interleaved bytes; nine byte shuffles part them into
//! one register per channel. A row of `P` values is written as two halves of eight that begin at 0
//! and at `P - 8`: they overlap where `P` is 14 and meet where it is 16, so nothing is written
//! outside the row. A row of 16 f32 is one cache line; large outputs are stored past the cache,
//! which saves reading them first.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_loadu_si128, _mm_or_si128, _mm_setzero_si128, _mm_sfence,
    _mm_shuffle_epi8, _mm_srli_si128, _mm_storel_epi64, _mm_storeu_si128, _mm256_add_epi32,
    _mm256_and_si256, _mm256_castps_si256, _mm256_castsi128_si256, _mm256_castsi256_si128,
    _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_div_ps, _mm256_extracti128_si256,
    _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_mul_ps, _mm256_packus_epi32,
    _mm256_permute4x64_epi64, _mm256_set_m128i, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_srli_epi32, _mm256_storeu_si256, _mm256_stream_si256, _mm256_sub_ps,
};

use super::passes::Rows;
use super::patchify::Patchify;
use super::values::Values;
use crate::simd::Avx2;

/// As the scalar strip, for patches of 14 and 16 pixels; says whether these are.
pub(super) fn strip(
    _: Avx2,
    patchify: &Patchify,
    strip: Rows<'_>,
    out: &mut [u8],
    stream: bool,
) -> bool {
    let (patch, merge) = (patchify.patch, patchify.merge);
    if !matches!(patch, 14 | 16) {
        return false;
    }
    let patches = out.len() / patchify.row_bytes();
    let width = patches / merge * patch * 3;
    assert!(
        patches.is_multiple_of(merge * merge)
            && (patchify.strip_height() - 1) * strip.stride + width <= strip.bytes.len(),
        "the strip holds the pixels of all patches"
    );
    let stream = stream && patch == 16 && out.as_ptr().addr().is_multiple_of(64);
    // SAFETY: the proof says that AVX2 is there; the assertion, that all pixels are; rows of 16
    // values of at least two bytes keep the alignment of `out` to 32 bytes.
    unsafe {
        match (&patchify.values, patch, stream) {
            (Values::F32(_), 16, true) => patches_of::<4, 16, true>(patchify, strip, out),
            (Values::F32(_), 16, false) => patches_of::<4, 16, false>(patchify, strip, out),
            (Values::F32(_), _, _) => patches_of::<4, 14, false>(patchify, strip, out),
            (Values::Bf16(_), 16, true) => patches_of::<2, 16, true>(patchify, strip, out),
            (Values::Bf16(_), 16, false) => patches_of::<2, 16, false>(patchify, strip, out),
            (Values::Bf16(_), _, _) => patches_of::<2, 14, false>(patchify, strip, out),
            (Values::U8(_), 16, true) => patches_of::<1, 16, true>(patchify, strip, out),
            (Values::U8(_), 16, false) => patches_of::<1, 16, false>(patchify, strip, out),
            (Values::U8(_), _, _) => patches_of::<1, 14, false>(patchify, strip, out),
        }
    }
    true
}

/// Orders streaming stores before whatever makes `out` known to others.
pub(super) fn fence(_: Avx2) {
    // SAFETY: every x86-64 has `sfence`.
    unsafe { _mm_sfence() }
}

/// `(u / unit - mean) / std` in all lanes.
#[derive(Clone, Copy)]
struct Channel {
    unit: Option<__m256>,
    mean: __m256,
    std: __m256,
    inverse: Option<__m256>,
}

#[target_feature(enable = "avx2,fma")]
unsafe fn patches_of<const BYTES: usize, const P: usize, const STREAM: bool>(
    patchify: &Patchify,
    strip: Rows<'_>,
    out: &mut [u8],
) {
    let formula = &patchify.formula;
    let channels: [Channel; 3] = std::array::from_fn(|channel| Channel {
        unit: formula.unit.map(|unit| _mm256_set1_ps(unit)),
        mean: _mm256_set1_ps(formula.mean[channel]),
        std: _mm256_set1_ps(formula.std[channel]),
        inverse: formula.inverse.map(|inverse| _mm256_set1_ps(inverse[channel])),
    });
    let (line, frame) = (P * BYTES, P * P * BYTES);
    for (index, out) in out.chunks_exact_mut(patchify.row_bytes()).enumerate() {
        let (x, y) = patchify.corner(index);
        let corner = &strip.bytes[y * strip.stride + x * 3..];
        for row in (0..P).step_by(2) {
            // SAFETY: the caller promises `P` pixels in each of the `P` rows of the patch, and `P`
            // is even.
            let (upper, lower) = unsafe {
                let upper = corner.as_ptr().add(row * strip.stride);
                (part::<P>(upper), part::<P>(upper.add(strip.stride)))
            };
            for (channel, formula) in channels.iter().enumerate() {
                let upper = convert::<BYTES, P>(upper[channel], *formula);
                let lower = convert::<BYTES, P>(lower[channel], *formula);
                for copy in 0..patchify.copies {
                    // SAFETY: `out` holds 3 channels of `copies` frames of `P` lines.
                    unsafe {
                        let offset = (channel * patchify.copies + copy) * frame + row * line;
                        let at = out.as_mut_ptr().add(offset);
                        store::<BYTES, P, STREAM>(upper, at);
                        store::<BYTES, P, STREAM>(lower, at.add(line));
                    }
                }
            }
        }
    }
}

/// Red, green and blue of `P` pixels in a row, each in the low `P` bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn part<const P: usize>(row: *const u8) -> [__m128i; 3] {
    // SAFETY: the caller promises `3 * P` bytes; the last load ends with them.
    unsafe {
        let pieces = [row, row.add(16), row.add(3 * P - 16)];
        let orders = const { orders::<P>() };
        let mut planes = [_mm_setzero_si128(); 3];
        for (plane, orders) in planes.iter_mut().zip(&orders) {
            for (piece, order) in pieces.iter().zip(orders) {
                let bytes = _mm_loadu_si128(piece.cast());
                let order = _mm_loadu_si128(order.as_ptr().cast());
                *plane = _mm_or_si128(*plane, _mm_shuffle_epi8(bytes, order));
            }
        }
        planes
    }
}

/// For each channel and each of the three pieces of a row: which byte goes where (-1: none).
const fn orders<const P: usize>() -> [[[i8; 16]; 3]; 3] {
    let starts = [0, 16, 3 * P - 16];
    let mut orders = [[[-1; 16]; 3]; 3];
    let mut byte = 0;
    while byte < 3 * P {
        let piece = if byte < 16 {
            0
        } else if byte < 32 {
            1
        } else {
            2
        };
        orders[byte % 3][piece][byte / 3] = (byte - starts[piece]) as i8;
        byte += 1;
    }
    orders
}

/// What the bytes of one row and channel become, in two halves of eight values: a register each for
/// f32, a half of the first for the others.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn convert<const BYTES: usize, const P: usize>(plane: __m128i, channel: Channel) -> [__m256i; 2] {
    if BYTES == 1 && P == 16 {
        return [_mm256_castsi128_si256(plane); 2];
    }
    // the second half begins at value `P - 8`
    let second = if P == 16 { _mm_srli_si128::<8>(plane) } else { _mm_srli_si128::<6>(plane) };
    if BYTES == 1 {
        return [_mm256_set_m128i(second, plane); 2];
    }
    let (low, high) = (normalise(plane, channel), normalise(second, channel));
    if BYTES == 2 {
        let line = _mm256_packus_epi32(bf16(low), bf16(high));
        return [_mm256_permute4x64_epi64::<0b11_01_10_00>(line); 2];
    }
    [_mm256_castps_si256(low), _mm256_castps_si256(high)]
}

/// Writes the `P` values of a row.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const BYTES: usize, const P: usize, const STREAM: bool>(
    row: [__m256i; 2],
    at: *mut u8,
) {
    // SAFETY: the caller promises room for `P` values, aligned to 32 bytes if STREAM.
    unsafe {
        let second = at.add((P - 8) * BYTES);
        let (low, high) = (_mm256_castsi256_si128(row[0]), _mm256_extracti128_si256::<1>(row[0]));
        match BYTES {
            1 if P == 16 => _mm_storeu_si128(at.cast(), low),
            1 => {
                _mm_storel_epi64(at.cast(), low);
                _mm_storel_epi64(second.cast(), high);
            }
            2 if P == 16 => put::<STREAM>(at, row[0]),
            2 => {
                _mm_storeu_si128(at.cast(), low);
                _mm_storeu_si128(second.cast(), high);
            }
            _ => {
                put::<STREAM>(at, row[0]);
                put::<STREAM>(second, row[1]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn put<const STREAM: bool>(at: *mut u8, value: __m256i) {
    // SAFETY: the caller promises 32 bytes, aligned if STREAM.
    unsafe {
        if STREAM {
            _mm256_stream_si256(at.cast(), value);
        } else {
            _mm256_storeu_si256(at.cast(), value);
        }
    }
}

/// The low eight bytes, normalised.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn normalise(bytes: __m128i, channel: Channel) -> __m256 {
    let values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    let values = match channel.unit {
        Some(unit) => _mm256_div_ps(values, unit),
        None => values,
    };
    let values = _mm256_sub_ps(values, channel.mean);
    match channel.inverse {
        Some(inverse) => {
            let nearly = _mm256_mul_ps(values, inverse);
            let left = _mm256_fnmadd_ps(nearly, channel.std, values);
            _mm256_fmadd_ps(left, inverse, nearly)
        }
        None => _mm256_div_ps(values, channel.std),
    }
}

/// Rounded to nearest even, in the low half of each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn bf16(values: __m256) -> __m256i {
    let bits = _mm256_castps_si256(values);
    let even = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
    _mm256_srli_epi32::<16>(rounded)
}
