//! What a batch holds, and where: pure functions from sizes to bytes.
//!
//! [`layout`] fixes every tensor of a batch (name, dtype, shape, offset in one arena) and every
//! image's slot from sizes alone, before any pixel exists. [`write_text`] fills the text tensors.
//! Names, dtypes and shapes are those that the Hugging Face models' `forward` takes for a right
//! padded batch:
//!
//! | tensor | dtype | shape |
//! |---|---|---|
//! | `pixel_values` | f32, bf16 or u8 | `[patches, columns]`, images in reading order |
//! | `image_grid_thw` | i64 | `[images, 3]`, in patches |
//! | `input_ids` | i64 | `[batch, length]`, padded with the pad token |
//! | `attention_mask` | i64 | `[batch, length]`, 1 for tokens, 0 for padding |
//! | `labels` | i64 | `[batch, length]`, -100 where nothing is learned |
//! | `mm_token_type_ids` | i64 | `[batch, length]`, 0 text, 1 image |
//! | `position_ids` | i64 | `[3, batch, length]`, 0 in the padding |
//!
//! A batch without images has no image tensors.

use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::recipe;
use crate::sample::{Dtype, Measured, token_kind};

/// Label of a token that is not learned.
pub const IGNORED: i64 = -100;

/// Tensors start at multiples of this, in bytes: a cache line, and what non-temporal stores need.
pub const ALIGNMENT: usize = 64;

/// The names of all tensors there are.
const NAMES: [&str; 7] = [
    "pixel_values",
    "image_grid_thw",
    "input_ids",
    "attention_mask",
    "labels",
    "mm_token_type_ids",
    "position_ids",
];

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

/// A tensor as another process describes it.
#[derive(Deserialize)]
struct Described {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    offset: usize,
}

impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Described { name, dtype, shape, offset } = Described::deserialize(deserializer)?;
        let known = NAMES.into_iter().find(|known| *known == name);
        let unknown = || de::Error::custom(format_args!("no batch has a tensor {name:?}"));
        Ok(Self { name: known.ok_or_else(unknown)?, dtype, shape, offset })
    }
}

/// Where everything in a batch lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tensors, in the order of their offsets.
    pub tensors: Vec<Tensor>,
    /// Bytes of the arena.
    pub bytes: usize,
    /// For each sample, for each of its images: the bytes of `pixel_values` that it fills.
    pub slots: Vec<Vec<Range<usize>>>,
}

impl Layout {
    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

/// The rows of `pixel_values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchRow {
    /// Element type.
    pub dtype: Dtype,
    /// Elements of one row.
    pub columns: usize,
}

impl PatchRow {
    fn bytes(self) -> usize {
        self.columns * self.dtype.size()
    }
}

/// Places every tensor of a batch.
pub fn layout(samples: &[Measured], row: PatchRow, config: &recipe::Pack) -> Layout {
    let mut shelf = Shelf::default();
    let mut slots = Vec::with_capacity(samples.len());
    let mut patches = 0;
    for sample in samples {
        let place = |image: &crate::sample::EncodedImage| {
            let from = patches;
            patches += image.plan.grid.patches();
            from * row.bytes()..patches * row.bytes()
        };
        slots.push(sample.images.iter().map(place).collect());
    }
    let images: usize = samples.iter().map(|sample| sample.images.len()).sum();
    if images > 0 {
        shelf.put("pixel_values", row.dtype, vec![patches, row.columns]);
        shelf.put("image_grid_thw", Dtype::I64, vec![images, 3]);
    }
    let longest = samples.iter().map(|sample| sample.text.tokens.len()).max().unwrap_or(0);
    let length = longest.next_multiple_of(config.pad_to_multiple as usize);
    let shape = vec![samples.len(), length];
    for name in ["input_ids", "attention_mask", "labels", "mm_token_type_ids"] {
        shelf.put(name, Dtype::I64, shape.clone());
    }
    shelf.put("position_ids", Dtype::I64, vec![3, samples.len(), length]);
    Layout { tensors: shelf.tensors, bytes: shelf.end, slots }
}

#[derive(Default)]
struct Shelf {
    tensors: Vec<Tensor>,
    end: usize,
}

impl Shelf {
    fn put(&mut self, name: &'static str, dtype: Dtype, shape: Vec<usize>) {
        debug_assert!(NAMES.contains(&name), "{name} is not among the names");
        let tensor = Tensor { name, dtype, shape, offset: self.end };
        self.end = tensor.range().end.next_multiple_of(ALIGNMENT);
        self.tensors.push(tensor);
    }
}

/// Fills all tensors but `pixel_values`. `learned[i]` is false for a sample that was neutralised:
/// it keeps its tokens and has no labels. `text` is the arena from the end of `pixel_values` on.
pub fn write_text(
    layout: &Layout,
    samples: &[Measured],
    learned: &[bool],
    pad_token: u32,
    text: &mut [u8],
) {
    let mut page = Page { layout, start: layout.bytes - text.len(), text };
    if layout.tensor("image_grid_thw").is_some() {
        let mut pen = page.pen("image_grid_thw");
        for grid in samples.iter().flat_map(|s| &s.images).map(|image| image.plan.grid) {
            pen.write([grid.t, grid.h, grid.w].map(i64::from));
        }
    }
    for (name, padding) in [
        ("input_ids", i64::from(pad_token)),
        ("attention_mask", 0),
        ("labels", IGNORED),
        ("mm_token_type_ids", i64::from(token_kind::TEXT)),
    ] {
        let mut pen = page.pen(name);
        for (sample, &learned) in samples.iter().zip(learned) {
            let text = &sample.text;
            let ids = text.tokens.iter().map(|&token| i64::from(token));
            match name {
                "input_ids" => pen.row(ids, padding),
                "attention_mask" => pen.row(ids.map(|_| 1), padding),
                "labels" => {
                    let labels = ids.zip(&text.trained);
                    let label = |(id, &trained)| if learned && trained { id } else { IGNORED };
                    pen.row(labels.map(label), padding);
                }
                _ => pen.row(text.kinds.iter().map(|&kind| i64::from(kind)), padding),
            }
        }
    }
    let mut pen = page.pen("position_ids");
    for axis in 0..3 {
        for sample in samples {
            pen.row(sample.text.positions[axis].iter().map(|&p| i64::from(p)), 0);
        }
    }
}

/// The text part of an arena.
struct Page<'a> {
    layout: &'a Layout,
    start: usize,
    text: &'a mut [u8],
}

impl Page<'_> {
    fn pen(&mut self, name: &str) -> Pen<'_> {
        let tensor = self.layout.tensor(name).expect("the layout has every text tensor");
        let Range { start, end } = tensor.range();
        let row = tensor.shape.last().copied().unwrap_or(0);
        Pen { rest: &mut self.text[start - self.start..end - self.start], row }
    }
}

/// Writes one i64 tensor from its start to its end.
struct Pen<'a> {
    rest: &'a mut [u8],
    row: usize,
}

impl Pen<'_> {
    fn write(&mut self, values: impl IntoIterator<Item = i64>) {
        for value in values {
            let (head, rest) =
                std::mem::take(&mut self.rest).split_first_chunk_mut().expect("room in the tensor");
            *head = value.to_ne_bytes();
            self.rest = rest;
        }
    }

    fn row(&mut self, values: impl ExactSizeIterator<Item = i64>, padding: i64) {
        let missing = self.row - values.len();
        self.write(values);
        self.write(std::iter::repeat_n(padding, missing));
    }
}

#[cfg(test)]
mod tests;
