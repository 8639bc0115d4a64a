//! The front door. A [`Loader`] makes the batches of one rank and hands them over in order. Its two
//! halves are there by themselves for those who have batches made elsewhere: a [`Maker`] makes any
//! batch by its number, a [`Front`] knows what comes next and counts what is handed over.
//!
//! A `Loader` belongs to one consumer at a time; [`Loader::close`], [`Loader::report`] and
//! [`Loader::state`] may be called from any thread. Work starts at the first [`Loader::next`], so a
//! loader that resumes fetches nothing that was consumed before.

mod ahead;
mod depth;
mod examine;
mod front;
mod ledger;
mod live;
mod look;
mod maker;
mod tally;
mod trace;
mod verify;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Result;
use crate::metrics::Report;
use crate::plan::Cursor;
use crate::recipe::Recipe;
use crate::sample::Rank;
use crate::vision::Finish;
use ahead::Ahead;

pub use crate::engine::{Batch, Keeper, Lease, Mapping, Memory, Opening};
pub use depth::{ahead, workers};
pub use examine::{Data, Examination};
pub use front::{Front, REMEMBERED};
pub use live::{Glance, Name, running};
pub use look::{IndexSummary, Length, Outlook, Peek, SizesSummary, index, measure, outlook, peek};
pub use maker::Maker;
pub use tally::too_many_bad;
pub use trace::{Trace, TraceError};
pub use verify::{Finding, Interruption, Verified, Verify};

/// Finished batches of one rank, in order.
pub struct Loader {
    front: Arc<Front>,
    ahead: Arc<Ahead>,
    /// Held by the consumer while it waits, for long; other locks are held for moments.
    turn: Mutex<()>,
    last_trace: Mutex<Option<Trace>>,
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
        Ok(Self::of(Front::open_with_progress(recipe, rank, progress)?))
    }

    /// The same, in an opening that may be given up.
    pub fn open_in(opening: &Opening, recipe: Recipe, rank: Rank) -> Result<Self> {
        Ok(Self::of(Front::open_in(opening, recipe, rank)?))
    }

    fn of(front: Front) -> Self {
        let front = Arc::new(front);
        let ahead = Ahead::new(Arc::clone(&front));
        Self { front, ahead, turn: Mutex::default(), last_trace: Mutex::default() }
    }

    /// The next batch, waiting for it at most as long as `patience`. After an error the loader
    /// stays failed, and says the same again.
    pub fn next(&self, patience: Duration) -> Result<Next> {
        self.next_by(|sequence| self.ahead.take(sequence, patience))
    }

    /// The next batch if it is ready: for who takes one before it is needed. No wait is counted.
    pub fn next_if_ready(&self) -> Result<Next> {
        self.next_by(|sequence| self.ahead.take_ready(sequence))
    }

    fn next_by(&self, take: impl FnOnce(u64) -> Result<Option<Box<Batch>>>) -> Result<Next> {
        let _turn = self.turn();
        self.front.check()?;
        let Some(sequence) = self.front.sequence_at(0) else {
            self.front.end();
            return Ok(Next::End);
        };
        let Some(batch) = take(sequence)? else { return Ok(Next::Waiting) };
        let Some(batch) = self.ahead.hand_over(batch)? else {
            self.front.end();
            return Ok(Next::End);
        };
        Ok(Next::Batch(batch))
    }

    /// The batch that [`Loader::next`] gave is with the trainer only now: see [`Front::arrived`].
    pub fn arrived(&self) {
        self.front.arrived();
    }

    /// Whether [`Next::End`] was given, after which the run is to begin anew.
    pub fn ended(&self) -> bool {
        self.front.ended()
    }

    /// Where to go on after the last batch that was handed over, or after the end.
    pub fn state(&self) -> Cursor {
        self.front.state()
    }

    /// The state as it was before the last `batches` batches; see [`Front::state_ago`].
    pub fn state_ago(&self, batches: usize) -> Option<Cursor> {
        self.front.state_ago(batches)
    }

    /// Goes on where a cursor says; it may come from any number of ranks.
    pub fn load_state(&self, cursor: &Cursor) -> Result<()> {
        self.restart(|front| front.load_state(cursor))
    }

    /// Goes back to the beginning.
    pub fn rewind(&self) -> Result<()> {
        self.restart(|front| {
            front.rewind();
            Ok(())
        })
    }

    fn restart(&self, place: impl FnOnce(&Front) -> Result<()>) -> Result<()> {
        let _turn = self.turn();
        self.ahead.restart(|| place(&self.front))
    }

    /// Batches of this rank in the whole run, if that is known: see [`Front::len`].
    pub fn len(&self) -> Option<u64> {
        self.front.len()
    }

    /// Whether the run has no end.
    pub fn is_endless(&self) -> bool {
        self.front.is_endless()
    }

    /// Whether the run has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// What it has done so far.
    pub fn report(&self) -> Report {
        self.front.report()
    }

    /// Batches of this rank that are still to come; see [`Front::left`].
    pub fn left(&self) -> Option<u64> {
        self.front.left()
    }

    /// Where it is read over HTTP, if `engine.metrics` says so.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.front.metrics_address()
    }

    /// Records what happens from now on, for so many batches or until it is stopped, and then writes it
    /// to a file; see [`Trace`].
    pub fn trace(&self, path: &Path, steps: Option<u64>) -> Result<Trace, TraceError> {
        let mut last = self.last_trace();
        if let Some(last) = &*last {
            if !last.ended() {
                return Err(TraceError::Busy);
            }
            // From here on, stopping that one has no hold on the next.
            drop(last.stop());
        }
        let trace =
            Trace::start(Arc::clone(&self.front.rooms().metrics), self.front.rank(), path, steps)?;
        *last = Some(trace.clone());
        Ok(trace)
    }

    fn last_trace(&self) -> MutexGuard<'_, Option<Trace>> {
        self.last_trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What finishes `u8` pixels on a device.
    pub fn finish(&self) -> Finish {
        self.front.finish()
    }

    /// Ends all threads and requests, also while another thread waits in [`Loader::next`]. Batches
    /// that were handed over stay valid.
    pub fn close(&self) {
        self.ahead.close();
        self.front.close();
        if let Some(trace) = self.last_trace().take() {
            // Whether it could be written is told to whoever holds it.
            drop(trace.stop());
        }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.close();
    }
}
