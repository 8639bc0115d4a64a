//! What the model sees: an 8-bit RGB image becomes patches, written where the trainer reads them.
//!
//! [`Preprocessor::plan`] tells the size and the grid from the image's size alone, so that a batch
//! can be laid out before any pixel is decoded. [`Preprocessor::write`] then resizes, normalises and
//! patchifies strip by strip into the image's slot, each pixel written once. The result is byte for
//! byte that of the model's published processor (transformers' `Qwen2VLImageProcessor`): resize
//! kernel, order of passes and rounding are the reference's own.
//!
//! The scalar loops are the truth; kernels for AVX2, AVX-512 and NEON are chosen at run time, tested
//! equal, and live in files of their own. All memory but the slot is the worker's [`Scratch`].

mod axis;
mod config;
mod family;
mod open;
mod passes;
#[cfg(target_arch = "x86_64")]
mod passes_avx2;
#[cfg(target_arch = "x86_64")]
mod passes_avx512;
#[cfg(target_arch = "aarch64")]
mod passes_neon;
mod patchify;
#[cfg(target_arch = "x86_64")]
mod patchify_avx2;
#[cfg(target_arch = "x86_64")]
mod patchify_avx512;
#[cfg(target_arch = "aarch64")]
mod patchify_neon;
mod resample;
mod size;
#[cfg(test)]
mod tests;
mod values;

use std::ops::Range;

use crate::error::Flaw;
use serde::{Deserialize, Serialize};

use crate::recipe::{Compat, Pixels, ResizeKernel, SizeRule};
use crate::sample::{Decoded, Dtype, Grid, ImagePlan, RgbImage, Size};
use crate::simd::Simd;
use config::{Layout, Model};
use passes::Rows;
use patchify::Patchify;
use resample::{Buffers, Resampler};
use size::Bounds;
use values::{Formula, Values};

/// From this many bytes on, an image's patches are stored past the cache: they would push more out of
/// it than their reader finds there, and a line that is stored in the cache is read from memory first.
const STREAM_FROM: usize = 1 << 20;

/// What the model family does with images.
#[derive(Clone, Debug)]
pub struct Preprocessor {
    layout: Layout,
    bounds: Bounds,
    size_rule: SizeRule,
    kernel: ResizeKernel,
    pixels: Pixels,
    patchify: Patchify,
    simd: Simd,
}

/// Memory of one worker thread.
#[derive(Debug, Default)]
pub struct Scratch {
    buffers: Buffers,
}

/// What finishes `u8` pixels on a device: `(u - mean) / std` per channel in f32, then the temporal
/// copies. That is the very arithmetic of transformers' default processor; the values of its PIL
/// processor (`transformers-pil-backend`) differ from it in the last bit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// Element type that was written.
    pub pixels: Pixels,
    /// f32 mean times 255.
    pub mean: [f32; 3],
    /// f32 standard deviation times 255.
    pub std: [f32; 3],
    /// Side of a patch.
    pub patch_size: u32,
    /// Temporal copies.
    pub temporal_patch_size: u32,
}

impl Preprocessor {
    fn new(model: Model, pixels: Pixels, compat: Compat) -> Self {
        let Model { layout, min_pixels, max_pixels } = model;
        let values = Values::new(pixels, compat.table(), &layout.normalise);
        let formula = Formula::new(compat.table(), &layout.normalise);
        let factor = layout.patch_size * layout.merge_size;
        Self {
            layout,
            bounds: Bounds { factor, min_pixels, max_pixels },
            size_rule: compat.size_rule(),
            kernel: compat.resize(),
            pixels,
            patchify: Patchify::new(&layout, values, formula),
            simd: Simd::detect(),
        }
    }

    /// What an image of that size becomes. Flawed with `aspect-ratio` if it is too thin.
    pub fn plan(&self, size: Size) -> Result<ImagePlan, Flaw> {
        let resized = size::smart_resize(size, self.bounds, self.size_rule)?;
        let patch = self.layout.patch_size;
        let grid = Grid { t: 1, h: resized.height / patch, w: resized.width / patch };
        Ok(ImagePlan { resized, grid })
    }

    /// The smallest image there is: one merged block of patches.
    pub fn smallest(&self) -> ImagePlan {
        let side = self.bounds.factor;
        let blocks = self.merge_size();
        let grid = Grid { t: 1, h: blocks, w: blocks };
        ImagePlan { resized: Size { width: side, height: side }, grid }
    }

    /// Everything that decides what the model sees, and nothing else: neither the machine's kernels
    /// nor the element type in which it is written down.
    pub fn identity(&self) -> String {
        let Self { layout, bounds, size_rule, kernel, .. } = self;
        format!("{layout:?} {bounds:?} {size_rule:?} {kernel:?}")
    }

    /// Side of a merged block, in patches.
    pub fn merge_size(&self) -> u32 {
        self.layout.merge_size
    }

    /// Elements of one row of `pixel_values` as written: channels × temporal copies × patch area;
    /// `u8` has no temporal copies.
    pub fn columns(&self) -> usize {
        self.patchify.columns()
    }

    /// Element type of `pixel_values` as written.
    pub fn dtype(&self) -> Dtype {
        match self.pixels {
            Pixels::F32 => Dtype::F32,
            Pixels::Bf16 => Dtype::Bf16,
            Pixels::U8 => Dtype::U8,
        }
    }

    /// How to finish on the device.
    pub fn finish(&self) -> Finish {
        let normalise = &self.layout.normalise;
        let Formula { mean, std, .. } = Formula::new(crate::recipe::Table::Fused, normalise);
        Finish {
            pixels: self.pixels,
            mean,
            std,
            patch_size: self.layout.patch_size,
            temporal_patch_size: self.layout.temporal_patch_size,
        }
    }

    /// Resizes, normalises and patchifies into `out`: `plan.grid.patches() * columns()` elements in
    /// the machine's byte order. Fastest where `out` begins at a multiple of 64 bytes. Where the image
    /// is decoded on the way, what is wrong with it comes out here, and `out` is half written.
    pub fn write(
        &self,
        image: Decoded<'_>,
        plan: &ImagePlan,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), Flaw> {
        self.write_strips(image, plan, 0..self.strips(plan), out, scratch)
    }

    /// In how many strips an image's patches are written: a row of merged blocks each.
    pub fn strips(&self, plan: &ImagePlan) -> usize {
        (plan.grid.h / self.merge_size()) as usize
    }

    /// Bytes of one of them.
    pub fn strip_bytes(&self, plan: &ImagePlan) -> usize {
        plan.grid.w as usize * self.merge_size() as usize * self.patchify.row_bytes()
    }

    /// [`Self::write`] for some of the strips, whose part of the image's slot `out` is. Of an image
    /// that is decoded on the way these are the first ones.
    pub fn write_strips(
        &self,
        image: Decoded<'_>,
        plan: &ImagePlan,
        strips: Range<usize>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), Flaw> {
        self.check(plan);
        let block = self.strip_bytes(plan);
        assert_eq!(out.len(), strips.len() * block, "the slot fits the strips");
        let stream = out.len() >= STREAM_FROM;
        let height = self.patchify.strip_height();
        let mut resampler = self.resampler(image, plan, &mut scratch.buffers);
        for (index, out) in strips.zip(out.chunks_exact_mut(block)) {
            let strip = resampler.strip(index * height, height)?;
            self.patchify.strip(self.simd, strip, out, stream);
        }
        patchify::fence(self.simd);
        Ok(())
    }

    /// Writes the mean colour in place of an image that could not be decoded: of each channel, the
    /// byte next to the mean.
    pub fn write_neutral(&self, plan: &ImagePlan, out: &mut [u8]) {
        self.check(plan);
        let row = self.patchify.row_bytes();
        assert_eq!(out.len(), plan.grid.patches() * row, "the slot fits the plan");
        let Some((first, others)) = out.split_at_mut_checked(row) else { return };
        for (channel, out) in first.chunks_exact_mut(row / 3).enumerate() {
            let byte = (self.layout.normalise.mean[channel] * 255.0).round() as u8;
            let value = self.patchify.values.get(channel, byte);
            out.chunks_exact_mut(value.len()).for_each(|place| place.copy_from_slice(value));
        }
        others.chunks_exact_mut(row).for_each(|patch| patch.copy_from_slice(first));
    }

    /// The image as the model sees it.
    pub fn resize(
        &self,
        image: Decoded<'_>,
        plan: &ImagePlan,
        scratch: &mut Scratch,
    ) -> Result<RgbImage, Flaw> {
        const STRIP: usize = 32;
        let (width, height) = (plan.resized.width as usize, plan.resized.height as usize);
        let mut pixels = vec![0; width * height * 3];
        let mut resampler = self.resampler(image, plan, &mut scratch.buffers);
        for (index, out) in pixels.chunks_mut(width * 3 * STRIP).enumerate() {
            let strip: Rows<'_> = resampler.strip(index * STRIP, out.len() / (width * 3))?;
            for (row, out) in out.chunks_exact_mut(width * 3).enumerate() {
                out.copy_from_slice(strip.row(row, width * 3));
            }
        }
        Ok(RgbImage { width, height, pixels })
    }

    fn resampler<'a>(
        &self,
        image: Decoded<'a>,
        plan: &ImagePlan,
        buffers: &'a mut Buffers,
    ) -> Resampler<'a> {
        Resampler::new(image, plan.resized, self.kernel, self.simd, buffers)
    }

    fn check(&self, plan: &ImagePlan) {
        let patch = self.layout.patch_size;
        let covered = Size { width: plan.grid.w * patch, height: plan.grid.h * patch };
        assert_eq!((plan.grid.t, covered), (1, plan.resized), "the grid fits the size");
    }
}
