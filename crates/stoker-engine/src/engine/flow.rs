//! The engine that makes many batches at once.
//!
//! A batch is known by its number in the global sequence, and any batch can be made at any time.
//! Each is one asynchronous task that brings in its samples, has them measured, takes memory, has
//! every image filled by the workers, and lays the finished batch on the counter, from where it is
//! taken. Who takes batches says how far ahead to work: a batch that is *begun* has its samples
//! brought in (compressed they are small, and a slow request must not be felt); one that is *wanted*
//! is filled, by which it becomes large. All of it is bounded by the [`Budget`] for compressed bytes
//! and by the [`Pool`] for batches; both give to the lowest number first. Requests run on the fetch
//! room's runtime, everything that takes CPU time on the [`Workers`].
//!
//! What it makes does not depend on any of that: it is what [`super::reference`] makes.

mod counter;
mod fill;
mod find;
mod measure;
mod neighbours;
mod verify;
mod windows;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::{Semaphore, oneshot};

use super::batch::Batch;
use super::budget::{Budget, Permit};
use super::machine;
use super::pool::{Expected, Pool};
use super::reference::{finished, slot_ranges};
use super::rooms::Rooms;
use super::workers::{Bench, Turn, Workers, message};
use crate::error::{Error, Outcome, Result};
use crate::metrics::{Count, Limits, Phase, Progress, Stage};
use crate::recipe::Pixels;
use crate::sample::{Measured, Position, Standing, WindowStart};
use counter::{Counter, Finished, Making};

pub use verify::Finding;
pub(crate) use verify::{Findings, Told};

/// Batches in the making.
pub(crate) struct Flow {
    line: Arc<Line>,
}

struct Line {
    rooms: Arc<Rooms>,
    budget: Arc<Budget>,
    pool: Arc<Pool>,
    workers: Workers,
    large_images: Semaphore,
    long_texts: Semaphore,
    typical_image: find::TypicalImage,
    windows: windows::Windows,
    counter: Mutex<Counter>,
    arrived: Condvar,
}

impl Flow {
    /// A flow that makes nothing yet.
    pub(crate) fn start(rooms: Arc<Rooms>) -> Result<Self> {
        let engine = &rooms.recipe.engine;
        let (memory, workers) = (machine::memory(engine), machine::workers(engine));
        let (compressed, batches) = (memory / 4, memory - memory / 4);
        let compressed = compressed - rooms.fetcher.cache_memory();
        rooms.metrics.limits.get_or_init(|| Limits {
            workers: workers as u64,
            cores: machine::cores(1) as u64,
            requests: rooms.recipe.fetch.concurrency.into(),
            compressed_bytes: compressed,
            batch_bytes: batches,
            is_u8: rooms.recipe.vision.pixels == Pixels::U8,
        });
        let line = Arc::new(Line {
            budget: Budget::new(compressed, Arc::clone(&rooms.metrics)),
            pool: Pool::new(batches as usize, Arc::clone(&rooms.metrics)),
            workers: Workers::start(workers, Arc::clone(&rooms.metrics))?,
            large_images: fill::large_images(engine),
            long_texts: Semaphore::new(1),
            typical_image: find::TypicalImage::default(),
            windows: windows::Windows::default(),
            counter: Mutex::default(),
            arrived: Condvar::new(),
            rooms,
        });
        Ok(Self { line })
    }

    /// Takes note where a window begins, so that it is not searched for from the first one on.
    pub(crate) fn learn(&self, start: WindowStart) {
        if self.line.rooms.samples_left(start) != Some(0) {
            self.line.windows.learn(start);
        }
    }

    /// Has the samples of a batch brought in.
    pub(crate) fn begin(&self, sequence: u64) {
        self.line.begin(&mut self.line.counter(), sequence);
    }

    /// Lets a batch be filled as soon as its samples are there.
    pub(crate) fn want(&self, sequence: u64) {
        self.line.counter().want(sequence);
    }

    /// Threads that fill.
    pub(crate) fn workers(&self) -> usize {
        self.line.workers.count()
    }

    /// Takes a batch, which is begun and wanted if it was not; waits for it at most as long as
    /// `patience`, and has `None` if it is not finished by then.
    pub(crate) fn take(&self, sequence: u64, patience: Duration) -> Result<Option<Box<Batch>>> {
        let line = &self.line;
        line.windows.asked(sequence);
        let since = Instant::now();
        let mut counter = line.counter();
        counter.want(sequence);
        loop {
            if counter.stopped {
                return Err(Error::Stopped);
            }
            if let Some(finished) = counter.finished.remove(&sequence) {
                return line.hand_over(counter, sequence, finished).map(Some);
            }
            line.begin(&mut counter, sequence);
            counter.asked(sequence);
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let waited = line.arrived.wait_timeout(counter, left);
            counter = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes a batch if it is finished. Nobody waits for it, so it is not asked for: a trainer that
    /// holds all memory meanwhile is not told off.
    pub(crate) fn take_finished(&self, sequence: u64) -> Result<Option<Box<Batch>>> {
        let mut counter = self.line.counter();
        if counter.stopped {
            return Err(Error::Stopped);
        }
        let Some(finished) = counter.finished.remove(&sequence) else { return Ok(None) };
        self.line.hand_over(counter, sequence, finished).map(Some)
    }

    /// Gives up all batches but those that `keep` names and those that somebody waits for.
    pub(crate) fn keep_only(&self, keep: &BTreeSet<u64>) {
        let mut counter = self.line.counter();
        let Counter { making, finished, asked, .. } = &mut *counter;
        let stays = |sequence: &u64| keep.contains(sequence) || asked.contains(sequence);
        making.retain(|sequence, making| {
            stays(sequence) || {
                making.task.abort();
                self.line.rooms.metrics.trace.batch(*sequence, Stage::Gone);
                false
            }
        });
        let mut dropped =
            finished.extract_if(.., |sequence, _| !stays(sequence)).collect::<Vec<_>>();
        for (sequence, _) in &dropped {
            self.line.moved_on(*sequence, Stage::Gone, &counter);
        }
        self.line.settle_head(&counter);
        drop(counter);
        dropped.clear();
    }

    /// Ends everything: requests are given up, threads finish what they are doing.
    pub(crate) fn stop(&self) {
        let finished = {
            let mut counter = self.line.counter();
            counter.stopped = true;
            counter.making.values().for_each(|making| making.task.abort());
            let finished = std::mem::take(&mut counter.finished);
            let trace = &self.line.rooms.metrics.trace;
            counter.making.keys().chain(finished.keys()).for_each(|sequence| {
                trace.batch(*sequence, Stage::Gone);
            });
            counter.making.clear();
            finished
        };
        drop(finished);
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

    fn begin(self: &Arc<Self>, counter: &mut Counter, sequence: u64) {
        let known =
            counter.making.contains_key(&sequence) || counter.finished.contains_key(&sequence);
        if known || counter.stopped {
            return;
        }
        let expected = self.pool.expect(sequence);
        let line = Arc::clone(self);
        let (want, wanted) = oneshot::channel();
        let progress = Arc::new(Progress::begin(Arc::clone(&self.rooms.metrics)));
        let told = Arc::clone(&progress);
        self.moved_on(sequence, Stage::Bytes, counter);
        // It lays its batch on the counter, which is locked until it is entered below.
        let task = self.rooms.fetcher.spawn(async move {
            let batch = caught(line.make(sequence, expected, wanted, &told)).await;
            line.put(sequence, batch);
        });
        let mut making = Making { task: task.abort_handle(), want: Some(want), progress };
        if counter.wanted.contains(&sequence) {
            making.want();
        }
        counter.making.insert(sequence, making);
        self.settle_head(counter);
    }

    fn put(&self, sequence: u64, batch: Result<Batch>) {
        let mut counter = self.counter();
        let Some(making) = counter.making.remove(&sequence).filter(|_| !counter.stopped) else {
            return;
        };
        let progress = making.progress;
        self.rooms.metrics.blamed(progress.finish());
        counter.finished.insert(sequence, Finished::new(batch, progress));
        self.moved_on(sequence, Stage::Ready, &counter);
        self.settle_head(&counter);
        drop(counter);
        self.arrived.notify_all();
    }

    /// Takes a finished batch off the books.
    fn hand_over(
        &self,
        mut counter: MutexGuard<'_, Counter>,
        sequence: u64,
        finished: Finished,
    ) -> Result<Box<Batch>> {
        counter.asked.remove(&sequence);
        counter.wanted.remove(&sequence);
        self.moved_on(sequence, Stage::Gone, &counter);
        drop(counter);
        finished.batch.map(|mut batch| {
            batch.hand_over();
            Box::new(batch)
        })
    }

    /// For traces: a batch goes on to that, now that these are on the counter.
    fn moved_on(&self, sequence: u64, stage: Stage, counter: &Counter) {
        let trace = &self.rooms.metrics.trace;
        trace.batch(sequence, stage);
        trace.count(Count::Ready, || counter.finished.len() as u64);
    }

    /// The earliest batch that is not finished may have compressed bytes over the limit.
    fn settle_head(&self, counter: &Counter) {
        let head = counter.making.keys().next().copied();
        self.budget.set_head(head.unwrap_or(u64::MAX));
    }

    async fn make(
        self: &Arc<Self>,
        sequence: u64,
        expected: Expected,
        wanted: oneshot::Receiver<()>,
        progress: &Progress,
    ) -> Result<Batch> {
        let name = self.rooms.plan.batch(sequence);
        let outline = self.outline(sequence).await?;
        if outline.samples.is_empty() {
            return Ok(Batch::behind_the_end(name, sequence, &outline));
        }
        let positions: Vec<Position> = outline.samples.iter().map(|it| it.position).collect();
        let mut found = self.find_all(sequence.into(), &positions).await?;
        let measured: Vec<_> = found.iter().map(|one| &one.measured).collect();
        let left_out = self.rooms.left_out(&outline.samples, &measured);

        let mut bad: Vec<_> = found.iter_mut().flat_map(|one| one.bad.drain(..)).collect();
        for left_out in left_out {
            self.rooms.tell_left_out(&found.remove(left_out).measured, &mut bad)?;
        }
        let (mut samples, permits): (Vec<_>, Vec<_>) =
            found.into_iter().map(|one| (one.measured, one.permits)).unzip();
        let layout = self.rooms.layout(&samples);
        let bytes = layout.bytes;
        progress.enter(Phase::Brought);
        let trace = &self.rooms.metrics.trace;
        trace.batch(sequence, Stage::Unwanted);
        wanted.await.map_err(|_| Error::Stopped)?;
        progress.enter(Phase::Memory);
        trace.batch(sequence, Stage::Memory);
        let is_asked = || self.counter().asked.contains(&sequence);
        let held = self.pool.take(sequence, bytes, is_asked).await?;
        drop(expected);
        progress.enter(Phase::Pixels);
        trace.batch(sequence, Stage::Fill);
        let draft = if held.is_mapped() {
            held.draft(bytes)
        } else {
            self.workers.run(Turn::fill(sequence), move |_| held.draft(bytes)).await?
        };
        let (mut slots, seal) = draft?.split(&slot_ranges(&layout));
        let mut rest = slots.pop().expect("the last slot is for the rest");

        let flaws = self.fill(sequence, &mut samples, slots, permits).await?;
        for (sample, flaw) in samples.iter_mut().zip(flaws) {
            if let Some(flaw) = flaw {
                let error = self.rooms.bad(sample.id, flaw, &sample.origin)?;
                bad.push(error.into_bad(Outcome::Neutralised));
                sample.standing = Standing::Neutral;
            }
        }
        let rooms = Arc::clone(&self.rooms);
        let write = move |_: &mut _| {
            let learned: Vec<bool> = samples.iter().map(Measured::is_shown).collect();
            rooms.get_pages(&mut rest);
            rooms.write_rest(&layout, &samples, &learned, &mut rest);
            (layout, samples)
        };
        let (layout, samples) = self.workers.run(Turn::fill(sequence), write).await?;
        let mut batch = finished(name, sequence, &samples, layout, seal.lease(), bad);
        batch.tell(&outline);
        Ok(batch)
    }
}

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
