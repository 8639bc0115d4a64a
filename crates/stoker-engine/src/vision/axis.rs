//! The weights of bicubic resampling along one axis.
//!
//! Both references sample the cubic with a = -0.5, widened when shrinking (antialias), normalise in
//! f64 and then round to integers, each in its own way: torchvision to 16 bits with as many
//! fractional bits as the largest weight leaves room for
//! (`aten/src/ATen/native/cpu/UpSampleKernel.cpp`, `_compute_index_ranges_int16_weights`), Pillow to
//! 22 fractional bits (`src/libImaging/Resample.c`, `normalize_coeffs_8bpc`). After each pass the
//! sum is rounded and clamped to a byte, so equality with a reference needs equal integers here.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use super::passes_avx512::Across;
use crate::recipe::ResizeKernel;

const SUPPORT: f64 = 2.0;

/// What an axis depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AxisKey {
    /// Pixels before.
    pub(super) from: usize,
    /// Pixels after.
    pub(super) to: usize,
    /// Which reference.
    pub(super) kernel: ResizeKernel,
}

/// One axis: for each pixel after, which pixels before it is made of and by which weights.
#[derive(Debug)]
pub(super) struct Axis {
    pub(super) key: AxisKey,
    /// Fractional bits of the weights.
    pub(super) precision: u32,
    /// Weights per pixel, those past `counts` being zero; even, because SIMD takes two at a time.
    pub(super) taps: usize,
    /// The first pixel before, never falling.
    pub(super) starts: Vec<u32>,
    /// How many pixels before.
    pub(super) counts: Vec<u32>,
    /// `taps` weights for each pixel after.
    pub(super) weights: Vec<i32>,
    /// The same for AVX2, by [`Axis::words`]: two weights in the halves of an `i32`. Weights of 22
    /// bits are split in two such words, the low bytes and what is above them.
    #[cfg(target_arch = "x86_64")]
    pub(super) packed: Vec<i32>,
    /// What AVX-512 makes of it.
    #[cfg(target_arch = "x86_64")]
    across: OnceLock<Option<Across>>,
}

impl Axis {
    pub(super) fn new(key: AxisKey) -> Self {
        let scale = key.from as f64 / key.to as f64;
        let longest = (SUPPORT * scale.max(1.0)).ceil() as usize * 2 + 1;
        let (mut starts, mut counts) = (Vec::with_capacity(key.to), Vec::with_capacity(key.to));
        let mut exact = vec![0.0; key.to * longest];
        for (to, weights) in exact.chunks_exact_mut(longest).enumerate() {
            let (start, count) = sample(scale, to, key.from, weights);
            starts.push(start as u32);
            counts.push(count as u32);
        }
        let largest = exact.iter().copied().fold(0.0, f64::max);
        let precision = match key.kernel {
            ResizeKernel::Torchvision => torchvision_precision(largest),
            ResizeKernel::Pillow13 => 22,
        };
        let taps = counts.iter().max().map_or(0, |most| *most as usize).next_multiple_of(2);
        let mut weights = vec![0; taps * key.to];
        let places = weights.chunks_exact_mut(taps.max(1)).zip(exact.chunks_exact(longest));
        for ((place, exact), count) in places.zip(&counts) {
            for (weight, exact) in place.iter_mut().zip(&exact[..*count as usize]) {
                *weight = fixed_point(*exact, precision);
            }
        }
        Self {
            key,
            precision,
            taps,
            starts,
            counts,
            #[cfg(target_arch = "x86_64")]
            packed: pack(&weights, key.kernel),
            weights,
            #[cfg(target_arch = "x86_64")]
            across: OnceLock::new(),
        }
    }

    /// The same for AVX-512, if that can do it.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn across(&self) -> Option<&Across> {
        self.across.get_or_init(|| Across::new(self)).as_ref()
    }

    /// The pixels before that pixel `to` is made of.
    pub(super) fn span(&self, to: usize) -> std::ops::Range<usize> {
        let start = self.starts[to] as usize;
        start..start + self.counts[to] as usize
    }

    /// The weights of pixel `to`.
    pub(super) fn weights(&self, to: usize) -> &[i32] {
        &self.weights[to * self.taps..][..self.counts[to] as usize]
    }

    /// Packed words per pair of weights.
    pub(super) fn words(&self) -> usize {
        words(self.key.kernel)
    }
}

fn words(kernel: ResizeKernel) -> usize {
    match kernel {
        ResizeKernel::Torchvision => 1,
        ResizeKernel::Pillow13 => 2,
    }
}

/// Writes the normalised weights of pixel `to`; says which pixel before is the first, and how many
/// there are. All places after them are zero.
fn sample(scale: f64, to: usize, from: usize, weights: &mut [f64]) -> (usize, usize) {
    let stretch = scale.max(1.0);
    let reach = SUPPORT * stretch;
    let center = scale * (to as f64 + 0.5);
    let first = (center - reach + 0.5).max(0.0) as usize;
    let last = ((center + reach + 0.5) as usize).min(from);
    let inverse = 1.0 / stretch;
    let count = last.saturating_sub(first).min(weights.len());
    let weights = &mut weights[..count];
    let mut sum = 0.0;
    for (tap, weight) in weights.iter_mut().enumerate() {
        *weight = cubic(((tap + first) as f64 - center + 0.5) * inverse);
        sum += *weight;
    }
    if sum != 0.0 {
        for weight in weights {
            *weight /= sum;
        }
    }
    (first, count)
}

/// Keys' cubic with a = -0.5.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

/// The most fractional bits with which the largest weight still fits an `i16`.
fn torchvision_precision(largest: f64) -> u32 {
    let fits = |bits: u32| ((0.5 + largest * f64::from(1 << bits)) as i32) < 1 << 15;
    (0..22).take_while(|bits| fits(bits + 1)).count() as u32
}

/// Rounds half away from zero.
fn fixed_point(weight: f64, precision: u32) -> i32 {
    (weight * f64::from(1 << precision) + 0.5_f64.copysign(weight)) as i32
}

#[cfg(target_arch = "x86_64")]
fn pack(weights: &[i32], kernel: ResizeKernel) -> Vec<i32> {
    let join = |low: i32, high: i32| (low & 0xffff) | (high << 16);
    let mut packed = Vec::with_capacity(weights.len() / 2 * words(kernel));
    for pair in weights.chunks_exact(2) {
        match kernel {
            ResizeKernel::Torchvision => packed.push(join(pair[0], pair[1])),
            ResizeKernel::Pillow13 => {
                packed.push(join(pair[0] & 0xff, pair[1] & 0xff));
                packed.push(join(pair[0] >> 8, pair[1] >> 8));
            }
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_each_pixel_add_up_to_one() {
        for kernel in [ResizeKernel::Torchvision, ResizeKernel::Pillow13] {
            for (from, to) in [(1, 7), (7, 1), (100, 64), (64, 100), (5000, 28), (3, 3)] {
                let axis = Axis::new(AxisKey { from, to, kernel });
                for pixel in 0..to {
                    let sum: i32 = axis.weights(pixel).iter().sum();
                    let off = (sum - (1 << axis.precision)).unsigned_abs() as usize;
                    assert!(off <= axis.weights(pixel).len(), "{from}->{to}: {sum}");
                    assert!(axis.span(pixel).end <= from && !axis.span(pixel).is_empty());
                }
            }
        }
    }

    #[test]
    fn every_weight_fits_the_sixteen_bits_that_simd_gives_it() {
        for kernel in [ResizeKernel::Torchvision, ResizeKernel::Pillow13] {
            for to in 1..400 {
                let axis = Axis::new(AxisKey { from: 97, to, kernel });
                let shift = if kernel == ResizeKernel::Torchvision { 0 } else { 8 };
                assert!(axis.weights.iter().all(|weight| i16::try_from(weight >> shift).is_ok()));
            }
        }
    }
}
