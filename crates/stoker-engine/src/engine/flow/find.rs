//! Bringing in one sample: its line, its images, its measures; and where it is bad, a spare.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future;
use futures::stream::{FuturesOrdered, TryStreamExt};

use super::neighbours::{Held, Neighbour, RowOf};
use super::{Line, Permit, Turn};
use crate::engine::budget::Claim;
use crate::engine::measure::{ImageBytes, Reach};
use crate::engine::rooms::flaw_of;
use crate::error::{BadSample, Error, Flaw, Result};
use crate::fetch::Fetcher;
use crate::image;
use crate::sample::{
    EncodedText, Extent, ImageRef, Measured, Position, RawSample, Sample, SampleId,
};

/// Longer lines are counted until their sample is measured, and the tokens of longer texts until their
/// batch is made, in bytes. Usual ones are a few KiB, and not worth a permit. A long text takes some
/// sixty times its size while it is tokenised, so that is done to one at a time.
const LONG_LINE: u64 = 64 << 10;
const LONG_TEXT: u64 = 256 << 10;

/// A sample that can be used, and the bad ones that were met on the way to it.
pub(super) struct Found {
    pub(super) measured: Measured,
    pub(super) bad: Vec<BadSample>,
    /// For the compressed bytes that the sample still holds.
    pub(super) permits: Vec<Arc<Permit>>,
}

/// What images have weighed so far: an image's size is not known before it is asked for, and a
/// permit is needed before that.
#[derive(Debug)]
pub(super) struct TypicalImage(AtomicU64);

impl Default for TypicalImage {
    fn default() -> Self {
        Self(AtomicU64::new(256 << 10))
    }
}

impl TypicalImage {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A running mean over about the last 16 images; racing updates lose a little of it.
    fn learn(&self, size: u64) {
        let mean = self.bytes();
        self.0.store((mean * 15 + size) / 16, Ordering::Relaxed);
    }
}

/// Bytes that a text takes in memory.
fn bytes_of(text: &EncodedText) -> u64 {
    let EncodedText { tokens, trained, kinds, positions, .. } = text;
    let positions: usize = positions.iter().map(Vec::capacity).sum();
    let words = 4 * (tokens.capacity() + positions);
    (words + trained.capacity() + kinds.capacity()) as u64
}

impl Line {
    /// Brings in all samples of a batch, in the order of their positions.
    pub(super) async fn find_all(
        self: &Arc<Self>,
        claim: Claim,
        positions: &[Position],
    ) -> Result<Vec<Found>> {
        let own = positions.iter().map(|position| self.rooms.plan.sample_at(*position));
        let rows = self.side_by_side(claim, own, |_| false);
        let found = positions.iter().enumerate();
        let found = found.map(|(number, position)| self.find(claim, *position, rows.get(number)));
        found.collect::<FuturesOrdered<_>>().try_collect().await
    }

    async fn find(
        self: &Arc<Self>,
        claim: Claim,
        position: Position,
        own: RowOf<'_>,
    ) -> Result<Found> {
        let mut bad = Vec::new();
        for attempt in 0.. {
            let id = self.rooms.candidate(position, attempt, &bad)?;
            let row = Some(own).filter(|_| attempt == 0);
            match self.try_sample(claim, id, Reach::Whole, row).await? {
                Ok((measured, permits)) => {
                    let (measured, bad) = self.rooms.standing(position, measured, bad);
                    return Ok(Found { measured, bad, permits });
                }
                Err(flaw) => {
                    bad.push(self.rooms.bad(id, flaw, &self.rooms.catalog.origin(id))?);
                }
            }
        }
        unreachable!("candidates end with an error")
    }

    pub(super) async fn try_sample(
        self: &Arc<Self>,
        claim: Claim,
        id: SampleId,
        reach: Reach,
        row: Option<RowOf<'_>>,
    ) -> Result<Result<(Measured, Vec<Arc<Permit>>), Flaw>> {
        let located = row.and_then(RowOf::extent);
        let extent = match located.unwrap_or_else(|| self.rooms.catalog.locate(id)) {
            Ok(extent) => extent,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let neighbour = row.map(RowOf::neighbour);
        let (sample, line) = match self.read_line(claim, id, &extent, neighbour).await? {
            Ok(read) => read,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let near = self.images_side_by_side(claim, &sample.images, reach);
        let images = sample.images.iter().enumerate();
        let images =
            images.map(|(number, image)| self.bring(claim, image, reach, near.get(number)));
        let images = images.collect::<FuturesOrdered<_>>().try_collect::<Vec<_>>().await;
        let images = match images {
            Ok(images) => images,
            Err(error) => {
                let is_foreign = |uri: &str| self.rooms.catalog.is_foreign(uri);
                return flaw_of(error, is_foreign).map(Err);
            }
        };
        let (images, permits): (Vec<ImageBytes>, Vec<Option<Arc<Permit>>>) =
            images.into_iter().unzip();
        let mut permits: Vec<_> = permits.into_iter().flatten().chain(line).collect();
        let long = extent.range.as_ref().is_some_and(|range| range.end - range.start > LONG_TEXT);
        let alone = if long { Some(self.long_texts.acquire().await) } else { None };
        let rooms = Arc::clone(&self.rooms);
        let measure = move |_: &mut _| rooms.measure(sample, images);
        let swift = self.rooms.text.is_built();
        let turn = if swift { Turn::measure } else { Turn::measure_slowly };
        let measured = self.workers.run(turn(claim.batch), measure).await??;
        drop(alone);
        let Ok(measured) = measured else { return Ok(measured.map(|it| (it, Vec::new()))) };
        permits.extend(self.hold_text(claim, &measured).await?.map(Arc::new));
        Ok(Ok((measured, permits)))
    }

    /// Memory for the tokens of a long text. It is had when they are there, so that as many of these as
    /// there are workers may be over the limit.
    async fn hold_text(&self, claim: Claim, measured: &Measured) -> Result<Option<Permit>> {
        let bytes = bytes_of(&measured.text);
        if bytes <= LONG_TEXT {
            return Ok(None);
        }
        let mut permit = self.budget.take(claim, bytes).await?;
        permit.need(bytes, || format!("the text of {}", measured.origin))?;
        Ok(Some(permit))
    }

    /// Reads and parses a line. Its permit is kept where what it says is as large: with inline images,
    /// and with a long text.
    async fn read_line(
        self: &Arc<Self>,
        claim: Claim,
        id: SampleId,
        extent: &Extent,
        neighbour: Option<Neighbour<'_>>,
    ) -> Result<Result<(Sample, Option<Arc<Permit>>), Flaw>> {
        let origin = self.rooms.catalog.origin(id);
        let (bytes, permit) = match self.bring_with_neighbours(extent, neighbour).await? {
            Some(held) => held,
            None => self.bring_line(claim, extent, &origin).await?,
        };
        let (rooms, size) = (Arc::clone(&self.rooms), bytes.len() as u64);
        let raw = RawSample { id, bytes, origin: origin.clone() };
        let parsed =
            self.workers.run(Turn::measure(claim.batch), move |_| rooms.parse(&raw)).await?;
        Ok(parsed.map(|sample| {
            let inline = sample.images.iter().any(|image| matches!(image, ImageRef::Inline(_)));
            (sample, (inline || size > LONG_LINE).then_some(permit))
        }))
    }

    async fn bring_line(&self, claim: Claim, extent: &Extent, origin: &str) -> Result<Held> {
        let size = extent.range.as_ref().map_or(0, |range| range.end - range.start);
        let mut permit = self.budget.take(claim, size).await?;
        permit.need(size, || format!("the line at {origin}"))?;
        let bytes = self.rooms.fetcher.at(claim).read(extent, |_| future::ready(Ok(()))).await?;
        Ok((bytes, Arc::new(permit)))
    }

    async fn bring(
        &self,
        claim: Claim,
        image: &ImageRef,
        reach: Reach,
        neighbour: Neighbour<'_>,
    ) -> Result<(ImageBytes, Option<Arc<Permit>>)> {
        let extent = match image {
            ImageRef::Inline(bytes) => return Ok((bytes.clone().into(), None)),
            ImageRef::Stored(extent) => extent,
        };
        if reach == Reach::Beginning
            && let Some((image, permit)) = self.bring_beginning(claim, extent).await?
        {
            return Ok((image, Some(permit.into())));
        }
        let (bytes, permit) = match self.bring_with_neighbours(extent, Some(neighbour)).await? {
            Some(held) => held,
            None => self.bring_stored(claim, extent).await?,
        };
        Ok((bytes.into(), Some(permit)))
    }

    /// The beginning of an image, if it tells its size.
    async fn bring_beginning(
        &self,
        claim: Claim,
        extent: &Extent,
    ) -> Result<Option<(ImageBytes, Permit)>> {
        let most = image::BEGINNING as u64;
        let mut permit = self.budget.take(claim, most).await?;
        let (bytes, size) = self.rooms.fetcher.at(claim).beginning(extent, most).await?;
        if size != Fetcher::UNTOLD {
            self.rooms.admissible(extent, size)?;
        }
        permit.shrink(bytes.len() as u64);
        Ok(self.rooms.glance(&bytes, size).map(|image| (image, permit)))
    }

    async fn bring_stored(&self, claim: Claim, extent: &Extent) -> Result<Held> {
        let name = || format!("the image {}", extent.object.shown());
        let permit = self.budget.take(claim, self.typical_image.bytes()).await?;
        let permit = Mutex::new(permit);
        let held = || permit.lock().unwrap_or_else(PoisonError::into_inner);
        let admit = async |size: u64| -> Result<()> {
            // An untold size is a guess like any other: what came is judged below.
            if size != Fetcher::UNTOLD {
                self.rooms.admissible(extent, size)?;
                held().need(size, name)?;
            }
            let missing = size.saturating_sub(held().bytes());
            if missing > 0 {
                let more = self.budget.take(claim, missing).await?;
                held().absorb(more);
            }
            Ok(())
        };
        let bytes = self.rooms.fetcher.at(claim).read(extent, admit).await?;
        let size = bytes.len() as u64;
        self.rooms.admissible(extent, size)?;
        held().need(size, name)?;
        self.typical_image.learn(size);
        let mut permit = permit.into_inner().map_err(|_| Error::Bug("a poisoned permit".into()))?;
        permit.shrink(size);
        Ok((bytes, Arc::new(permit)))
    }
}
