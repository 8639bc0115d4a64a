//! Each kernel gives the bytes of its scalar twin, for any size and content.

use proptest::prelude::*;

use super::super::config::{Layout, Model, Normalise};
use super::super::family::{CLIP, FAMILIES};
use super::super::size::Bounds;
use super::super::{Preprocessor, Scratch};
use super::{open, read, size_of, write};
use crate::recipe::{Compat, Pixels};
use crate::sample::{Decoded, Grid, ImagePlan, RgbImage, Size};
use crate::simd::Simd;

const COMPATS: [Compat; 2] = [Compat::AsDisplayed, Compat::TransformersPilBackend];
const PIXELS: [Pixels; 3] = [Pixels::F32, Pixels::Bf16, Pixels::U8];

/// Noise, by seed; every third seed gives nothing but extremes, which overshoot and are clamped.
pub(super) fn image(seed: u32, width: usize, height: usize) -> RgbImage {
    let mut state = seed;
    let pixels = (0..width * height * 3).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let byte = (state >> 24) as u8;
        if seed.is_multiple_of(3) { u8::from(byte > 127) * 255 } else { byte }
    });
    RgbImage { width, height, pixels: pixels.collect() }
}

/// A preprocessor with each of the machine's kernels, the first of them scalar.
fn with_each(preprocessor: Preprocessor) -> impl Iterator<Item = Preprocessor> {
    let with = move |simd| Preprocessor { simd, ..preprocessor.clone() };
    Simd::all().into_iter().map(with)
}

/// Whether all kernels resize an image to the same.
fn kernels_agree(preprocessor: Preprocessor, image: &RgbImage, to: (u32, u32)) -> bool {
    let mut all = with_each(preprocessor).map(|with| resized(&with, image, to));
    let truth = all.next();
    all.all(|other| Some(&other) == truth.as_ref())
}

fn resized(preprocessor: &Preprocessor, image: &RgbImage, to: (u32, u32)) -> RgbImage {
    let resized = Size { width: to.0, height: to.1 };
    let plan = ImagePlan { resized, grid: Grid { t: 1, h: 0, w: 0 } };
    let whole = preprocessor.resize(Decoded::Whole(image), &plan, &mut Scratch::default()).unwrap();
    let read = preprocessor.resize(read(image), &plan, &mut Scratch::default()).unwrap();
    assert!(read == whole, "however the pixels come");
    whole
}

/// A straight reading of the definition, pixel by pixel.
fn patches_of(preprocessor: &Preprocessor, image: &RgbImage, grid: Grid) -> Vec<u8> {
    let (patch, merge) = (preprocessor.patchify.patch, preprocessor.patchify.merge);
    let mut out = Vec::new();
    for row in 0..grid.patches() {
        let (mx, my) = (row % merge, row / merge % merge);
        let block = row / (merge * merge);
        let blocks = grid.w as usize / merge;
        let (left, top) = (block % blocks * merge + mx, block / blocks * merge + my);
        for channel in 0..3 {
            for _ in 0..preprocessor.patchify.copies {
                for (y, x) in (0..patch * patch).map(|index| (index / patch, index % patch)) {
                    let at = (top * patch + y) * image.width + left * patch + x;
                    let byte = image.pixels[at * 3 + channel];
                    out.extend(preprocessor.patchify.values.get(channel, byte));
                }
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn resize_kernels_equal_their_scalar_twins(
        seed in 0u32..1000,
        (width, height) in (1usize..600, 1usize..600),
        to in (1u32..600, 1u32..600),
        (keep_width, keep_height) in (prop::bool::weighted(0.1), prop::bool::weighted(0.1)),
        compat in prop::sample::select(&COMPATS[..]),
    ) {
        let image = image(seed, width, height);
        let to = (
            if keep_width { width as u32 } else { to.0 },
            if keep_height { height as u32 } else { to.1 },
        );
        prop_assert!(kernels_agree(open("qwen3-vl", Pixels::U8, compat), &image, to));
    }

    #[test]
    fn patches_equal_the_definition_in_all_types(
        seed in 0u32..1000,
        blocks in (1usize..12, 1usize..6),
        family in prop::sample::select(vec!["qwen2-vl", "qwen3-vl"]),
        compat in prop::sample::select(&COMPATS[..]),
        pixels in prop::sample::select(&PIXELS[..]),
    ) {
        let any = open(family, pixels, compat);
        let factor = any.bounds.factor as usize;
        let image = image(seed, blocks.0 * factor, blocks.1 * factor);
        let grid = Grid { t: 1, h: blocks.1 as u32 * 2, w: blocks.0 as u32 * 2 };
        let plan = ImagePlan { resized: size_of(&image), grid };
        let expected = patches_of(&any, &image, grid);
        for with in with_each(any) {
            prop_assert!(write(&with, &image, &plan) == expected, "{:?}", with.simd);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn strips_may_be_written_apart(
        seed in 0u32..1000,
        (width, height) in (30usize..500, 60usize..900),
        (compat, pixels) in (prop::sample::select(&COMPATS[..]), prop::sample::select(&PIXELS[..])),
        cut in 0.0f64..1.0,
    ) {
        let image = image(seed, width, height);
        let preprocessor = Preprocessor {
            bounds: Bounds { max_pixels: 200_000, ..open("qwen3-vl", pixels, compat).bounds },
            ..open("qwen3-vl", pixels, compat)
        };
        let plan = preprocessor.plan(size_of(&image)).unwrap();
        let whole = write(&preprocessor, &image, &plan);
        let strips = preprocessor.strips(&plan);
        let cut = (cut * strips as f64) as usize;
        let mut parts = vec![0; whole.len()];
        let (first, second) = parts.split_at_mut(cut * preprocessor.strip_bytes(&plan));
        for (range, part) in [(cut..strips, second), (0..cut, first)] {
            let whole = Decoded::Whole(&image);
            let scratch = &mut Scratch::default();
            preprocessor.write_strips(whole, &plan, range, part, scratch).unwrap();
        }
        prop_assert!(parts == whole);
    }
}

#[test]
fn images_shrunk_a_hundredfold_equal_their_scalar_twins() {
    for (width, height, to) in [(5000, 9, (28, 32)), (9, 5000, (32, 28)), (3000, 700, (30, 7))] {
        for compat in COMPATS {
            let (image, any) = (image(7, width, height), open("qwen3-vl", Pixels::U8, compat));
            assert!(kernels_agree(any, &image, to), "{width}x{height}");
        }
    }
}

/// Long enough for stores past the cache, which need an output at a multiple of 64 bytes.
#[test]
fn large_outputs_equal_their_scalar_twins_on_any_alignment() {
    let image = image(5, 700, 500);
    for family in FAMILIES {
        for pixels in PIXELS {
            let any = open(family.name, pixels, Compat::AsDisplayed);
            let plan = any.plan(size_of(&image)).unwrap();
            let mut truth = None;
            for with in with_each(any) {
                let aligned = write(&with, &image, &plan);
                let mut memory = vec![0; aligned.len() + 65];
                let start = memory.as_ptr().align_offset(64) + 1;
                let odd = &mut memory[start..][..aligned.len()];
                let whole = Decoded::Whole(&image);
                with.write(whole, &plan, odd, &mut Scratch::default()).unwrap();
                assert!(odd == aligned, "{} {:?}", family.name, with.simd);
                let truth = truth.get_or_insert_with(|| aligned.clone());
                assert!(*truth == aligned, "{} {:?}", family.name, with.simd);
            }
        }
    }
}

#[test]
fn patches_of_other_sizes_and_copies_equal_the_definition() {
    let normalise = Normalise { mean: [0.5; 3], ..CLIP };
    for (patch_size, temporal_patch_size, merge_size) in [(16, 1, 2), (14, 3, 1), (8, 2, 3)] {
        let layout = Layout { patch_size, temporal_patch_size, merge_size, normalise };
        let model = Model { layout, min_pixels: 1, max_pixels: 1 << 20 };
        for pixels in PIXELS {
            let preprocessor = Preprocessor::new(model, pixels, Compat::AsDisplayed);
            let side = patch_size * merge_size;
            let image = image(11, side as usize * 3, side as usize * 2);
            let plan = preprocessor.plan(size_of(&image)).unwrap();
            let expected = patches_of(&preprocessor, &image, plan.grid);
            assert!(write(&preprocessor, &image, &plan) == expected, "{layout:?}");
        }
    }
}
