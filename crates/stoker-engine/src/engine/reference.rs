//! The engine as a plain loop: slow, one thing after the other, and the definition of what the fast
//! engine does. Whatever the number of workers, the budget or the order in which bytes arrive, the
//! fast engine's batches are byte-identical to these.

use std::sync::Arc;

use bytes::Bytes;

use super::batch::{About, Batch};
use super::block::{Draft, Slot};
use super::measure::{ImageBytes, Reach};
use super::peek::Peek;
use super::pool::Pool;
use super::rooms::{Rooms, flaw_of};
use super::windows::{FIRST_WINDOW, OpenWindow, Outline};
use super::workers::Bench;
use crate::error::{BadSample, Error, Flaw, Outcome, Result, SampleError};
use crate::image;
use crate::pack::{Layout, Packed, SampleSize, Window};
use crate::sample::{
    BatchName, Extent, ImageRef, Measured, Position, RawSample, Sample, SampleId, Standing,
    WindowStart,
};

/// Makes batches one by one.
#[derive(Debug)]
pub struct Reference {
    rooms: Arc<Rooms>,
    pool: Arc<Pool>,
    bench: Bench,
    window: Option<OpenWindow>,
    taken: u64,
}

impl Reference {
    /// A loop over opened rooms.
    pub fn new(rooms: Arc<Rooms>) -> Self {
        let pool = Pool::new(usize::MAX / 4, Arc::clone(&rooms.metrics));
        Self { rooms, pool, bench: Bench::default(), window: None, taken: 0 }
    }

    /// Makes one batch of the global sequence; one without anything, where samples are packed and the
    /// run ends before it.
    pub fn batch(&mut self, sequence: u64) -> Result<Batch> {
        let name = self.rooms.plan.batch(sequence);
        let (mut samples, mut bad) = (Vec::new(), Vec::new());
        let outline = self.outline(sequence)?;
        if outline.samples.is_empty() {
            return Ok(Batch::behind_the_end(name, sequence, &outline));
        }
        for planned in &outline.samples {
            let (sample, met) = self.find(planned.position, Reach::Whole)?;
            samples.push(sample);
            bad.extend(met);
        }
        for left_out in self.rooms.left_out(&outline.samples, &samples.iter().collect::<Vec<_>>()) {
            self.rooms.tell_left_out(&samples.remove(left_out), &mut bad)?;
        }
        let layout = self.rooms.layout(&samples);
        let (mut slots, seal) = self.draft(layout.bytes)?.split(&slot_ranges(&layout));
        let mut rest = slots.pop().expect("the last slot is for the rest");
        let mut slots = slots.into_iter();
        for sample in &mut samples {
            if let Some(flaw) = self.fill(sample, &mut slots) {
                let error = self.rooms.bad(sample.id, flaw, &sample.origin)?;
                bad.push(error.into_bad(Outcome::Neutralised));
                sample.standing = Standing::Neutral;
            }
        }
        let learned: Vec<bool> = samples.iter().map(Measured::is_shown).collect();
        self.rooms.write_rest(&layout, &samples, &learned, &mut rest);
        drop(rest);
        let mut batch = finished(name, sequence, &samples, layout, seal.lease(), bad);
        batch.tell(&outline);
        Ok(batch)
    }

    /// What is known of a batch. Where samples are packed, opens all windows up to its own, one after
    /// the other, and the one behind the last for what comes behind the end.
    fn outline(&mut self, sequence: u64) -> Result<Outline> {
        let Some(number) = self.rooms.window_of(sequence) else {
            return self.rooms.outline(sequence);
        };
        let mut window = match self.window.take() {
            Some(window) if window.start.number <= number => window,
            _ => self.open(FIRST_WINDOW)?,
        };
        while window.start.number < number && window.end().is_none() {
            window = self.open(window.next())?;
        }
        let samples = if !window.ends_before(sequence) {
            window.samples(sequence)
        } else if let Some(behind) = self.rooms.window_behind()? {
            let packed = self.filled(window.next(), behind)?;
            window.behind(packed).samples(sequence)
        } else {
            Vec::new()
        };
        let outline = window.outline(samples);
        self.window = Some(window);
        Ok(outline)
    }

    fn open(&mut self, start: WindowStart) -> Result<OpenWindow> {
        let packed = self.filled(start, self.rooms.empty_window(start)?)?;
        Ok(self.rooms.opened(start, packed))
    }

    fn filled(&mut self, start: WindowStart, mut window: Window) -> Result<Packed> {
        for position in start.position.0.. {
            if window.is_complete() {
                break;
            }
            let (sample, _) = self.find(Position(position), Reach::Beginning)?;
            window.push(SampleSize::of(&sample));
        }
        Ok(window.pack())
    }

    /// One sample as the model sees it. A bad sample is an error.
    pub(crate) fn peek(&mut self, position: Position) -> Result<Peek> {
        let id = self.rooms.plan.sample_at(position);
        let origin = self.rooms.catalog.origin(id);
        let bad = |flaw| {
            let origin = origin.clone();
            Error::Sample(Box::new(SampleError { id, flaw, origin }))
        };
        let sample = self.read(id)?.map_err(bad)?;
        let conversation = sample.conversation.clone();
        let measured = self.measure(sample, Reach::Whole)?.map_err(bad)?;
        let mut images = Vec::new();
        for image in &measured.images {
            let resized = self.rooms.look(image, &mut self.bench).map_err(bad)?;
            images.push((image.plan.grid, resized));
        }
        let text = &measured.text;
        let token = |(&id, &trained): (&u32, &bool)| (id, self.rooms.text.token_text(id), trained);
        let tokens = text.tokens.iter().zip(&text.trained).map(token).collect();
        Ok(Peek { id, origin, conversation, tokens, images })
    }

    fn find(&mut self, position: Position, reach: Reach) -> Result<(Measured, Vec<BadSample>)> {
        let mut bad = Vec::new();
        for attempt in 0.. {
            let id = self.rooms.candidate(position, attempt, &bad)?;
            match self.try_sample(id, reach)? {
                Ok(measured) => return Ok(self.rooms.standing(position, measured, bad)),
                Err(flaw) => {
                    bad.push(self.rooms.bad(id, flaw, &self.rooms.catalog.origin(id))?);
                }
            }
        }
        unreachable!("candidates end with an error")
    }

    fn try_sample(&self, id: SampleId, reach: Reach) -> Result<Result<Measured, Flaw>> {
        match self.read(id)? {
            Ok(sample) => self.measure(sample, reach),
            Err(flaw) => Ok(Err(flaw)),
        }
    }

    fn read(&self, id: SampleId) -> Result<Result<Sample, Flaw>> {
        let rooms = &self.rooms;
        let extent = match rooms.catalog.locate(id) {
            Ok(extent) => extent,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let bytes = rooms.fetcher.read_blocking(&extent)?;
        let raw = RawSample { id, bytes, origin: rooms.catalog.origin(id) };
        Ok(rooms.parse(&raw))
    }

    fn measure(&self, sample: Sample, reach: Reach) -> Result<Result<Measured, Flaw>> {
        let mut images: Vec<ImageBytes> = Vec::new();
        for image in &sample.images {
            match image {
                ImageRef::Inline(bytes) => images.push(bytes.clone().into()),
                ImageRef::Stored(extent) => match self.read_image(extent) {
                    Ok(bytes) => images.push(self.seen(bytes, reach)),
                    Err(error) => {
                        let is_foreign = |uri: &str| self.rooms.catalog.is_foreign(uri);
                        return flaw_of(error, is_foreign).map(Err);
                    }
                },
            }
        }
        self.rooms.measure(sample, images)
    }

    /// What is seen of an image.
    fn seen(&self, bytes: Bytes, reach: Reach) -> ImageBytes {
        let beginning = bytes.slice(..bytes.len().min(image::BEGINNING));
        match reach {
            Reach::Whole => bytes.into(),
            Reach::Beginning => {
                let seen = self.rooms.glance(&beginning, bytes.len() as u64);
                seen.unwrap_or_else(|| bytes.into())
            }
        }
    }

    fn read_image(&self, extent: &Extent) -> Result<Bytes> {
        let bytes = self.rooms.fetcher.read_blocking(extent)?;
        self.rooms.admissible(extent, bytes.len() as u64)?;
        Ok(bytes)
    }

    fn fill(&mut self, sample: &Measured, slots: &mut impl Iterator<Item = Slot>) -> Option<Flaw> {
        let mut first = None;
        for image in &sample.images {
            let mut slot = slots.next().expect("a slot for each image");
            if !sample.is_shown() {
                self.rooms.hide(&image.plan, &mut slot);
                continue;
            }
            let outcome = self.rooms.fill(image, &mut slot, &mut self.bench);
            first = first.or(outcome.err());
        }
        first
    }

    fn draft(&mut self, bytes: usize) -> Result<Draft> {
        let order = self.taken;
        self.taken += 1;
        self.pool.take_now(order, bytes)?.draft(bytes)
    }
}

/// Slots of all images in reading order, then one for all the rest.
pub(super) fn slot_ranges(layout: &Layout) -> Vec<std::ops::Range<usize>> {
    let mut ranges: Vec<_> = layout.slots.iter().flatten().cloned().collect();
    ranges.push(layout.rest());
    ranges
}

/// Puts the finished batch together.
pub(super) fn finished(
    name: BatchName,
    sequence: u64,
    samples: &[Measured],
    layout: Layout,
    lease: super::block::Lease,
    bad: Vec<BadSample>,
) -> Batch {
    let real = || samples.iter().filter(|sample| sample.standing != Standing::Padding);
    let ids: Vec<SampleId> = real().map(|sample| sample.id).collect();
    let neutral = std::iter::repeat_n(false, layout.neutral.len());
    let about = About {
        name,
        sequence,
        bad,
        samples: ids,
        sample_mask: samples.iter().map(Measured::is_shown).chain(neutral).collect(),
        tensors: layout.tensors,
        scalars: layout.scalars,
        tokens: real().map(|sample| sample.text.tokens.len() as u64).sum(),
        images: real().map(|sample| sample.images.len() as u64).sum(),
        windows: None,
        end: None,
        cursor: None,
    };
    Batch { about, lease: Arc::new(lease) }
}
