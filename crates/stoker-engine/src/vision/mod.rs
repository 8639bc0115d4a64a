//! stub
use std::path::Path;

use crate::error::{Flaw, Result};
use crate::recipe::{self, Compat, Pixels};
use crate::sample::{ImagePlan, RgbImage, Size};

/// What the model family does with images.
#[derive(Debug)]
pub struct Preprocessor {}

/// Memory of one worker thread.
#[derive(Debug, Default)]
pub struct Scratch {}

/// What finishes `u8` pixels on a device: `(u - mean) / std` per channel in f32, then the temporal
/// copies.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// From the model folder, the recipe's section and the compat preset.
    pub fn open(model: Option<&Path>, config: &recipe::Vision, compat: Compat) -> Result<Self> {
        let _ = (model, config, compat);
        Ok(Self {})
    }
    /// Size rule.
    pub fn plan(&self, size: Size) -> Result<ImagePlan, Flaw> {
        let _ = size;
        unimplemented!()
    }
    /// Side of a merged block, in patches.
    pub fn merge_size(&self) -> u32 {
        unimplemented!()
    }
    /// Elements of one row of `pixel_values` as written.
    pub fn columns(&self) -> usize {
        unimplemented!()
    }
    /// Element type.
    pub fn dtype(&self) -> crate::sample::Dtype {
        unimplemented!()
    }
    /// How to finish on the device.
    pub fn finish(&self) -> Finish {
        unimplemented!()
    }
    /// Resizes, normalises and patchifies into `out`: `plan.grid.patches() * columns()` elements.
    pub fn write(&self, image: &RgbImage, plan: &ImagePlan, out: &mut [u8], scratch: &mut Scratch) {
        let _ = (image, plan, out, scratch);
    }
    /// Writes the mean colour in place of an image that could not be decoded.
    pub fn write_neutral(&self, plan: &ImagePlan, out: &mut [u8]) {
        let _ = (plan, out);
    }
    /// The image as the model sees it.
    pub fn resize<'a>(
        &self,
        image: &'a RgbImage,
        plan: &ImagePlan,
        scratch: &'a mut Scratch,
    ) -> &'a RgbImage {
        let _ = (plan, scratch);
        image
    }
}
