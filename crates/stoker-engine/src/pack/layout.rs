//! Where everything in a batch lies: tensors in one arena, and the plain values beside them.

use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::sample::Dtype;

/// Tensors start at multiples of this, in bytes: a cache line, and what non-temporal stores need.
pub const ALIGNMENT: usize = 64;

/// The names of all tensors there are.
const TENSORS: [&str; 9] = [
    "pixel_values",
    "image_grid_thw",
    "input_ids",
    "attention_mask",
    "labels",
    "mm_token_type_ids",
    "position_ids",
    "cu_seq_lens_q",
    "cu_seq_lens_k",
];

/// The names of all scalars there are.
const SCALARS: [&str; 3] = ["max_length_q", "max_length_k", "use_cache"];

/// One tensor of a batch: row-major, without strides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tensor {
    /// The name that the model's `forward` gives it.
    pub name: &'static str,
    /// Element type.
    pub dtype: Dtype,
    /// Elements along each dimension.
    pub shape: Vec<usize>,
    /// First byte in the arena.
    pub offset: usize,
}

impl Tensor {
    /// The bytes of the arena that it occupies.
    pub fn range(&self) -> Range<usize> {
        let elements: usize = self.shape.iter().product();
        self.offset..self.offset + elements * self.dtype.size()
    }
}

/// What the model's `forward` takes as a plain value, not as a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scalar {
    /// The name that the model's `forward` gives it.
    pub name: &'static str,
    /// Its value.
    pub value: ScalarValue,
}

/// The value of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScalarValue {
    /// True or false.
    Flag(bool),
    /// A whole number.
    Whole(u64),
}

/// A tensor as another process describes it.
#[derive(Deserialize)]
struct DescribedTensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    offset: usize,
}

impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let DescribedTensor { name, dtype, shape, offset } =
            Deserialize::deserialize(deserializer)?;
        Ok(Self { name: known(&name, &TENSORS, "tensor")?, dtype, shape, offset })
    }
}

/// A scalar as another process describes it.
#[derive(Deserialize)]
struct DescribedScalar {
    name: String,
    value: ScalarValue,
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let DescribedScalar { name, value } = Deserialize::deserialize(deserializer)?;
        Ok(Self { name: known(&name, &SCALARS, "scalar")?, value })
    }
}

fn known<E: de::Error>(name: &str, names: &[&'static str], what: &str) -> Result<&'static str, E> {
    let unknown = || E::custom(format_args!("no batch has a {what} {name:?}"));
    names.iter().copied().find(|known| *known == name).ok_or_else(unknown)
}

/// Where everything in a batch lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tensors, in the order of their offsets.
    pub tensors: Vec<Tensor>,
    /// The plain values.
    pub scalars: Vec<Scalar>,
    /// Bytes of the arena.
    pub bytes: usize,
    /// For each sample, for each of its images: the bytes of `pixel_values` that it fills.
    pub slots: Vec<Vec<Range<usize>>>,
    /// For each neutral image, the same. They follow the samples' images.
    pub neutral: Vec<Range<usize>>,
}

impl Layout {
    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The bytes that no image of a sample fills: neutral images and all other tensors.
    pub fn rest(&self) -> Range<usize> {
        self.slots.iter().flatten().last().map_or(0, |slot| slot.end)..self.bytes
    }
}

/// Tensors that are put one behind the other.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) tensors: Vec<Tensor>,
    pub(super) end: usize,
}

impl Shelf {
    pub(super) fn put(&mut self, name: &'static str, dtype: Dtype, shape: Vec<usize>) {
        debug_assert!(TENSORS.contains(&name), "{name} is not among the names");
        let tensor = Tensor { name, dtype, shape, offset: self.end };
        self.end = tensor.range().end.next_multiple_of(ALIGNMENT);
        self.tensors.push(tensor);
    }
}
