//! Filling the images of a batch, each by a worker; a big one by several, where they are idle.

use std::sync::Arc;

use futures::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Bench, Line, Permit, Turn};
use crate::engine::block::Slot;
use crate::engine::machine;
use crate::error::{BudgetError, Error, Flaw, Result};
use crate::image;
use crate::recipe::Engine;
use crate::sample::{EncodedImage, Measured};

/// Images from so many pixels on are written by several workers: they take tens of milliseconds.
const SHARED_IMAGE: u64 = 3_000_000;

/// The part of `engine.memory` that large images may take besides, or one image of any size: an
/// eighth. Smaller ones than a decoder keeps memory for need not ask, so that scratch memory stays
/// bounded by that times the number of workers, plus the room for large ones.
const LARGE_IMAGES: u64 = 8;

impl Line {
    /// Has all images filled; the first flaw of each sample.
    pub(super) async fn fill(
        self: &Arc<Self>,
        sequence: u64,
        samples: &mut [Measured],
        slots: Vec<Slot>,
        permits: Vec<Vec<Arc<Permit>>>,
    ) -> Result<Vec<Option<Flaw>>> {
        let mut slots = slots.into_iter();
        let mut tasks = FuturesOrdered::new();
        for (number, (sample, permits)) in samples.iter_mut().zip(permits).enumerate() {
            let (permits, is_shown) = (Arc::new(permits), sample.is_shown());
            for image in &mut sample.images {
                let (name, bytes) =
                    (std::mem::take(&mut image.name), std::mem::take(&mut image.bytes));
                let image = EncodedImage { name, bytes, ..*image };
                let slot = slots.next().expect("a slot for each image");
                let permits = Arc::clone(&permits);
                tasks.push_back(async move {
                    let outcome = if is_shown {
                        self.fill_one(sequence, image, slot, permits).await
                    } else {
                        self.hide_one(sequence, image, slot).await
                    };
                    outcome.map(|flaw| (number, flaw))
                });
            }
        }
        let mut flaws = vec![None; samples.len()];
        while let Some(outcome) = tasks.next().await {
            let (number, flaw) = outcome?;
            if flaws[number].is_none() {
                flaws[number] = flaw;
            }
        }
        Ok(flaws)
    }

    async fn fill_one(
        self: &Arc<Self>,
        sequence: u64,
        image: EncodedImage,
        slot: Slot,
        permits: Arc<Vec<Arc<Permit>>>,
    ) -> Result<Option<Flaw>> {
        let _room = self.room_for(&image).await?;
        let turn = Turn::fill(sequence).of_size(image.header.stored.pixels());
        if image.header.stored.pixels() >= SHARED_IMAGE && self.workers.spare() > 1 {
            return self.fill_together(turn, image, slot, permits).await;
        }
        let (rooms, mut slot) = (Arc::clone(&self.rooms), slot);
        let fill = move |bench: &mut Bench| {
            rooms.get_pages(&mut slot);
            let outcome = rooms.fill(&image, &mut slot, bench);
            bench.decoder.tidy();
            drop((image, slot, permits));
            outcome.err()
        };
        self.workers.run(turn, fill).await
    }

    /// One worker decodes, then all that have nothing to do write strips.
    async fn fill_together(
        self: &Arc<Self>,
        turn: Turn,
        image: EncodedImage,
        mut slot: Slot,
        permits: Arc<Vec<Arc<Permit>>>,
    ) -> Result<Option<Flaw>> {
        let (rooms, plan) = (Arc::clone(&self.rooms), image.plan);
        let decode = move |bench: &mut Bench| {
            let flaw = rooms.decode(&image, &mut bench.decoder).err();
            drop((image, permits));
            let decoded = bench.decoder.take();
            bench.decoder.tidy();
            match flaw {
                None => Ok((decoded, slot)),
                Some(flaw) => {
                    rooms.get_pages(&mut slot);
                    rooms.hide(&plan, &mut slot);
                    Err(flaw)
                }
            }
        };
        let (decoded, slot) = match self.workers.run(turn, decode).await? {
            Ok(decoded) => decoded,
            Err(flaw) => return Ok(Some(flaw)),
        };
        let decoded = Arc::new(decoded);
        let strips = self.rooms.vision.strips(&plan);
        let each = strips.div_ceil(self.workers.spare().max(1));
        let parts = slot.cut(each * self.rooms.vision.strip_bytes(&plan));
        let parts = parts.into_iter().enumerate().map(|(number, mut part)| {
            let (rooms, decoded) = (Arc::clone(&self.rooms), Arc::clone(&decoded));
            let write = move |bench: &mut Bench| {
                let strips = number * each..strips.min((number + 1) * each);
                rooms.get_pages(&mut part);
                rooms.write(&decoded, &plan, strips, &mut part, &mut bench.scratch);
                drop(part);
                if let Some(decoded) = Arc::into_inner(decoded) {
                    bench.decoder.give_back(decoded);
                }
            };
            self.workers.run(turn, write)
        });
        let parts = parts.collect::<Vec<_>>();
        drop(decoded);
        futures::future::try_join_all(parts).await.map(|_| None)
    }

    async fn hide_one(
        &self,
        sequence: u64,
        image: EncodedImage,
        mut slot: Slot,
    ) -> Result<Option<Flaw>> {
        let rooms = Arc::clone(&self.rooms);
        let hide = move |_: &mut _| {
            rooms.get_pages(&mut slot);
            rooms.hide(&image.plan, &mut slot);
        };
        self.workers.run(Turn::fill(sequence), hide).await.map(|()| None)
    }

    /// The right to decode an image; of large ones only so many at once as may be in memory.
    pub(super) async fn room_for(
        &self,
        image: &EncodedImage,
    ) -> Result<Option<SemaphorePermit<'_>>> {
        let decoded = image::scratch(&image.bytes, &image.header);
        if decoded <= image::KEPT as u64 {
            return Ok(None);
        }
        let memory = machine::memory(&self.rooms.recipe.engine);
        if decoded > memory / 2 {
            return Err(too_large(decoded, memory / 2));
        }
        let permits = kib(decoded).min(kib(memory / LARGE_IMAGES));
        let permit = self.large_images.acquire_many(permits).await;
        permit.map(Some).map_err(|_| Error::Stopped)
    }
}

/// Room for the images that are large.
pub(super) fn large_images(engine: &Engine) -> Semaphore {
    Semaphore::new(kib(machine::memory(engine) / LARGE_IMAGES) as usize)
}

/// Permits for so many bytes.
fn kib(bytes: u64) -> u32 {
    (bytes >> 10).clamp(1, u64::from(u32::MAX >> 4)) as u32
}

fn too_large(decoded: u64, limit: u64) -> Error {
    let hint = "half of engine.memory is the limit for one decoded image: raise it, or lower \
                image.max-pixels";
    Error::Budget(BudgetError {
        what: "a decoded image".into(),
        needed: decoded,
        limit,
        hint: hint.into(),
    })
}
