//! Windows bitmaps, by the `image` crate.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::bmp::BmpDecoder;
use image::error::ImageError;

use super::bytes::{le16, le32};
use super::rgb::{Layout, composites, convert};
use super::{Head, bad_header, corrupt, resize, truncated, unsupported};
use crate::error::Flaw;
use crate::recipe::{RgbRules, SixteenBit};
use crate::sample::Size;

pub(super) fn head(bytes: &[u8]) -> Result<Head<'_>, Flaw> {
    // The first header of OS/2 has 12 bytes and short sides; all later ones begin alike.
    let (width, height) = match le32(bytes, 14) {
        Some(12) => (le16(bytes, 18).map(u32::from), le16(bytes, 20).map(u32::from)),
        // A negative height says that rows come from the top.
        Some(_) => {
            (le32(bytes, 18), le32(bytes, 22).map(|height| height.cast_signed().unsigned_abs()))
        }
        None => (None, None),
    };
    let (width, height) = width.zip(height).ok_or_else(truncated)?;
    Ok(Head { size: Size { width, height }, exif: None, scans: 1 })
}

pub(super) fn decode(
    bytes: &[u8],
    size: Size,
    rules: RgbRules,
    raw: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), Flaw> {
    let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(refuse)?;
    if decoder.dimensions() != (size.width, size.height) {
        return Err(bad_header("it contradicts itself"));
    }
    let layout = match decoder.color_type() {
        image::ColorType::Rgb8 => return decoder.read_image(out).map_err(refuse),
        image::ColorType::Rgba8 => Layout::Rgba,
        image::ColorType::L8 => Layout::Grey,
        _ => return Err(unsupported("a bitmap of this kind")),
    };
    resize(raw, size.pixels() * layout.bytes() as u64)?;
    decoder.read_image(raw).map_err(refuse)?;
    convert(layout, composites(rules, true), SixteenBit::Scale, raw, out);
    Ok(())
}

fn refuse(error: ImageError) -> Flaw {
    match error {
        ImageError::IoError(_) => truncated(),
        ImageError::Unsupported(_) => unsupported("a bitmap of this kind"),
        error => corrupt(error),
    }
}
