//! Pixels to patches on NEON, for patches of at least eight pixels.
//!
//! A load parts eight interleaved pixels by channel. A row of a patch is written in steps of eight
//! values, of which the last begins eight before the row's end: it overlaps the one before where the
//! side is no multiple of eight, so nothing is written outside the row. Stores past the cache are left
//! to the processor: those with NEON notice long runs of whole lines by themselves and do not read
//! them first.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::aarch64::{
    float32x4_t, uint8x8_t, uint16x4_t, uint32x4_t, vaddq_u32, vandq_u32, vcombine_u16,
    vcvtq_f32_u32, vdivq_f32, vdupq_n_f32, vdupq_n_u32, vfmaq_f32, vfmsq_f32, vget_low_u16,
    vld3_u8, vmovl_high_u16, vmovl_u8, vmovl_u16, vmulq_f32, vreinterpretq_u32_f32, vshrn_n_u32,
    vshrq_n_u32, vst1_u8, vst1q_f32, vst1q_u16, vsubq_f32,
};

use super::passes::Rows;
use super::patchify::Patchify;
use super::values::Values;
use crate::simd::Neon;

/// Values of one step.
const STEP: usize = 8;

/// As the scalar strip, for patches of at least one step; says whether these are.
pub(super) fn strip(_: Neon, patchify: &Patchify, strip: Rows<'_>, out: &mut [u8]) -> bool {
    let (patch, merge) = (patchify.patch, patchify.merge);
    if patch < STEP {
        return false;
    }
    let patches = out.len() / patchify.row_bytes();
    let width = patches / merge * patch * 3;
    assert!(
        patches.is_multiple_of(merge * merge)
            && (patchify.strip_height() - 1) * strip.stride + width <= strip.bytes.len(),
        "the strip holds the pixels of all patches"
    );
    // SAFETY: the proof says that NEON is there; the assertion, that all pixels are.
    unsafe {
        match &patchify.values {
            Values::F32(_) => patches_of::<4>(patchify, strip, out),
            Values::Bf16(_) => patches_of::<2>(patchify, strip, out),
            Values::U8(_) => patches_of::<1>(patchify, strip, out),
        }
    }
    true
}

/// `(u / unit - mean) / std` in all lanes.
#[derive(Clone, Copy)]
struct Channel {
    unit: Option<float32x4_t>,
    mean: float32x4_t,
    std: float32x4_t,
    inverse: Option<float32x4_t>,
}

#[target_feature(enable = "neon")]
unsafe fn patches_of<const BYTES: usize>(patchify: &Patchify, strip: Rows<'_>, out: &mut [u8]) {
    let formula = &patchify.formula;
    let channels: [Channel; 3] = std::array::from_fn(|channel| Channel {
        unit: formula.unit.map(|unit| vdupq_n_f32(unit)),
        mean: vdupq_n_f32(formula.mean[channel]),
        std: vdupq_n_f32(formula.std[channel]),
        inverse: formula.inverse.map(|inverse| vdupq_n_f32(inverse[channel])),
    });
    let (patch, copies) = (patchify.patch, patchify.copies);
    let (line, frame) = (patch * BYTES, patch * patch * BYTES);
    for (index, out) in out.chunks_exact_mut(patchify.row_bytes()).enumerate() {
        let (x, y) = patchify.corner(index);
        let corner = &strip.bytes[y * strip.stride + x * 3..];
        for row in 0..patch {
            for step in (0..patch).step_by(STEP) {
                let first = step.min(patch - STEP);
                // SAFETY: the caller promises `patch` pixels in each of the rows of the patch.
                let planes =
                    unsafe { vld3_u8(corner.as_ptr().add(row * strip.stride + first * 3)) };
                let planes = [planes.0, planes.1, planes.2];
                for (channel, (plane, formula)) in planes.into_iter().zip(channels).enumerate() {
                    let at = channel * copies * frame + row * line + first * BYTES;
                    // SAFETY: `out` holds 3 channels of `copies` frames of `patch` lines.
                    unsafe {
                        store::<BYTES>(plane, formula, out.as_mut_ptr().add(at), copies, frame)
                    };
                }
            }
        }
    }
}

/// Writes what eight bytes of a channel become, `copies` times at a distance of `frame` bytes.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store<const BYTES: usize>(
    plane: uint8x8_t,
    channel: Channel,
    at: *mut u8,
    copies: usize,
    frame: usize,
) {
    let places = (0..copies).map(|copy| copy * frame);
    if BYTES == 1 {
        for place in places {
            // SAFETY: the caller promises room for eight values.
            unsafe { vst1_u8(at.add(place), plane) };
        }
        return;
    }
    let words = vmovl_u8(plane);
    let low = normalise(vmovl_u16(vget_low_u16(words)), channel);
    let high = normalise(vmovl_high_u16(words), channel);
    if BYTES == 2 {
        let line = vcombine_u16(bf16(low), bf16(high));
        for place in places {
            // SAFETY: as above.
            unsafe { vst1q_u16(at.add(place).cast(), line) };
        }
        return;
    }
    for place in places {
        // SAFETY: as above.
        unsafe {
            vst1q_f32(at.add(place).cast(), low);
            vst1q_f32(at.add(place + 16).cast(), high);
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn normalise(bytes: uint32x4_t, channel: Channel) -> float32x4_t {
    let values = vcvtq_f32_u32(bytes);
    let values = match channel.unit {
        Some(unit) => vdivq_f32(values, unit),
        None => values,
    };
    let values = vsubq_f32(values, channel.mean);
    match channel.inverse {
        Some(inverse) => {
            let nearly = vmulq_f32(values, inverse);
            let left = vfmsq_f32(values, nearly, channel.std);
            vfmaq_f32(nearly, left, inverse)
        }
        None => vdivq_f32(values, channel.std),
    }
}

/// Rounded to nearest even.
#[inline]
#[target_feature(enable = "neon")]
fn bf16(values: float32x4_t) -> uint16x4_t {
    let bits = vreinterpretq_u32_f32(values);
    let even = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
    vshrn_n_u32::<16>(vaddq_u32(bits, vaddq_u32(even, vdupq_n_u32(0x7fff))))
}
