//! The option to decode at a half, a quarter or an eighth of the size.

use super::{golden, repository};
use crate::image::{Decoder, inspect};
use crate::recipe::{self, Compat};
use crate::sample::{Decoded, RgbImage, Size};

/// What comes of a file that will be seen at that size.
fn opened(bytes: &[u8], seen: (u32, u32), approximate: bool) -> RgbImage {
    let (limits, rules) =
        (recipe::Image { approximate, ..recipe::Image::default() }, Compat::AsDisplayed.rgb());
    let header = inspect(bytes, &limits, rules).unwrap();
    let seen = Size { width: seen.0, height: seen.1 };
    let mut decoder = Decoder::default();
    match decoder.open(bytes, &header, seen, &limits, rules).unwrap() {
        Decoded::Whole(image) => image.clone(),
        Decoded::Rows(mut rows) => {
            let Size { width, height } = rows.size();
            let (width, height) = (width as usize, height as usize);
            let mut pixels = vec![0; width * height * 3];
            rows.read(height, &mut pixels, width * 3).unwrap();
            RgbImage { width, height, pixels }
        }
    }
}

/// The mean of blocks of pixels: what an image shrunk so is about.
fn shrunk(image: &RgbImage, by: usize) -> RgbImage {
    let (width, height) = (image.width / by, image.height / by);
    let mut pixels = Vec::new();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        for channel in 0..3 {
            let at =
                |dy, dx| image.pixels[((y * by + dy) * image.width + x * by + dx) * 3 + channel];
            let sum: usize =
                (0..by * by).map(|index| usize::from(at(index / by, index % by))).sum();
            pixels.push((sum / (by * by)) as u8);
        }
    }
    RgbImage { width, height, pixels }
}

/// Decibels of the peak above what differs.
fn psnr(one: &RgbImage, other: &RgbImage) -> f64 {
    let mut squares = 0.0;
    for (one, other) in one.pixels.iter().zip(&other.pixels) {
        squares += (f64::from(*one) - f64::from(*other)).powi(2);
    }
    10.0 * (255.0 * 255.0 * one.pixels.len() as f64 / squares).log10()
}

#[test]
fn only_an_image_of_twice_the_size_in_both_directions_is_shrunk_and_only_if_asked() {
    let bytes = golden("images/a_444.jpg");
    let full = opened(&bytes, (1, 1), false);
    let (width, height) = (full.width as u32, full.height as u32);
    assert!(width.is_multiple_of(8), "rows of blocks of pixels are whole: {width}");
    for (seen, by) in [
        ((width, height), 1),
        ((width / 2 + 1, height / 2), 1),
        ((width / 2, height / 2 + 1), 1),
        ((width / 2, height / 2), 2),
        ((width / 4 + 1, height / 4), 2),
        ((width / 4, height / 4), 4),
        ((width / 8, height / 8), 8),
        ((1, 1), 8),
    ] {
        let image = opened(&bytes, seen, true);
        let size = (image.width as u32, image.height as u32);
        assert_eq!(size, (width / by, height.div_ceil(by)), "seen at {seen:?}");
        assert!(opened(&bytes, seen, false) == full, "not asked for");
        let close = psnr(&image, &shrunk(&full, by as usize));
        assert!(by == 1 || close > 30.0, "by {by}: {close} dB");
    }
}

#[test]
fn images_that_lie_on_their_side_are_shrunk_as_they_stand() {
    let bytes = golden("images/k_exif6.jpg");
    let full = opened(&bytes, (10_000, 10_000), true);
    let image = opened(&bytes, (full.width as u32 / 2, full.height as u32 / 2), true);
    let half = (full.width.div_ceil(2), full.height.div_ceil(2));
    assert_eq!((image.width, image.height), half);
    let close = psnr(&image, &shrunk(&full, 2));
    assert!(close > 25.0, "{close} dB");
}

#[test]
fn other_formats_stay_as_they_are() {
    let path = repository().join("testdata/golden/images/d_tall.png");
    let bytes = std::fs::read(path).unwrap();
    assert!(opened(&bytes, (1, 1), true) == opened(&bytes, (1, 1), false));
}
