//! The pixels of an image between the rooms that decode and that see: all there, or made row by row
//! while they are read.

use super::{RgbImage, Size};
use crate::error::Flaw;

/// An image whose pixels come row by row, from the top, as they are asked for.
pub trait PixelRows {
    /// Pixels across and down.
    fn size(&self) -> Size;

    /// Writes the next `count` rows of 8-bit RGB to `out`, `stride` bytes apart. No more are asked for
    /// than there are, and none after a failure.
    fn read(&mut self, count: usize, out: &mut [u8], stride: usize) -> Result<(), Flaw>;
}

/// The pixels of an image: all there, or yet to come.
pub enum Decoded<'a> {
    /// All there.
    Whole(&'a RgbImage),
    /// Made while they are read, so that they need not be kept.
    Rows(Box<dyn PixelRows + 'a>),
}

impl Decoded<'_> {
    /// Pixels across and down.
    pub fn size(&self) -> Size {
        match self {
            Self::Whole(image) => Size { width: image.width as u32, height: image.height as u32 },
            Self::Rows(rows) => rows.size(),
        }
    }
}
