//! Filling: an encoded image becomes patches in its slot, decoded while they are made.
//!
//! Two rooms work at the same time here, and the report wants to know how long each took: the rows of
//! an image are timed while they are decoded, and the rest of the time is the vision room's.

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use super::block::Slot;
use super::boundary::{PANIC, contained};
use super::measure::of_image;
use super::rooms::Rooms;
use super::workers::Bench;
use crate::error::Flaw;
use crate::image::Decoder;
use crate::metrics::{Room, Span, Stopwatch, Tracer};
use crate::sample::{Decoded, EncodedImage, ImagePlan, PixelRows, RgbImage, Size};
use crate::vision::Scratch;

/// What traces call the decoding of some rows, within what is done with the image.
const DECODE: &str = "decode";

impl Rooms {
    /// Writes the mean colour in place of an image that is not shown.
    pub(super) fn hide(&self, plan: &ImagePlan, slot: &mut [u8]) {
        let meter = self.metrics.room(Room::Vision);
        let _busy = meter.enter();
        let _span = self.metrics.trace.span("write mean colour", Vec::new);
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
        let (begin, decoding) = (Stopwatch::start(), Cell::default());
        let _span = self.image_span("image", image);
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

    /// Gets the pages of memory that was never used.
    pub(super) fn get_pages(&self, slot: &mut Slot) {
        if slot.is_fresh() {
            let _span = self.metrics.trace.span("take memory", Vec::new);
            slot.fault_in();
        }
    }

    /// What a worker does with an image, for traces.
    fn image_span(&self, name: &'static str, image: &EncodedImage) -> Span<'_> {
        let told = || {
            let stored = image.header.stored;
            let size = format!("{} x {}", stored.width, stored.height);
            vec![("image", image.name.clone().into()), ("size", size.into())]
        };
        self.metrics.trace.span(name, told)
    }

    /// Opens an image, so that the time of all decoding is added to `decoding`.
    fn open_image<'a>(
        &'a self,
        image: &'a EncodedImage,
        decoder: &'a mut Decoder,
        decoding: &'a Cell<Duration>,
    ) -> Result<Decoded<'a>, Flaw> {
        let (limits, seen) = (&self.recipe.image, image.plan.resized);
        let begin = Stopwatch::start();
        let opened = decoder.open(&image.bytes, &image.header, seen, limits, self.rgb);
        decoding.set(begin.elapsed());
        self.metrics.trace.since(DECODE, begin);
        #[cfg(any(test, feature = "testing"))]
        crate::testing::panic_at(crate::testing::IN_DECODING, &image.bytes);
        Ok(match opened? {
            Decoded::Rows(rows) => {
                let trace = &self.metrics.trace;
                Decoded::Rows(Box::new(Timed { rows, spent: decoding, trace }))
            }
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
        let _span = self.image_span(DECODE, image);
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
        let _span = self.metrics.trace.span("resize and patchify", Vec::new);
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
    trace: &'a Tracer,
}

impl PixelRows for Timed<'_> {
    fn size(&self) -> Size {
        self.rows.size()
    }

    fn read(&mut self, count: usize, out: &mut [u8], stride: usize) -> Result<(), Flaw> {
        let begin = Stopwatch::start();
        let outcome = self.rows.read(count, out, stride);
        self.spent.set(self.spent.get() + begin.elapsed());
        self.trace.since(DECODE, begin);
        outcome
    }
}
