//! The two passes of the resize on NEON: the same integers as the scalar code, in other lanes.
//!
//! A pixel is four lanes of 32 bits, red, green, blue and one that stays zero; its 8-bit values are
//! widened and multiplied by a weight that all lanes share. Weights of torchvision fit 16 bits, so that
//! the multiplication widens by itself; Pillow's, of 22, take 32-bit products.
#![expect(unsafe_code, reason = "SIMD loads and stores take pointers")]

use std::arch::aarch64::{
    int16x4_t, int16x8_t, int32x4_t, uint8x16_t, vcombine_s32, vcombine_u8, vcombine_u16,
    vdup_n_s32, vdup_n_u8, vdupq_n_s32, vget_high_s16, vget_lane_u32, vget_low_s16, vget_low_u8,
    vld1_s32, vld1_u8, vld1q_s32, vld1q_u8, vmlal_lane_s16, vmlal_n_s16, vmlaq_laneq_s32,
    vmlaq_n_s32, vmovl_high_u8, vmovl_s16, vmovl_u8, vmovn_s32, vqmovn_u16, vqmovun_s32,
    vqtbl1q_u8, vreinterpret_u32_u8, vreinterpretq_s16_u16, vshlq_s32, vst1q_u8,
};

use super::axis::Axis;
use super::passes::{Rows, SLACK};
use crate::simd::Neon;

/// Rows that the kernel takes across at a time.
const ROWS: usize = 4;
/// Bytes that hold four pixels as the kernel loads them.
const QUAD: usize = 16;
/// Bytes that hold two.
const PAIR: usize = 8;
/// Bytes of a row that one downward step makes.
const WIDTH: usize = 32;
/// Four pixels of three bytes, spread to four bytes each.
const SPREAD: [u8; 16] = [0, 1, 2, 255, 3, 4, 5, 255, 6, 7, 8, 255, 9, 10, 11, 255];

/// As [`super::passes::horizontal`], for as many pixels from the left as it may read ahead for;
/// says how many.
pub(super) fn horizontal(
    _: Neon,
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
        // SAFETY: the proof says that NEON is there. For each of `pixels`, every row has `reach`
        // bytes from its start on, and room for its three bytes and one more in `out`.
        unsafe {
            match axis.words() {
                1 => horizontal_rows::<false>(axis, pixels, from, to),
                _ => horizontal_rows::<true>(axis, pixels, from, to),
            }
        }
    }
    pixels
}

#[target_feature(enable = "neon")]
unsafe fn horizontal_rows<const WIDE: bool>(
    axis: &Axis,
    pixels: usize,
    from: [*const u8; ROWS],
    to: [*mut u8; ROWS],
) {
    let (quads, pairs) = (axis.taps / 4, axis.taps / 2 % 2);
    // SAFETY: there are 16 bytes.
    let spread = unsafe { vld1q_u8(SPREAD.as_ptr()) };
    let half = half(axis);
    let mut weights = axis.weights.as_ptr();
    for (pixel, start) in axis.starts[..pixels].iter().enumerate() {
        let mut offset = *start as usize * 3;
        let mut sums = [half; ROWS];
        // SAFETY: there are `taps` weights for every pixel; the caller promises the pixels.
        unsafe {
            for _ in 0..quads {
                let four = vld1q_s32(weights);
                for (sum, from) in sums.iter_mut().zip(from) {
                    let bytes = vqtbl1q_u8(vld1q_u8(from.add(offset)), spread);
                    let [left, right] = widen(bytes);
                    *sum = add_pair::<WIDE, 0, 1>(*sum, left, four);
                    *sum = add_pair::<WIDE, 2, 3>(*sum, right, four);
                }
                weights = weights.add(4);
                offset += 12;
            }
            if pairs == 1 {
                let two = vcombine_s32(vld1_s32(weights), vdup_n_s32(0));
                for (sum, from) in sums.iter_mut().zip(from) {
                    let bytes = vcombine_u8(vld1_u8(from.add(offset)), vdup_n_u8(0));
                    let [pixels, _] = widen(vqtbl1q_u8(bytes, spread));
                    *sum = add_pair::<WIDE, 0, 1>(*sum, pixels, two);
                }
                weights = weights.add(2);
            }
        }
        for (sum, to) in sums.into_iter().zip(to) {
            let value = vget_lane_u32::<0>(vreinterpret_u32_u8(vget_low_u8(finish(
                [sum; 4],
                axis.precision,
            ))));
            // SAFETY: the caller promises room for four bytes from here.
            unsafe { to.add(pixel * 3).cast::<u32>().write_unaligned(value) };
        }
    }
}

/// Adds two pixels, each times its weight.
#[inline]
#[target_feature(enable = "neon")]
fn add_pair<const WIDE: bool, const FIRST: i32, const SECOND: i32>(
    sum: int32x4_t,
    pixels: int16x8_t,
    weights: int32x4_t,
) -> int32x4_t {
    let (first, second) = (vget_low_s16(pixels), vget_high_s16(pixels));
    if WIDE {
        let sum = vmlaq_laneq_s32::<FIRST>(sum, vmovl_s16(first), weights);
        return vmlaq_laneq_s32::<SECOND>(sum, vmovl_s16(second), weights);
    }
    let weights: int16x4_t = vmovn_s32(weights);
    vmlal_lane_s16::<SECOND>(vmlal_lane_s16::<FIRST>(sum, first, weights), second, weights)
}

/// As [`super::passes::vertical`], for rows of at least one step; says whether this is one.
pub(super) fn vertical(_: Neon, axis: &Axis, to: usize, source: Rows<'_>, out: &mut [u8]) -> bool {
    if out.len() < WIDTH {
        return false;
    }
    let rows = axis.span(to).len();
    assert!((rows - 1) * source.stride + out.len() <= source.bytes.len(), "all taps are there");
    // SAFETY: the proof says that NEON is there; `rows` rows of `out.len()` bytes are in `source`.
    unsafe {
        match axis.words() {
            1 => vertical_row::<false>(axis, to, source, out),
            _ => vertical_row::<true>(axis, to, source, out),
        }
    }
    true
}

#[target_feature(enable = "neon")]
unsafe fn vertical_row<const WIDE: bool>(axis: &Axis, to: usize, source: Rows<'_>, out: &mut [u8]) {
    let half = half(axis);
    let mut start = 0;
    while start < out.len() {
        // the last step ends with the row and makes some bytes a second time
        let offset = start.min(out.len() - WIDTH);
        let mut sums = [[half; 4]; 2];
        for (row, weight) in axis.weights(to).iter().enumerate() {
            let at = row * source.stride + offset;
            for (half, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the caller promises as many rows as weights, of `out.len()` bytes.
                let bytes = unsafe { vld1q_u8(source.bytes.as_ptr().add(at + half * 16)) };
                for (values, sums) in widen(bytes).into_iter().zip(sums.as_chunks_mut::<2>().0) {
                    let [low, high] = [vget_low_s16(values), vget_high_s16(values)];
                    sums[0] = add::<WIDE>(sums[0], low, *weight);
                    sums[1] = add::<WIDE>(sums[1], high, *weight);
                }
            }
        }
        for (half, sums) in sums.into_iter().enumerate() {
            // SAFETY: `offset + WIDTH <= out.len()`.
            unsafe {
                let at = out.as_mut_ptr().add(offset + half * 16);
                vst1q_u8(at, finish(sums, axis.precision));
            }
        }
        start += WIDTH;
    }
}

/// Adds four values times one weight.
#[inline]
#[target_feature(enable = "neon")]
fn add<const WIDE: bool>(sum: int32x4_t, values: int16x4_t, weight: i32) -> int32x4_t {
    if WIDE {
        vmlaq_n_s32(sum, vmovl_s16(values), weight)
    } else {
        vmlal_n_s16(sum, values, weight as i16)
    }
}

/// Bytes to 16 bits, the lower and the upper eight.
#[inline]
#[target_feature(enable = "neon")]
fn widen(bytes: uint8x16_t) -> [int16x8_t; 2] {
    [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)].map(|half| vreinterpretq_s16_u16(half))
}

/// One half in the fixed point of the sums, which begin with it.
#[inline]
#[target_feature(enable = "neon")]
fn half(axis: &Axis) -> int32x4_t {
    vdupq_n_s32(1 << (axis.precision - 1))
}

/// Drops the fraction, and clamps to bytes.
#[inline]
#[target_feature(enable = "neon")]
fn finish(sums: [int32x4_t; 4], precision: u32) -> uint8x16_t {
    let shift = vdupq_n_s32(-(precision as i32));
    let words = sums.map(|sum| vqmovun_s32(vshlq_s32(sum, shift)));
    let low = vqmovn_u16(vcombine_u16(words[0], words[1]));
    vcombine_u8(low, vqmovn_u16(vcombine_u16(words[2], words[3])))
}
