//! What a batch holds, and where: pure functions from sizes to bytes.
//!
//! [`Window`] says which samples share a batch, where that goes by a budget of tokens.
//! [`Packer::layout`] fixes every tensor of a batch (name, dtype, shape, offset in one arena) and
//! every image's slot from sizes alone, before any pixel exists. [`Packer::write_text`] fills the
//! tensors that are not pixels. Names, dtypes and shapes are those that the Hugging Face models'
//! `forward` takes. The image tensors are the same in all layouts, images in reading order:
//!
//! | tensor | dtype | shape |
//! |---|---|---|
//! | `pixel_values` | f32, bf16 or u8 | `[patches, columns]` |
//! | `image_grid_thw` | i64 | `[images, 3]`, in patches |
//!
//! A batch without images has neither. What else there is, see `padded` and `packed`.

mod bins;
mod cost;
mod layout;
mod packed;
mod padded;
mod write;

pub use bins::{Budget, Packed, Window, batches_of_window};
pub use cost::SampleSize;
pub use layout::{ALIGNMENT, Layout, Scalar, ScalarValue, Tensor};

use crate::error::{Error, Flaw, Problem, Result};
use crate::metrics::Room;
use crate::recipe::{self, BatchLayout};
use crate::sample::{Dtype, EncodedText, Grid, Measured};

use layout::Shelf;
use write::Page;

/// Label of a token that is not learned.
pub const IGNORED: i64 = -100;

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

/// An image that shows nothing and teaches nothing, with its text. A batch that would have too few
/// images gets such ones, each as a sample of its own: a vision tower that is sharded over ranks
/// waits for all of them, and would wait for ever for one that has no image.
#[derive(Clone, Debug)]
pub struct NeutralImage {
    /// Its placeholder and what stands around it.
    pub text: EncodedText,
    /// Its patches.
    pub grid: Grid,
}

impl NeutralImage {
    /// Tokens of the smallest one: a placeholder between two vision tokens.
    pub const TOKENS: u32 = 3;

    /// What it takes of a budget.
    fn size(&self) -> SampleSize {
        SampleSize::new(self.text.tokens.len(), [self.grid])
    }
}

/// What a sample, or a neutral image, brings to a batch: a row of a padded one, a part of a packed
/// one.
#[derive(Clone, Copy)]
struct Segment<'a> {
    text: &'a EncodedText,
    /// False for what was neutralised: it keeps its tokens and has no labels.
    learned: bool,
}

impl Segment<'_> {
    fn len(&self) -> usize {
        self.text.tokens.len()
    }

    fn input_ids(&self) -> impl ExactSizeIterator<Item = i64> {
        self.text.tokens.iter().map(|&token| i64::from(token))
    }

    fn labels(&self) -> impl ExactSizeIterator<Item = i64> {
        let learned = self.learned;
        let label = move |(id, &trained)| if learned && trained { id } else { IGNORED };
        self.input_ids().zip(&self.text.trained).map(label)
    }

    fn positions(&self, axis: usize) -> impl ExactSizeIterator<Item = i64> {
        self.text.positions[axis].iter().map(|&position| i64::from(position))
    }
}

/// Lays batches out.
#[derive(Debug)]
pub struct Packer {
    config: recipe::Pack,
    row: PatchRow,
    pad_token: u32,
    neutral: NeutralImage,
}

/// Most tokens that a sample may have to go into a batch of any kind; `None` if there is no limit.
pub fn room_for_a_sample(config: &recipe::Pack) -> Option<u32> {
    let neutral = config.min_images_per_batch * NeutralImage::TOKENS;
    Some(most_tokens(config)?.saturating_sub(neutral))
}

/// The budget of tokens, of which all can be used.
fn most_tokens(config: &recipe::Pack) -> Option<u32> {
    config.max_tokens.map(|most| most - most % config.pad_to_multiple)
}

impl Packer {
    /// A packer by the recipe's section, for a model with such rows and tokens.
    pub fn open(
        config: &recipe::Pack,
        row: PatchRow,
        pad_token: u32,
        neutral: NeutralImage,
    ) -> Result<Self> {
        let packer = Self { config: config.clone(), row, pad_token, neutral };
        match packer.budget() {
            Some(budget) if !budget.admits(&SampleSize::new(1, [])) => {
                Err(Error::Recipe(vec![Problem {
                    path: "pack.min-images-per-batch".into(),
                    reason: "so many neutral images leave no room for samples in a batch".into(),
                    hint: Some("lower it, or raise pack.max-tokens and pack.max-patches".into()),
                }]))
            }
            _ => Ok(packer),
        }
    }

    /// What a batch may hold, where that goes by tokens.
    pub fn budget(&self) -> Option<Budget> {
        let limit = |limit: Option<u32>| limit.map_or(u64::MAX, u64::from);
        Some(Budget {
            tokens: most_tokens(&self.config)?.into(),
            images: limit(self.config.max_images),
            patches: limit(self.config.max_patches),
            least_images: self.config.min_images_per_batch.into(),
            neutral: self.neutral.size(),
        })
    }

    /// Refuses a sample that is over a limit by itself.
    pub fn admit(&self, sample: &Measured) -> Result<(), Flaw> {
        let Some(budget) = self.budget() else { return Ok(()) };
        let size = SampleSize::of(sample);
        if budget.admits(&size) {
            return Ok(());
        }
        let SampleSize { tokens, images, patches, .. } = size;
        let flaw = |code, reason, hint| Err(Flaw::new(Room::Pack, code, reason).hint(hint));
        if images > budget.images {
            let most = budget.images;
            let reason = format!("it has {images} images, and `pack.max-images` is {most}");
            flaw("too-many-images", reason, "raise it, or drop some of the sample's images")
        } else if tokens > budget.tokens {
            let most = budget.tokens;
            let reason = format!("it has {tokens} tokens, and a batch holds {most}");
            flaw("too-long", reason, "raise `pack.max-tokens`")
        } else {
            let most = budget.patches;
            let reason = format!(
                "it has {patches} patches, and `pack.max-patches` is {most}, neutral images included"
            );
            flaw("too-many-patches", reason, "raise it, or lower `vision.max-pixels`")
        }
    }

    /// Places every tensor of a batch.
    pub fn layout(&self, samples: &[Measured]) -> Layout {
        let mut patches = 0;
        let mut place = |grid: Grid| {
            let from = patches;
            patches += grid.patches();
            from * self.row.bytes()..patches * self.row.bytes()
        };
        let slots: Vec<Vec<_>> = samples
            .iter()
            .map(|sample| sample.images.iter().map(|image| place(image.plan.grid)).collect())
            .collect();
        let images = slots.iter().flatten().count();
        let missing = (self.config.min_images_per_batch as usize).saturating_sub(images);
        let neutral: Vec<_> = (0..missing).map(|_| place(self.neutral.grid)).collect();

        let mut arena = Shelf::default();
        if images + missing > 0 {
            arena.put("pixel_values", self.row.dtype, vec![patches, self.row.columns]);
            arena.put("image_grid_thw", Dtype::I64, vec![images + missing, 3]);
        }
        let segments = self.segments(samples, &vec![true; samples.len()], missing);
        let multiple = self.config.pad_to_multiple as usize;
        let scalars = match self.config.layout {
            BatchLayout::Padded => padded::place(&mut arena, &segments, multiple),
            BatchLayout::Packed => packed::place(&mut arena, &segments, multiple),
            BatchLayout::OfficialFinetune => {
                packed::place_official_finetune(&mut arena, &segments, multiple)
            }
        };
        Layout { tensors: arena.tensors, scalars, bytes: arena.end, slots, neutral }
    }

    /// Fills all tensors but `pixel_values`. `learned[i]` is false for a sample that was
    /// neutralised. `text` is the arena from some byte before these tensors on.
    pub fn write_text(
        &self,
        layout: &Layout,
        samples: &[Measured],
        learned: &[bool],
        text: &mut [u8],
    ) {
        let mut page = Page::new(layout, text);
        if layout.tensor("image_grid_thw").is_some() {
            let grids = samples.iter().flat_map(|sample| &sample.images);
            let grids = grids.map(|image| image.plan.grid);
            let neutral = layout.neutral.iter().map(|_| self.neutral.grid);
            let mut pen = page.pen("image_grid_thw");
            for grid in grids.chain(neutral) {
                pen.whole([grid.t, grid.h, grid.w].map(i64::from));
            }
        }
        let segments = self.segments(samples, learned, layout.neutral.len());
        match self.config.layout {
            BatchLayout::Padded => padded::write(&mut page, &segments, self.pad_token),
            BatchLayout::Packed => packed::write(&mut page, &segments, self.pad_token),
            BatchLayout::OfficialFinetune => {
                packed::write_official_finetune(&mut page, &segments, self.pad_token);
            }
        }
    }

    fn segments<'a>(
        &'a self,
        samples: &'a [Measured],
        learned: &[bool],
        neutral: usize,
    ) -> Vec<Segment<'a>> {
        let samples = samples.iter().zip(learned);
        let samples = samples.map(|(sample, &learned)| Segment { text: &sample.text, learned });
        let neutral =
            std::iter::repeat_n(Segment { text: &self.neutral.text, learned: false }, neutral);
        samples.chain(neutral).collect()
    }
}

#[cfg(test)]
mod tests;
