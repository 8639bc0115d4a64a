//! Measuring: a sample's tokens, and the sizes of its images by their headers.
//!
//! To make a batch, its images are read whole. To know which samples share a batch, those of a whole
//! window are measured, most of them for other ranks: then only the *beginnings* of images are read,
//! as far as they tell the size. What can't be seen there (a file that was cut off) shows when the
//! batch is made, and the sample is replaced then.

use bytes::Bytes;

use super::boundary::contained;
use super::rooms::Rooms;
use crate::error::{Flaw, Result};
use crate::image;
use crate::metrics::Room;
use crate::sample::{EncodedImage, ImageHeader, ImageRef, Measured, Sample, Standing};

/// How much of images is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// As much as tells their sizes.
    Beginning,
    /// All.
    Whole,
}

/// What was read of an image.
#[derive(Clone, Debug)]
pub(super) struct ImageBytes {
    pub(super) bytes: Bytes,
    /// What the bytes tell, where they are only the beginning.
    pub(super) header: Option<ImageHeader>,
}

impl From<Bytes> for ImageBytes {
    /// All of it.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, header: None }
    }
}

impl Rooms {
    /// The beginning of an image of `size` bytes, if that is enough to measure it.
    pub(super) fn glance(&self, beginning: &Bytes, size: u64) -> Option<ImageBytes> {
        if beginning.len() as u64 == size {
            return Some(beginning.clone().into());
        }
        let header = image::inspect_beginning(beginning, &self.recipe.image)?;
        Some(ImageBytes { bytes: beginning.clone(), header: Some(header) })
    }

    /// Sizes and tokens of a sample whose images were fetched. That a tokenizer can't be built may come
    /// out only by now, and is no fault of the sample.
    pub(super) fn measure(
        &self,
        sample: Sample,
        images: Vec<ImageBytes>,
    ) -> Result<Result<Measured, Flaw>> {
        let measured = contained(Room::Text, || self.measured(sample, images));
        self.text.unbroken()?;
        Ok(measured)
    }

    fn measured(&self, sample: Sample, images: Vec<ImageBytes>) -> Result<Measured, Flaw> {
        #[cfg(any(test, feature = "testing"))]
        crate::testing::panic_over(&sample.conversation);
        let names = sample.images.iter().enumerate().map(|(number, image)| name(number, image));
        let inspected = names.zip(images).map(|(name, image)| self.inspect(name, image));
        let mut images = inspected.collect::<Result<Vec<_>, Flaw>>()?;
        let grids: Vec<_> = images.iter().map(|image| image.plan.grid).collect();
        let meter = self.metrics.room(Room::Text);
        let _busy = meter.enter();
        let _span =
            self.metrics.trace.span("tokenise", || vec![("line", sample.origin.clone().into())]);
        let text = self.text.encode(&sample.conversation, &grids, self.vision.merge_size())?;
        meter.bytes.add(size_of_val(text.tokens.as_slice()) as u64);
        images.truncate(text.images);
        let (id, origin, standing) = (sample.id, sample.origin, Standing::Sample);
        let measured = Measured { id, text, images, origin, standing };
        self.pack.admit(&measured)?;
        Ok(measured)
    }

    fn inspect(&self, name: String, image: ImageBytes) -> Result<EncodedImage, Flaw> {
        let ImageBytes { bytes, header } = image;
        let header = match header {
            Some(header) => Ok(header),
            None => image::inspect(&bytes, &self.recipe.image, self.rgb),
        };
        let planned = header.and_then(|header| Ok((header, self.vision.plan(header.size())?)));
        let (header, plan) = planned.map_err(|flaw| of_image(flaw, &name))?;
        Ok(EncodedImage { name, bytes, header, plan })
    }
}

/// What people know an image by: its number in the sample, from 1, and where it lies.
fn name(number: usize, image: &ImageRef) -> String {
    match image {
        ImageRef::Stored(extent) => format!("image {}: {}", number + 1, extent.object.shown()),
        ImageRef::Inline(_) => format!("image {}, inline", number + 1),
    }
}

/// A flaw of an image, which is named.
pub(super) fn of_image(mut flaw: Flaw, name: &str) -> Flaw {
    flaw.reason = format!("{} ({name})", flaw.reason);
    flaw
}
