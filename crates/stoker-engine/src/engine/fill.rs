//! Filling: an encoded image becomes patches in its slot, decoded while they are made.
//!
//! Two rooms work at the same time here, and the report wants to know how long each took: the rows of
//! an image are timed while they are decoded, and the rest of the time is the vision room's.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::boundary::{PANIC, contained};
use super::measure::of_image;
use super::rooms::Rooms;
use super::workers::Bench;
use crate::error::Flaw;
use crate::image::Decoder;
use crate::metrics::Room;
use crate::sample::{Decoded, EncodedImage, ImagePlan, PixelRows, RgbImage, Size};
use crate::vision::Scratch;

impl Rooms {
    /// Writes the mean colour in place of an image that is not shown.
    pub(super) fn hide(&self, plan: &ImagePlan, slot: &mut [u8]) {
        let meter = self.metrics.room(Room::Vision);
        let _busy = meter.enter();
        meter.bytes.add(slot.len() as u64);
        self.vision.write_neutral(plan, slot);
    }

    /// Decodes an image and writes its patches; on a flaw, the mean colour.
    pub(super) fn fill(
        &self,
        image: &EncodedImage,
        slot: &mut [u8],
        bench: &mut Bench,
    ) -> Result<(), Flaw> {
        let (begin, decoding) = (Instant::now(), Cell::default());
        let written = contained(Room::Image, || {
            let Bench { decoder, scratch } = &mut *bench;
            let decoded = self.open_image(image, decoder, &decoding)?;
            let pixels = decoded.size().pixels();
            self.vision.write(decoded, &image.plan, slot, scratch).map(|()| pixels)
        });
        let written = written.map_err(|flaw| of_image(flaw, &image.name));
        if let Err(flaw) = &written {
            self.vision.write_neutral(&image.plan, slot);
            clear_after(flaw, bench);
        }
        let (decoding, all) = (decoding.get(), begin.elapsed());
        let pixels = written.as_ref().map_or(0, |pixels| *pixels);
        self.metrics.room(Room::Image).count(decoding, pixels * 3);
        self.metrics.room(Room::Vision).count(all.saturating_sub(decoding), slot.len() as u64);
        written.map(drop)
    }

    /// Opens an image, so that the time of all decoding is added to `decoding`.
    fn open_image<'a>(
        &self,
        image: &'a EncodedImage,
        decoder: &'a mut Decoder,
        decoding: &'a Cell<Duration>,
    ) -> Result<Decoded<'a>, Flaw> {
        let (limits, seen) = (&self.recipe.image, image.plan.resized);
        let begin = Instant::now();
        let opened = decoder.open(&image.bytes, &image.header, seen, limits, self.rgb);
        decoding.set(begin.elapsed());
        #[cfg(any(test, feature = "testing"))]
        crate::testing::panic_at(crate::testing::IN_DECODING, &image.bytes);
        Ok(match opened? {
            Decoded::Rows(rows) => Decoded::Rows(Box::new(Timed { rows, spent: decoding })),
            whole @ Decoded::Whole(_) => whole,
        })
    }

    /// Decodes an image: all of a sample's way through the rooms that may still fail once it is
    /// measured.
    pub(super) fn decode<'a>(
        &self,
        image: &EncodedImage,
        decoder: &'a mut Decoder,
    ) -> Result<&'a RgbImage, Flaw> {
        let meter = self.metrics.room(Room::Image);
        let _busy = meter.enter();
        let (limits, seen) = (&self.recipe.image, image.plan.resized);
        let rgb = contained(Room::Image, move || {
            #[cfg(any(test, feature = "testing"))]
            crate::testing::panic_at(crate::testing::IN_DECODING, &image.bytes);
            decoder.decode_for(&image.bytes, &image.header, seen, limits, self.rgb)
        });
        let rgb = rgb.map_err(|flaw| of_image(flaw, &image.name))?;
        meter.bytes.add(rgb.pixels.len() as u64);
        Ok(rgb)
    }

    /// Writes some strips of the patches of a decoded image.
    pub(super) fn write(
        &self,
        image: &RgbImage,
        plan: &ImagePlan,
        strips: Range<usize>,
        slot: &mut [u8],
        scratch: &mut Scratch,
    ) {
        let meter = self.metrics.room(Room::Vision);
        let _busy = meter.enter();
        meter.bytes.add(slot.len() as u64);
        let written = self.vision.write_strips(Decoded::Whole(image), plan, strips, slot, scratch);
        written.expect("nothing is wrong with pixels that are there");
    }

    /// An image as the model sees it.
    pub(super) fn look(&self, image: &EncodedImage, bench: &mut Bench) -> Result<RgbImage, Flaw> {
        let decoding = Cell::default();
        let seen = contained(Room::Image, || {
            let decoded = self.open_image(image, &mut bench.decoder, &decoding)?;
            self.vision.resize(decoded, &image.plan, &mut bench.scratch)
        });
        seen.map_err(|flaw| of_image(flaw, &image.name))
    }
}

/// What a panic left of scratch memory is nobody's.
fn clear_after(flaw: &Flaw, bench: &mut Bench) {
    if flaw.code == PANIC {
        *bench = Bench::default();
    }
}

/// Rows whose decoding is timed.
struct Timed<'a> {
    rows: Box<dyn PixelRows + 'a>,
    spent: &'a Cell<Duration>,
}

impl PixelRows for Timed<'_> {
    fn size(&self) -> Size {
        self.rows.size()
    }

    fn read(&mut self, count: usize, out: &mut [u8], stride: usize) -> Result<(), Flaw> {
        let begin = Instant::now();
        let outcome = self.rows.read(count, out, stride);
        self.spent.set(self.spent.get() + begin.elapsed());
        outcome
    }
}
