//! Working ahead: which batches are in the making while the trainer has the last one.
//!
//! What follows from taking a batch (others are to be begun and wanted) is done by waking threads,
//! and that costs tens of microseconds, several times what the rest of a hand-over takes. So a
//! trainer that takes a batch which is ready only counts it; a task on the fetch thread, the
//! *keeper*, looks several times in each of the trainer's steps how far it is. Only a trainer that
//! must wait anyway works ahead itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::depth::Depth;
use super::front::Front;
use crate::engine::{Batch, Flow};
use crate::error::{Error, Result};
use crate::metrics::Limits;

/// A trainer that takes nothing for so long has stopped for something else; then nobody looks until
/// it goes on.
const IDLE: Duration = Duration::from_secs(1);

/// The batches of one rank in the making.
pub(super) struct Ahead {
    front: Arc<Front>,
    running: Mutex<Running>,
}

/// What is true between a beginning and the next restart.
#[derive(Default)]
struct Running {
    flow: Option<Arc<Flow>>,
    depth: Option<Depth>,
    /// The first batches that are not begun and not wanted, counted from where the flow started.
    begun: u64,
    wanted: u64,
    /// Batches handed over since the flow started.
    taken: u64,
    asking_since: Option<Instant>,
    taken_at: Option<Instant>,
    /// Whether the keeper looks.
    kept: bool,
    closed: bool,
}

/// Whether the next batch is asked for.
#[derive(Clone, Copy)]
enum Asked {
    NotYet = 0,
    Yes = 1,
}

impl Ahead {
    pub(super) fn new(front: Arc<Front>) -> Arc<Self> {
        Arc::new(Self { front, running: Mutex::default() })
    }

    /// Takes the batch that comes next; `None` if it is not finished within `patience`.
    pub(super) fn take(
        self: &Arc<Self>,
        sequence: u64,
        patience: Duration,
    ) -> Result<Option<Box<Batch>>> {
        let flow = self.flow(true)?;
        let failed = |error| self.front.fail(error);
        if let Some(batch) = flow.take(sequence, Duration::ZERO).map_err(failed)? {
            return Ok(Some(batch));
        }
        self.work(&mut self.running(), Asked::Yes);
        flow.take(sequence, patience).map_err(failed)
    }

    /// Takes the batch that comes next if it is finished; the trainer does not wait for it yet.
    pub(super) fn take_ready(self: &Arc<Self>, sequence: u64) -> Result<Option<Box<Batch>>> {
        let flow = self.flow(false)?;
        flow.take_finished(sequence).map_err(|error| self.front.fail(error))
    }

    /// Counts a batch as the trainer's; see [`Front::hand_over`].
    pub(super) fn hand_over(self: &Arc<Self>, batch: Box<Batch>) -> Result<Option<Box<Batch>>> {
        // The keeper must not see that the front is a batch further and this is not.
        let mut running = self.running();
        let blocked = running.asking_since.map_or(Duration::ZERO, |since| since.elapsed());
        let Some(batch) = self.front.hand_over(batch, blocked)? else { return Ok(None) };
        let now = Instant::now();
        let (had, asked) = (running.taken_at, running.asking_since.unwrap_or(now));
        self.front.metrics().trace.step(batch.sequence(), had, asked, now);
        running.taken += 1;
        running.asking_since = None;
        running.taken_at = Some(now);
        if let Some(depth) = &mut running.depth {
            depth.took(batch.images(), now);
        }
        if !running.kept {
            self.keep(&mut running);
        }
        Ok(Some(batch))
    }

    /// Gives up what is in the making; what comes next has been changed by `place` by then.
    pub(super) fn restart(&self, place: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.running().closed {
            return Err(Error::Stopped);
        }
        place()?;
        let mut running = self.running();
        let closed = running.closed;
        let before = std::mem::replace(&mut *running, Running { closed, ..Running::default() });
        drop(running);
        drop(before);
        Ok(())
    }

    /// Gives up everything for good.
    pub(super) fn close(&self) {
        let mut running = self.running();
        running.closed = true;
        if let Some(flow) = running.flow.take() {
            flow.stop();
        }
    }

    /// The flow; if the trainer `waits`, it does since now.
    fn flow(self: &Arc<Self>, waits: bool) -> Result<Arc<Flow>> {
        let mut running = self.running();
        if running.closed {
            return Err(Error::Stopped);
        }
        if waits {
            running.asking_since.get_or_insert_with(Instant::now);
        }
        if let Some(flow) = &running.flow {
            return Ok(Arc::clone(flow));
        }
        let rooms = self.front.rooms();
        let (prefetch, batch_size) = (rooms.recipe.engine.prefetch, rooms.recipe.pack.batch_size);
        let flow = Arc::new(Flow::start(rooms)?);
        self.front.window().into_iter().for_each(|start| flow.learn(start));
        let memory = self.front.rooms().metrics.limits.get().map_or(u64::MAX, Limits::memory);
        running.depth = Some(Depth::new(prefetch, batch_size, flow.workers(), memory));
        running.flow = Some(Arc::clone(&flow));
        self.work(&mut running, Asked::Yes);
        Ok(flow)
    }

    /// Begins and wants what is due: so many batches behind the one that is asked for, if one is.
    fn work(&self, running: &mut Running, asked: Asked) {
        let (Some(flow), Some(depth)) = (&running.flow, &running.depth) else { return };
        let taken = running.taken;
        let later = |step: u64| self.front.sequence_at(step - taken);
        for step in running.wanted.max(taken)..taken + depth.filled() {
            let Some(sequence) = later(step) else { break };
            flow.want(sequence);
            running.wanted = step + 1;
        }
        let lateness = self.front.rooms().fetcher.lateness();
        for step in running.begun..taken + depth.brought_in(lateness) + asked as u64 {
            let Some(sequence) = later(step) else { break };
            flow.begin(sequence);
            running.begun = step + 1;
        }
    }

    /// Works ahead now, and has the keeper do so from now on.
    fn keep(self: &Arc<Self>, running: &mut Running) {
        self.work(running, Asked::NotYet);
        let (Some(flow), Some(depth)) = (&running.flow, &running.depth) else { return };
        let (ahead, flow) = (Arc::downgrade(self), Arc::downgrade(flow));
        let mut pause = depth.pause();
        self.front.rooms().fetcher.spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(ahead) = ahead.upgrade() else { break };
                let Some(next) = ahead.look(&flow) else { break };
                pause = next;
            }
        });
        running.kept = true;
    }

    /// One look of the keeper of a flow; when to look again, if ever.
    fn look(&self, kept: &Weak<Flow>) -> Option<Duration> {
        let mut running = self.running();
        let flow = running.flow.as_ref()?;
        if !std::ptr::eq(Arc::as_ptr(flow), kept.as_ptr()) {
            return None;
        }
        self.work(&mut running, Asked::NotYet);
        running.kept = running.taken_at.is_some_and(|at| at.elapsed() < IDLE);
        running.depth.as_ref().filter(|_| running.kept).map(Depth::pause)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
