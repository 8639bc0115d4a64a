//! The size an image is resized to: `smart_resize`.
//!
//! Both sides become multiples of one merged block (`factor` = patch size × merge size), the area
//! stays within the limits and the aspect ratio nearly as it was. Two variants are in use and differ
//! for thin images: transformers' `smart_resize` (`models/qwen2_vl/image_processing_qwen2_vl.py`)
//! and qwen-vl-utils' (`vision_process.py`). Both compute in f64 and round ties to even, as Python
//! does; the order of the divisions below is theirs, because the last bit decides a whole block.

use crate::error::Flaw;
use crate::metrics::Room;
use crate::recipe::SizeRule;
use crate::sample::Size;

/// Longest side divided by the shortest, at most.
const MAX_RATIO: f64 = 200.0;

/// What bounds the resized image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    /// Side of a merged block, in pixels.
    pub(super) factor: u32,
    /// Fewest pixels.
    pub(super) min_pixels: u64,
    /// Most pixels.
    pub(super) max_pixels: u64,
}

/// The size that an image of `size` is resized to.
pub(super) fn smart_resize(size: Size, bounds: Bounds, rule: SizeRule) -> Result<Size, Flaw> {
    let (height, width) = (f64::from(size.height), f64::from(size.width));
    let ratio = height.max(width) / height.min(width);
    // An empty image has no ratio (NaN), which no comparison with the limit would catch.
    if size.pixels() == 0 || ratio > MAX_RATIO {
        return Err(too_thin(size, &format!("its sides are {ratio:.1} to 1")));
    }
    let factor = f64::from(bounds.factor);
    let (least, least_shrunk) = match rule {
        SizeRule::Transformers => (0.0, factor),
        SizeRule::QwenVlUtils => (factor, 0.0),
    };
    let near = |side: f64| ((side / factor).round_ties_even() * factor).max(least);
    let (min, max) = (bounds.min_pixels as f64, bounds.max_pixels as f64);
    let area = near(height) * near(width);
    let (new_height, new_width) = if area > max {
        let beta = (height * width / max).sqrt();
        let shrunk = |side: f64| ((side / beta / factor).floor() * factor).max(least_shrunk);
        (shrunk(height), shrunk(width))
    } else if area < min {
        let beta = (min / (height * width)).sqrt();
        let grown = |side: f64| (side * beta / factor).ceil() * factor;
        (grown(height), grown(width))
    } else {
        (near(height), near(width))
    };
    let resized = Size { width: new_width as u32, height: new_height as u32 };
    if resized.pixels() == 0 {
        return Err(too_thin(size, "within the limits on pixels its short side vanishes"));
    }
    Ok(resized)
}

fn too_thin(size: Size, why: &str) -> Flaw {
    let Size { width, height } = size;
    let reason = format!("an image of {width}x{height} is too thin for the model: {why}");
    Flaw::new(Room::Vision, "aspect-ratio", reason)
        .hint("the model takes sides of up to 200 to 1; crop the image")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN3: Bounds = Bounds { factor: 32, min_pixels: 65_536, max_pixels: 16_777_216 };

    fn size(height: u32, width: u32) -> Size {
        Size { width, height }
    }

    #[test]
    fn the_two_rules_differ_for_thin_images_as_the_references_do() {
        let bounds = Bounds { min_pixels: 4096, ..QWEN3 };
        let of = |rule| smart_resize(size(1363, 8), bounds, rule).unwrap();
        assert_eq!(of(SizeRule::Transformers), size(864, 32));
        assert_eq!(of(SizeRule::QwenVlUtils), size(1376, 32));
    }

    #[test]
    fn images_beyond_the_ratio_are_flawed_and_those_at_it_are_not() {
        for rule in [SizeRule::Transformers, SizeRule::QwenVlUtils] {
            assert!(smart_resize(size(1, 200), QWEN3, rule).is_ok());
            for bad in [size(1, 201), size(201, 1), size(0, 5), size(5, 0), size(0, 0)] {
                let flaw = smart_resize(bad, QWEN3, rule).unwrap_err();
                assert_eq!((flaw.room, flaw.code), (Room::Vision, "aspect-ratio"));
                assert!(flaw.hint.is_some());
            }
        }
    }

    #[test]
    fn a_side_that_shrinks_to_nothing_is_a_flaw_rather_than_an_empty_image() {
        let bounds = Bounds { min_pixels: 1024, max_pixels: 32_768, ..QWEN3 };
        let flaw = smart_resize(size(6400, 32), bounds, SizeRule::QwenVlUtils).unwrap_err();
        assert_eq!(flaw.code, "aspect-ratio");
        let kept = smart_resize(size(6400, 32), bounds, SizeRule::Transformers).unwrap();
        assert_eq!(kept, size(2560, 32));
    }
}
