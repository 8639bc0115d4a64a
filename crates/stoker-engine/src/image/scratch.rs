//! How much memory decoding takes, so that large images can ask for it before they are decoded.
//!
//! What counts is all that is held at once: the pixels in each form that they pass through, and what
//! the library below keeps of the whole image. What is read by the row is not counted.

use super::rgb::Layout;
use super::{jpeg, png, webp_ffi};
use crate::sample::{ImageFormat, ImageHeader};

/// Most bytes that are held while an image is decoded whose header was inspected.
pub fn scratch(bytes: &[u8], header: &ImageHeader) -> u64 {
    let pixels = header.stored.pixels();
    let turned = if header.orientation == 1 { 0 } else { 3 };
    let besides = match header.format {
        ImageFormat::Jpeg => return pixels * (3 + turned) + jpeg::scratch(bytes, pixels),
        ImageFormat::Png => png::scratch(bytes),
        ImageFormat::WebP => of_webp(bytes),
        // The indices of the frame.
        ImageFormat::Gif => 1,
        // Before it is RGB.
        ImageFormat::Bmp => Layout::Rgba.bytes(),
    };
    pixels * (3 + turned + besides as u64)
}

/// Bytes for each pixel: RGBA, libwebp's own pixels of a lossless image, or its plane of alpha.
fn of_webp(bytes: &[u8]) -> usize {
    let Ok(features) = webp_ffi::features(bytes) else { return 8 };
    match (features.lossy, features.alpha) {
        (true, false) => 0,
        (true, true) => Layout::Rgba.bytes() + 1,
        (false, false) => 4,
        (false, true) => Layout::Rgba.bytes() + 4,
    }
}
