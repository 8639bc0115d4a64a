//! Bringing in one sample: its line, its images, its measures; and where it is bad, a spare.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future;
use futures::stream::{FuturesOrdered, TryStreamExt};

use super::{Brought, Line, Permit, Turn};
use crate::engine::budget::Claim;
use crate::engine::measure::{ImageBytes, Reach};
use crate::engine::rooms::flaw_of;
use crate::error::{BadSample, Error, Flaw, Result};
use crate::fetch::Fetcher;
use crate::image;
use crate::sample::{Extent, ImageRef, Measured, Position, RawSample, Sample, SampleId};

/// A sample that can be used, and the bad ones that were met on the way to it.
pub(super) struct Found {
    pub(super) measured: Measured,
    pub(super) bad: Vec<BadSample>,
    /// For the compressed bytes that the sample still holds.
    pub(super) permits: Vec<Permit>,
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

impl Line {
    pub(super) async fn find(self: &Arc<Self>, claim: Claim, position: Position) -> Result<Found> {
        let mut bad = Vec::new();
        for attempt in 0.. {
            let id = self.rooms.candidate(position, attempt, &bad)?;
            match self.try_sample(claim, id, Reach::Whole).await? {
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
    ) -> Result<Result<(Measured, Vec<Permit>), Flaw>> {
        let extent = match self.rooms.catalog.locate(id) {
            Ok(extent) => extent,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let (sample, line) = match self.read_line(claim, id, &extent).await? {
            Ok(read) => read,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let images = sample.images.iter().map(|image| self.bring(claim, image, reach));
        let images = images.collect::<FuturesOrdered<_>>().try_collect::<Vec<_>>().await;
        let images = match images {
            Ok(images) => images,
            Err(error) => return flaw_of(error).map(Err),
        };
        let (images, permits): (Vec<ImageBytes>, Vec<Option<Permit>>) = images.into_iter().unzip();
        let permits = permits.into_iter().flatten().chain(line).collect();
        let rooms = Arc::clone(&self.rooms);
        let measure = move |_: &mut _| rooms.measure(sample, images);
        let measured = self.workers.run(Turn::measure(claim.batch), measure).await??;
        Ok(measured.map(|measured| (measured, permits)))
    }

    /// Reads and parses a line. Its permit is kept only where its bytes are: with inline images.
    async fn read_line(
        self: &Arc<Self>,
        claim: Claim,
        id: SampleId,
        extent: &Extent,
    ) -> Result<Result<(Sample, Option<Permit>), Flaw>> {
        let origin = self.rooms.catalog.origin(id);
        let size = extent.range.as_ref().map_or(0, |range| range.end - range.start);
        let mut permit = self.budget.take(claim, size).await?;
        permit.need(size, || format!("the line at {origin}"))?;
        let bytes = self.rooms.fetcher.at(claim).read(extent, |_| future::ready(Ok(()))).await?;
        let rooms = Arc::clone(&self.rooms);
        let raw = RawSample { id, bytes, origin: origin.clone() };
        let parsed =
            self.workers.run(Turn::measure(claim.batch), move |_| rooms.parse(&raw)).await?;
        Ok(parsed.map(|sample| {
            let inline = sample.images.iter().any(|image| matches!(image, ImageRef::Inline(_)));
            (sample, inline.then_some(permit))
        }))
    }

    async fn bring(
        &self,
        claim: Claim,
        image: &ImageRef,
        reach: Reach,
    ) -> Result<(ImageBytes, Option<Permit>)> {
        let extent = match image {
            ImageRef::Inline(bytes) => return Ok((bytes.clone().into(), None)),
            ImageRef::Stored(extent) => extent,
        };
        if reach == Reach::Beginning
            && let Some((image, permit)) = self.bring_beginning(claim, extent).await?
        {
            return Ok((image, Some(permit)));
        }
        let (bytes, permit) = self.bring_stored(claim, extent).await?;
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

    async fn bring_stored(&self, claim: Claim, extent: &Extent) -> Result<Brought> {
        let name = || format!("the image {}", extent.object);
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
        Ok((bytes, permit))
    }
}
