//! What a byte becomes: one table per channel, which is the truth for all kernels.
//!
//! transformers normalises in f32, in one of two orders of operations that differ in the last bit:
//! with mean and deviation times 255 (`_fuse_mean_std_and_rescale_factor` in
//! `image_processing_backends.py`) or step by step (`rescale` and `normalize` in
//! `image_transforms.py`). Both are `(u / unit - mean) / std` in f32 with their own constants, which
//! is what SIMD computes. bf16 is that f32 rounded to nearest even; u8 is the byte itself.

use super::config::Normalise;
use crate::recipe::{Pixels, Table};

/// One channel's values, as bytes in the machine's order.
type Channel<const BYTES: usize> = [[u8; BYTES]; 256];

/// What each byte of each channel becomes.
#[derive(Clone, Debug)]
pub(super) enum Values {
    F32(Box<[Channel<4>; 3]>),
    Bf16(Box<[Channel<2>; 3]>),
    U8(Box<[Channel<1>; 3]>),
}

/// The same as a formula in f32: `(u / unit - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Formula {
    /// None where it is 1.
    pub(super) unit: Option<f32>,
    pub(super) mean: [f32; 3],
    pub(super) std: [f32; 3],
    /// `1 / std`, where [`Formula::quick`] divides exactly by it. A division takes SIMD longer than
    /// all the rest of the formula.
    pub(super) inverse: Option<[f32; 3]>,
}

impl Values {
    pub(super) fn new(pixels: Pixels, table: Table, normalise: &Normalise) -> Self {
        let value = |channel, byte| normalised(table, normalise, channel, byte);
        match pixels {
            Pixels::F32 => {
                Self::F32(Box::new(fill(|channel, byte| value(channel, byte).to_ne_bytes())))
            }
            Pixels::Bf16 => Self::Bf16(Box::new(fill(|channel, byte| bf16(value(channel, byte))))),
            Pixels::U8 => Self::U8(Box::new(fill(|_, byte| [byte]))),
        }
    }

    /// Whether there are values so near to zero that some instructions take them for it.
    #[cfg(any(test, target_arch = "x86_64"))]
    pub(super) fn has_subnormals(&self) -> bool {
        let is_subnormal = |bits: u32| f32::from_bits(bits).is_subnormal();
        match self {
            Self::F32(_) | Self::U8(_) => false,
            Self::Bf16(table) => table
                .iter()
                .flatten()
                .any(|value| is_subnormal(u32::from(u16::from_ne_bytes(*value)) << 16)),
        }
    }

    /// Bytes of one value.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::F32(_) => 4,
            Self::Bf16(_) => 2,
            Self::U8(_) => 1,
        }
    }

    /// What a byte of a channel becomes.
    pub(super) fn get(&self, channel: usize, byte: u8) -> &[u8] {
        match self {
            Self::F32(table) => &table[channel][byte as usize],
            Self::Bf16(table) => &table[channel][byte as usize],
            Self::U8(table) => &table[channel][byte as usize],
        }
    }
}

impl Formula {
    pub(super) fn new(table: Table, normalise: &Normalise) -> Self {
        let [mean, std] = [normalise.mean, normalise.std].map(|of| of.map(|value| value as f32));
        let (unit, mean, std) = match table {
            Table::Fused => (None, mean.map(|x| x * 255.0), std.map(|x| x * 255.0)),
            Table::Stepwise => (Some(255.0), mean, std),
        };
        let mut formula = Self { unit, mean, std, inverse: Some(std.map(f32::recip)) };
        let is_exact = |channel| {
            let same = |byte: u8| {
                let exact = normalised(table, normalise, channel, byte);
                formula.quick(channel, byte).is_some_and(|quick| quick.to_bits() == exact.to_bits())
            };
            (0..=255).all(same)
        };
        if !(0..3).all(is_exact) {
            formula.inverse = None;
        }
        formula
    }

    /// A value by multiplication: nearly the quotient, and then what is left of the dividend.
    fn quick(&self, channel: usize, byte: u8) -> Option<f32> {
        let (inverse, std) = (self.inverse?[channel], self.std[channel]);
        let value = f32::from(byte) / self.unit.unwrap_or(1.0) - self.mean[channel];
        let nearly = value * inverse;
        let left = (-nearly).mul_add(std, value);
        Some(left.mul_add(inverse, nearly))
    }
}

/// A byte normalised as the reference does it.
fn normalised(table: Table, normalise: &Normalise, channel: usize, byte: u8) -> f32 {
    let (mean, std) = (normalise.mean[channel] as f32, normalise.std[channel] as f32);
    match table {
        Table::Fused => (f32::from(byte) - mean * 255.0) / (std * 255.0),
        Table::Stepwise => ((f64::from(byte) * (1.0 / 255.0)) as f32 - mean) / std,
    }
}

/// Rounded to nearest even; the value is finite.
fn bf16(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let even = (bits >> 16) & 1;
    (((bits + 0x7fff + even) >> 16) as u16).to_ne_bytes()
}

fn fill<const BYTES: usize>(value: impl Fn(usize, u8) -> [u8; BYTES]) -> [Channel<BYTES>; 3] {
    let mut table = [[[0; BYTES]; 256]; 3];
    for (channel, values) in table.iter_mut().enumerate() {
        for (byte, place) in (0..=255).zip(values) {
            *place = value(channel, byte);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vision::family;

    #[test]
    fn the_formula_gives_every_value_of_the_reference_order_of_operations() {
        for family in family::FAMILIES {
            let normalise = &family.model.layout.normalise;
            for table in [Table::Fused, Table::Stepwise] {
                let Formula { unit, mean, std, inverse } = Formula::new(table, normalise);
                assert!(inverse.is_some(), "the numbers of all families divide exactly");
                for channel in 0..3 {
                    for byte in 0..=255 {
                        let value =
                            (f32::from(byte) / unit.unwrap_or(1.0) - mean[channel]) / std[channel];
                        let truth = normalised(table, normalise, channel, byte);
                        assert_eq!(value.to_bits(), truth.to_bits(), "{table:?} {channel} {byte}");
                    }
                }
            }
        }
    }

    /// Numbers that no model has: what is not exact is found out, and done by division.
    #[test]
    fn an_inverse_that_is_not_exact_is_not_used() {
        let normalise = Normalise { mean: [0.0; 3], std: [1e-39; 3] };
        assert_eq!(Formula::new(Table::Fused, &normalise).inverse, None, "it overflows");
        let tiny = Normalise { mean: [0.0; 3], std: [1e36; 3] };
        assert!(Values::new(Pixels::Bf16, Table::Fused, &tiny).has_subnormals());
    }

    #[test]
    fn bf16_rounds_as_the_half_crate_does() {
        for bits in (0..=u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            if value.is_finite() {
                assert_eq!(u16::from_ne_bytes(bf16(value)), half::bf16::from_f32(value).to_bits());
            }
        }
    }
}
