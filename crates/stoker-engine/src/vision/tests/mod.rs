//! Tests of the room as a whole: the kernels against their scalar twins, the neutral image, and
//! what is refused at the door.

mod door;
mod kernels;

use super::{Preprocessor, Scratch};
use crate::error::Flaw;
use crate::metrics::Room;
use crate::recipe::{self, Compat, Pixels};
use crate::sample::{Decoded, ImagePlan, PixelRows, RgbImage, Size};

/// A preprocessor of a family.
fn open(family: &str, pixels: Pixels, compat: Compat) -> Preprocessor {
    let config = recipe::Vision { family: Some(family.into()), pixels, ..Default::default() };
    Preprocessor::open(None, &config, compat).unwrap()
}

/// An image that is made while it is read, as far as anybody can tell.
struct Read<'a> {
    image: &'a RgbImage,
    row: usize,
    fails_at: Option<usize>,
}

impl PixelRows for Read<'_> {
    fn size(&self) -> Size {
        size_of(self.image)
    }

    fn read(&mut self, count: usize, out: &mut [u8], stride: usize) -> Result<(), Flaw> {
        if self.fails_at.is_some_and(|row| row < self.row + count) {
            return Err(Flaw::new(Room::Image, "corrupt", "a test"));
        }
        let length = self.image.width * 3;
        let rows = self.image.pixels.chunks_exact(length).skip(self.row).take(count);
        assert_eq!(rows.len(), count, "no more rows are asked for than there are");
        out.chunks_mut(stride).zip(rows).for_each(|(out, row)| out[..length].copy_from_slice(row));
        self.row += count;
        Ok(())
    }
}

/// An image as one that is made while it is read.
fn read(image: &RgbImage) -> Decoded<'_> {
    Decoded::Rows(Box::new(Read { image, row: 0, fails_at: None }))
}

/// Patches of an image on memory that begins at a multiple of 64 bytes, as arenas do.
fn write(preprocessor: &Preprocessor, image: &RgbImage, plan: &ImagePlan) -> Vec<u8> {
    let whole = write_decoded(preprocessor, Decoded::Whole(image), plan);
    assert!(write_decoded(preprocessor, read(image), plan) == whole, "however the pixels come");
    whole
}

fn write_decoded(preprocessor: &Preprocessor, image: Decoded<'_>, plan: &ImagePlan) -> Vec<u8> {
    let len = plan.grid.patches() * preprocessor.columns() * preprocessor.dtype().size();
    let mut memory = vec![0xaa; len + 64];
    let start = memory.as_ptr().align_offset(64);
    let slot = &mut memory[start..][..len];
    preprocessor.write(image, plan, slot, &mut Scratch::default()).unwrap();
    assert!(memory[..start].iter().all(|byte| *byte == 0xaa), "nothing before the slot is written");
    assert!(memory[start + len..].iter().all(|byte| *byte == 0xaa), "nor behind it");
    memory[start..][..len].to_vec()
}

fn size_of(image: &RgbImage) -> Size {
    Size { width: image.width as u32, height: image.height as u32 }
}

#[test]
fn the_neutral_image_is_the_mean_colour_in_all_types() {
    for family in ["qwen2-vl", "qwen3-vl"] {
        for pixels in [Pixels::F32, Pixels::Bf16, Pixels::U8] {
            let preprocessor = open(family, pixels, Compat::AsDisplayed);
            let mean = preprocessor.layout.normalise.mean.map(|mean| (mean * 255.0).round() as u8);
            let image = RgbImage { width: 64, height: 96, pixels: mean.repeat(64 * 96) };
            let plan = preprocessor.plan(size_of(&image)).unwrap();
            let written = write(&preprocessor, &image, &plan);
            let mut neutral = vec![0xaa; written.len()];
            preprocessor.write_neutral(&plan, &mut neutral);
            assert!(neutral == written, "{family} {pixels:?}");
        }
    }
}

#[test]
fn an_image_that_keeps_its_size_is_seen_as_it_is() {
    let preprocessor = open("qwen3-vl", Pixels::F32, Compat::AsDisplayed);
    let image = kernels::image(3, 256, 288);
    let plan = preprocessor.plan(size_of(&image)).unwrap();
    let seen = preprocessor.resize(Decoded::Whole(&image), &plan, &mut Scratch::default());
    assert_eq!(seen.unwrap(), image);
}

#[test]
fn one_scratch_serves_images_of_all_sizes_in_any_order() {
    let preprocessor = open("qwen3-vl", Pixels::U8, Compat::TransformersPilBackend);
    let mut scratch = Scratch::default();
    for (width, height) in [(900, 40), (64, 700), (33, 33), (900, 40), (500, 1200), (64, 700)] {
        let image = kernels::image(1, width, height);
        let plan = preprocessor.plan(size_of(&image)).unwrap();
        let mut out = vec![0; plan.grid.patches() * preprocessor.columns()];
        for decoded in [Decoded::Whole(&image), read(&image)] {
            preprocessor.write(decoded, &plan, &mut out, &mut scratch).unwrap();
            assert!(out == write(&preprocessor, &image, &plan), "{width}x{height}");
            out.fill(0);
        }
    }
}

#[test]
fn what_is_wrong_with_an_image_comes_out_wherever_it_is() {
    let preprocessor = open("qwen3-vl", Pixels::F32, Compat::AsDisplayed);
    for (width, height) in [(256, 288), (300, 301), (256, 301), (300, 288)] {
        let image = kernels::image(1, width, height);
        let plan = preprocessor.plan(size_of(&image)).unwrap();
        for row in [0, 16, 150, height - 1] {
            let decoded =
                Decoded::Rows(Box::new(Read { image: &image, row: 0, fails_at: Some(row) }));
            let mut out = vec![0; plan.grid.patches() * preprocessor.columns() * 4];
            let written = preprocessor.write(decoded, &plan, &mut out, &mut Scratch::default());
            assert_eq!(written.unwrap_err().code, "corrupt", "{width}x{height} {row}");
        }
    }
}
