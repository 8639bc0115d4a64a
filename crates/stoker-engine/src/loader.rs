//! The front door: batches of one rank, in order, with the time that the trainer waits measured.
//!
//! A [`Loader`] belongs to one consumer at a time; [`Loader::close`], [`Loader::report`] and
//! [`Loader::state`] may be called from any thread. Work starts at the first [`Loader::next`], so a
//! loader that resumes fetches nothing that was consumed before.

mod look;
mod tally;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{Flow, Rooms, Share, Step};
use crate::error::{Error, Result};
use crate::metrics::{Report, Wait};
use crate::plan::Cursor;
use crate::recipe::Recipe;
use crate::sample::Rank;
use crate::vision::Finish;

pub use crate::engine::{Batch, Lease};
pub use look::{IndexSummary, Peek, index, peek};

use tally::Tally;

/// Finished batches of one rank, in order.
pub struct Loader {
    rooms: Arc<Rooms>,
    rank: Rank,
    /// Held by the consumer while it waits, for long; the locks below are held for moments.
    turn: Mutex<()>,
    seat: Mutex<Seat>,
    flow: Mutex<Running>,
}

/// What the consumer has had.
#[derive(Debug, Default)]
struct Seat {
    /// Where in the global sequence this iteration began.
    start: u64,
    /// Batches taken since.
    steps: u64,
    tally: Tally,
    asking_since: Option<Instant>,
    last_hand_over: Option<Instant>,
    failed: Option<Error>,
}

/// The flow, which another thread may close while the consumer waits on it.
#[derive(Default)]
struct Running {
    flow: Option<Arc<Flow>>,
    closed: bool,
}

/// What [`Loader::next`] has.
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Box<Batch>),
    /// The plan has no more batches.
    End,
    /// None yet; ask again.
    Waiting,
}

impl Loader {
    /// Opens everything a recipe names; builds the index if there is none.
    pub fn open(recipe: Recipe, rank: Rank) -> Result<Self> {
        Self::open_with_progress(recipe, rank, &mut |_, _| {})
    }

    /// The same; `progress` is told bytes read and bytes in all while an index is built.
    pub fn open_with_progress(
        recipe: Recipe,
        rank: Rank,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let rooms = Arc::new(Rooms::open(recipe, progress)?);
        rooms.plan.check_rank(rank)?;
        let (turn, seat, flow) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { rooms, rank, turn, seat, flow })
    }

    /// The next batch, waiting for it at most as long as `patience`. After an error the loader
    /// stays failed, and says the same again.
    pub fn next(&self, patience: Duration) -> Result<Next> {
        let _turn = self.turn();
        let (flow, asked) = {
            let mut seat = self.seat();
            if let Some(error) = &seat.failed {
                return Err(error.clone());
            }
            let asked = *seat.asking_since.get_or_insert_with(Instant::now);
            (self.flow(&seat), asked)
        };
        let step = flow.and_then(|flow| flow.take(patience));
        let mut seat = self.seat();
        match step.and_then(|step| self.hand_over(&mut seat, step, asked)) {
            Err(error) => {
                if error != Error::Stopped {
                    seat.failed = Some(error.clone());
                }
                Err(error)
            }
            next => next,
        }
    }

    fn hand_over(&self, seat: &mut Seat, step: Step, asked: Instant) -> Result<Next> {
        let mut batch = match step {
            Step::Waiting => return Ok(Next::Waiting),
            Step::End => {
                seat.asking_since = None;
                return Ok(Next::End);
            }
            Step::Batch(batch) => batch,
        };
        seat.asking_since = None;
        // What is refused here was not delivered, so the state remains that of the batch before.
        let recipe = &self.rooms.recipe;
        seat.tally =
            seat.tally.with(&batch, recipe.engine.bad_sample_limit, &recipe.dataset.shown())?;
        seat.steps += 1;
        self.count(&batch);
        batch.cursor = Some(self.cursor(seat));
        let now = Instant::now();
        let since = seat.last_hand_over.replace(now).unwrap_or(asked);
        self.rooms.metrics.waited(Wait { blocked: now - asked, wall: now - since });
        Ok(Next::Batch(batch))
    }

    fn count(&self, batch: &Batch) {
        let metrics = &self.rooms.metrics;
        metrics.samples.add(batch.samples.len() as u64);
        metrics.images.add(batch.images);
        metrics.tokens.add(batch.tokens);
        let neutralised = batch.bad.iter().filter(|bad| batch.samples.contains(&bad.id)).count();
        metrics.neutralised.add(neutralised as u64);
        metrics.replaced.add((batch.bad.len() - neutralised) as u64);
        batch.bad.iter().for_each(|bad| metrics.bad_sample(bad.to_string()));
    }

    /// Where to go on after the last batch that was handed over.
    pub fn state(&self) -> Cursor {
        self.cursor(&self.seat())
    }

    fn cursor(&self, seat: &Seat) -> Cursor {
        let batches = seat.start + seat.steps * u64::from(self.rank.of);
        self.rooms.plan.cursor(batches, seat.tally.samples, seat.tally.bad_samples)
    }

    /// Goes on where a cursor says; it may come from any number of ranks.
    pub fn load_state(&self, cursor: &Cursor) -> Result<()> {
        self.rooms.plan.check_cursor(cursor)?;
        self.restart(Seat {
            start: cursor.batches(),
            tally: Tally::resumed(cursor),
            ..Seat::default()
        })
    }

    /// Goes back to the beginning.
    pub fn rewind(&self) -> Result<()> {
        self.restart(Seat::default())
    }

    fn restart(&self, seat: Seat) -> Result<()> {
        let _turn = self.turn();
        let mut running = self.running();
        if running.closed {
            return Err(Error::Stopped);
        }
        drop(running.flow.take());
        drop(running);
        *self.seat() = seat;
        Ok(())
    }

    /// Batches of this rank in the whole run; `None` if it is endless.
    pub fn len(&self) -> Option<u64> {
        self.rooms.plan.batches_per_rank(0, self.rank)
    }

    /// Whether the run has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// What it has done so far.
    pub fn report(&self) -> Report {
        self.rooms.metrics.report()
    }

    /// What finishes `u8` pixels on a device.
    pub fn finish(&self) -> Finish {
        self.rooms.vision.finish()
    }

    /// Ends all threads and requests, also while another thread waits in [`Loader::next`]. Batches
    /// that were handed over stay valid.
    pub fn close(&self) {
        let mut running = self.running();
        running.closed = true;
        if let Some(flow) = running.flow.take() {
            flow.stop();
        }
        self.rooms.fetcher.close();
    }

    fn flow(&self, seat: &Seat) -> Result<Arc<Flow>> {
        let mut running = self.running();
        if running.closed {
            return Err(Error::Stopped);
        }
        if let Some(flow) = &running.flow {
            return Ok(Arc::clone(flow));
        }
        let share =
            Share { start: seat.start + seat.steps * u64::from(self.rank.of), rank: self.rank };
        let flow = Arc::new(Flow::start(Arc::clone(&self.rooms), share)?);
        running.flow = Some(Arc::clone(&flow));
        Ok(flow)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.close();
    }
}
