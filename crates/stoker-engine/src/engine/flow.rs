//! The engine that keeps ahead: many batches in the making at once, delivered in order.
//!
//! Every batch of this rank is one asynchronous task that brings in its samples, has them measured,
//! takes memory, has every image filled by the workers, and lays the finished batch on the counter
//! under its step. The consumer takes the batches from there in order. How far ahead it works is
//! bounded by `prefetch`, by the [`Budget`] for compressed bytes and by the [`Pool`] for batches.
//! Samples are brought in many batches ahead, since compressed they are small and a slow request
//! must not be felt; only a few batches ahead ([`FILLED_AHEAD`]) become large by being filled.
//! Requests run on the fetch room's runtime, everything that takes CPU time on the [`Workers`].
//!
//! What it makes does not depend on any of that: it is what [`super::reference`] makes.

mod find;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{FuturesOrdered, StreamExt, TryStreamExt};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::batch::Batch;
use super::block::Slot;
use super::budget::{Budget, Permit};
use super::machine;
use super::pool::Pool;
use super::reference::{finished, slot_ranges};
use super::rooms::Rooms;
use super::workers::{Work, Workers, message};
use crate::error::{BudgetError, Error, Flaw, Result};
use crate::sample::{EncodedImage, Measured, Rank};

use find::Found;

/// Images that decode to more than this are decoded one at a time, so that scratch memory stays
/// bounded by this times the number of workers, plus one large image.
const LARGE_IMAGE: u64 = 16 << 20;

/// Batches that may have memory at once, from the one that is asked for next on: one with the
/// consumer soon, one being finished, and two to even out batches of unequal work. More would only
/// be more memory to fault in: what hides a slow store is the compressed samples that wait.
const FILLED_AHEAD: u64 = 4;

/// Where a flow begins and what part of the global sequence it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Batches of the global sequence that were delivered before.
    pub(crate) start: u64,
    /// The part of this process.
    pub(crate) rank: Rank,
}

/// Batches in the making.
pub(crate) struct Flow {
    line: Arc<Line>,
    sequencer: AbortHandle,
}

struct Line {
    rooms: Arc<Rooms>,
    share: Share,
    steps: Option<u64>,
    budget: Arc<Budget>,
    pool: Arc<Pool>,
    workers: Workers,
    /// How many batches may be begun: those asked for and those ahead.
    demand: Semaphore,
    large_image: Semaphore,
    /// How many batches the consumer has taken.
    taken: watch::Sender<u64>,
    sizes: find::Sizes,
    counter: Mutex<Counter>,
    arrived: Condvar,
}

#[derive(Default)]
struct Counter {
    finished: BTreeMap<u64, Result<Batch>>,
    /// The first step that is not finished.
    head: u64,
    /// The first step that was not taken.
    next: u64,
    asked: u64,
    stopped: bool,
}

/// What the counter has for the one who asks.
pub(crate) enum Step {
    /// The next batch.
    Batch(Box<Batch>),
    /// There are no more.
    End,
    /// Not yet.
    Waiting,
}

impl Flow {
    /// Starts making the batches of a share.
    pub(crate) fn start(rooms: Arc<Rooms>, share: Share) -> Result<Self> {
        let engine = &rooms.recipe.engine;
        let memory = engine.memory.unwrap_or_else(machine::default_memory);
        let workers = engine.workers.map_or_else(machine::cores, |count| count as usize);
        let (compressed, batches) = (memory / 4, memory - memory / 4);
        let line = Arc::new(Line {
            share,
            steps: rooms.plan.batches_per_rank(share.start, share.rank),
            budget: Budget::new(compressed, Arc::clone(&rooms.metrics)),
            pool: Pool::new(batches as usize, Arc::clone(&rooms.metrics)),
            workers: Workers::start(workers, Arc::clone(&rooms.metrics))?,
            demand: Semaphore::new(engine.prefetch as usize),
            large_image: Semaphore::new(1),
            taken: watch::Sender::default(),
            sizes: find::Sizes::default(),
            counter: Mutex::default(),
            arrived: Condvar::new(),
            rooms,
        });
        let sequencer = line.rooms.fetcher.spawn(sequence(Arc::clone(&line))).abort_handle();
        Ok(Self { line, sequencer })
    }

    /// Takes the next batch, in order; waits for it at most as long as `patience`.
    pub(crate) fn take(&self, patience: Duration) -> Result<Step> {
        let line = &self.line;
        let mut counter = line.counter();
        let step = counter.next;
        if line.steps.is_some_and(|steps| step >= steps) {
            return Ok(Step::End);
        }
        if counter.asked == step {
            counter.asked += 1;
            line.demand.add_permits(1);
        }
        let since = Instant::now();
        loop {
            if counter.stopped {
                return Err(Error::Stopped);
            }
            if let Some(result) = counter.finished.remove(&step) {
                counter.next += 1;
                line.taken.send_replace(counter.next);
                drop(counter);
                return result.map(|mut batch| {
                    batch.hand_over();
                    Step::Batch(Box::new(batch))
                });
            }
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Ok(Step::Waiting);
            }
            let waited = line.arrived.wait_timeout(counter, left);
            counter = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends everything: requests are given up, threads finish what they are doing.
    pub(crate) fn stop(&self) {
        self.sequencer.abort();
        {
            let mut counter = self.line.counter();
            counter.stopped = true;
            counter.finished.clear();
        }
        self.line.arrived.notify_all();
        self.line.workers.stop();
        self.line.pool.close();
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Begins one batch after the other, as far ahead as it is allowed to.
async fn sequence(line: Arc<Line>) {
    let mut tasks = JoinSet::new();
    for step in 0.. {
        if line.steps.is_some_and(|steps| step >= steps) {
            break;
        }
        let Ok(permit) = line.demand.acquire().await else { break };
        permit.forget();
        while tasks.try_join_next().is_some() {}
        let line = Arc::clone(&line);
        tasks.spawn(async move {
            let batch = caught(line.make(step)).await;
            line.put(step, batch);
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// What a task gives. A panic is an error too: who asks for the batch would wait for ever.
async fn caught<T>(task: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(task).catch_unwind().await.unwrap_or_else(|panic| {
        Err(Error::Bug(format!("making a batch panicked: {}", message(panic.as_ref()))))
    })
}

impl Line {
    fn counter(&self) -> MutexGuard<'_, Counter> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, step: u64, batch: Result<Batch>) {
        let mut counter = self.counter();
        if counter.stopped {
            return;
        }
        counter.finished.insert(step, batch);
        while counter.head < counter.next || counter.finished.contains_key(&counter.head) {
            counter.head += 1;
        }
        let head = counter.head;
        drop(counter);
        self.arrived.notify_all();
        self.budget.advance(head);
    }

    async fn make(self: &Arc<Self>, step: u64) -> Result<Batch> {
        let Share { start, rank } = self.share;
        let sequence = start + step * u64::from(rank.of) + u64::from(rank.index);
        let name = self.rooms.plan.batch(sequence);
        let found = self.rooms.plan.positions(name).map(|position| self.find(step, position));
        let found: Vec<Found> = found.collect::<FuturesOrdered<_>>().try_collect().await?;

        let (mut samples, mut bad, mut permits) = (Vec::new(), Vec::new(), Vec::new());
        for one in found {
            samples.push(one.measured);
            bad.extend(one.bad);
            permits.push(one.permits);
        }
        let layout = self.rooms.layout(&samples);
        let bytes = layout.bytes;
        let is_near = |taken: &u64| step < *taken + FILLED_AHEAD;
        self.taken.subscribe().wait_for(is_near).await.map_err(|_| Error::Stopped)?;
        let held = self.pool.take(step, bytes, || self.counter().asked > step).await?;
        let draft = self.workers.run(Work::Fill, step, move |_| held.draft(bytes)).await??;
        let (mut slots, seal) = draft.split(&slot_ranges(&layout));
        let mut text = slots.pop().expect("the last slot is for the text");

        let flaws = self.fill(step, &mut samples, slots, permits).await?;
        let learned: Vec<bool> = flaws.iter().map(Option::is_none).collect();
        for (sample, flaw) in samples.iter().zip(flaws) {
            if let Some(flaw) = flaw {
                bad.push(self.rooms.bad(sample.id, flaw, &sample.origin)?);
            }
        }
        let rooms = Arc::clone(&self.rooms);
        let write = move |_: &mut _| {
            rooms.write_text(&layout, &samples, &learned, &mut text);
            (layout, samples)
        };
        let (layout, samples) = self.workers.run(Work::Fill, step, write).await?;
        Ok(finished(name, &samples, layout, seal.lease(), bad))
    }

    /// Has all images filled; the first flaw of each sample.
    async fn fill(
        self: &Arc<Self>,
        step: u64,
        samples: &mut [Measured],
        slots: Vec<Slot>,
        permits: Vec<Vec<Permit>>,
    ) -> Result<Vec<Option<Flaw>>> {
        let mut slots = slots.into_iter();
        let mut tasks = FuturesOrdered::new();
        for (number, (sample, permits)) in samples.iter_mut().zip(permits).enumerate() {
            let permits = Arc::new(permits);
            for image in &mut sample.images {
                let (name, bytes) =
                    (std::mem::take(&mut image.name), std::mem::take(&mut image.bytes));
                let image = EncodedImage { name, bytes, ..*image };
                let slot = slots.next().expect("a slot for each image");
                let permits = Arc::clone(&permits);
                tasks.push_back(async move {
                    let outcome = self.fill_one(step, image, slot, permits).await;
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
        step: u64,
        image: EncodedImage,
        mut slot: Slot,
        permits: Arc<Vec<Permit>>,
    ) -> Result<Option<Flaw>> {
        let decoded = image.header.stored.pixels() * 3;
        let _alone = if decoded > LARGE_IMAGE {
            self.check_scratch(decoded)?;
            Some(self.large_image.acquire().await.map_err(|_| Error::Stopped)?)
        } else {
            None
        };
        let rooms = Arc::clone(&self.rooms);
        let fill = move |bench: &mut _| {
            let outcome = rooms.fill(&image, &mut slot, bench);
            drop((image, slot, permits));
            outcome.err()
        };
        self.workers.run(Work::Fill, step, fill).await
    }

    fn check_scratch(&self, decoded: u64) -> Result<()> {
        let memory = self.rooms.recipe.engine.memory.unwrap_or_else(machine::default_memory);
        if decoded <= memory / 2 {
            return Ok(());
        }
        let hint = "half of engine.memory is the limit for one decoded image: raise it, or lower \
                    image.max-pixels";
        Err(Error::Budget(BudgetError {
            what: "a decoded image".into(),
            needed: decoded,
            limit: memory / 2,
            hint: hint.into(),
        }))
    }
}

/// Bytes of an image and the right to hold them.
type Brought = (Bytes, Permit);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_whose_making_panics_is_an_error() {
        let caught = caught::<()>(async { panic!("a broken invariant") }).now_or_never();
        let error = caught.expect("it is ready").expect_err("it panicked").to_string();
        assert!(error.contains("a broken invariant"), "{error}");
    }
}
