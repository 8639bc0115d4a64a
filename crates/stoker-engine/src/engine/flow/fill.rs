//! Filling the images of a batch, each by a worker of its own.

use std::sync::Arc;

use futures::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Line, Permit, Turn};
use crate::engine::block::Slot;
use crate::engine::machine;
use crate::error::{BudgetError, Error, Flaw, Result};
use crate::recipe::Recipe;
use crate::sample::{EncodedImage, Measured};

/// Images that decode to more than this ask for room, so that scratch memory stays bounded by this
/// times the number of workers, plus the room for large ones.
const LARGE_IMAGE: u64 = 16 << 20;

/// The part of `engine.memory` that large images may take besides, or one image of any size: an
/// eighth.
const LARGE_IMAGES: u64 = 8;

impl Line {
    /// Has all images filled; the first flaw of each sample.
    pub(super) async fn fill(
        self: &Arc<Self>,
        sequence: u64,
        samples: &mut [Measured],
        slots: Vec<Slot>,
        permits: Vec<Vec<Permit>>,
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
        &self,
        sequence: u64,
        image: EncodedImage,
        mut slot: Slot,
        permits: Arc<Vec<Permit>>,
    ) -> Result<Option<Flaw>> {
        let _alone = self.scratch_for(&image).await?;
        let rooms = Arc::clone(&self.rooms);
        let turn = Turn::fill(sequence).of_size(image.header.stored.pixels());
        let fill = move |bench: &mut _| {
            let outcome = rooms.fill(&image, &mut slot, bench);
            drop((image, slot, permits));
            outcome.err()
        };
        self.workers.run(turn, fill).await
    }

    async fn hide_one(
        &self,
        sequence: u64,
        image: EncodedImage,
        mut slot: Slot,
    ) -> Result<Option<Flaw>> {
        let rooms = Arc::clone(&self.rooms);
        let hide = move |_: &mut _| rooms.hide(&image, &mut slot);
        self.workers.run(Turn::fill(sequence), hide).await.map(|()| None)
    }

    /// The right to decode an image; of large ones only so many at once as may be in memory.
    async fn scratch_for(&self, image: &EncodedImage) -> Result<Option<SemaphorePermit<'_>>> {
        let decoded = image.header.stored.pixels() * 3;
        if decoded <= LARGE_IMAGE {
            return Ok(None);
        }
        let memory = memory(&self.rooms.recipe);
        if decoded > memory / 2 {
            return Err(too_large(decoded, memory / 2));
        }
        let permits = kib(decoded).min(kib(memory / LARGE_IMAGES));
        let permit = self.large_images.acquire_many(permits).await;
        permit.map(Some).map_err(|_| Error::Stopped)
    }
}

/// Room for the images that are large.
pub(super) fn large_images(recipe: &Recipe) -> Semaphore {
    Semaphore::new(kib(memory(recipe) / LARGE_IMAGES) as usize)
}

fn memory(recipe: &Recipe) -> u64 {
    recipe.engine.memory.unwrap_or_else(machine::default_memory)
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
