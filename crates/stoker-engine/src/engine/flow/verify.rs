//! Looking at every row of every dataset once, as a run would, and without making batches of them.
//!
//! Each row takes the way that a run takes it (located, read, parsed, its images brought in,
//! measured, tokenised, decoded) up to the point from which nothing can go wrong any more. Many are
//! on the way at once, within the same bounds as in a run; what is found is told in the order of
//! the rows, with a bounded number of findings waiting to be taken. No sample ends it, not even one
//! that would end a run; a store that fails does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::neighbours::{RowInTurn, RowOf};
use super::{Bench, Flow, Line, Permit, Turn, caught};
use crate::dataset::Dataset;
use crate::engine::budget::Claim;
use crate::engine::measure::Reach;
use crate::error::{Error, Flaw, Outcome, Result, SampleError};
use crate::metrics::Room;
use crate::recipe::OnBadSample;
use crate::sample::{Measured, SampleId};

/// Findings that wait to be taken.
const WAITING: usize = 256;

/// A sample that can't be used, and what becomes of it in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which, where it stands, and what is wrong.
    pub error: SampleError,
    /// What a run does; `None` where it ends.
    pub outcome: Option<Outcome>,
}

/// What is told next.
#[derive(Debug)]
pub(crate) enum Told {
    Found(Box<Finding>),
    /// All rows were looked at.
    End,
    /// No sample is to blame: the row that was on its way, and why it did not arrive.
    Failed(SampleId, Error),
    /// Nothing yet.
    Waiting,
}

/// What is found, as it is found.
pub(crate) struct Findings {
    told: Receiver<Told>,
    free: Arc<Semaphore>,
    looked_at: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Flow {
    /// Starts to look at all rows.
    pub(crate) fn verify(&self) -> Findings {
        let (sender, told) = sync_channel(WAITING);
        let free = Arc::new(Semaphore::new(WAITING));
        let looked_at = Arc::<AtomicU64>::default();
        let teller = Teller { sender, free: Arc::clone(&free) };
        let all = Arc::clone(&self.line).look_at_all(teller, Arc::clone(&looked_at));
        let task = self.line.rooms.fetcher.spawn(all).abort_handle();
        Findings { told, free, looked_at, task }
    }
}

impl Findings {
    /// What is told next, waiting for it at most as long as `patience`.
    pub(crate) fn next(&self, patience: Duration) -> Result<Told> {
        match self.told.recv_timeout(patience) {
            Ok(told) => {
                self.free.add_permits(1);
                Ok(told)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Told::Waiting),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Stopped),
        }
    }

    /// Rows that were looked at, in order.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.load(Ordering::Relaxed)
    }
}

impl Drop for Findings {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tells one thing after the other, and waits while too many were not taken.
struct Teller {
    sender: SyncSender<Told>,
    free: Arc<Semaphore>,
}

impl Teller {
    async fn tell(&self, told: Told) {
        if let Ok(place) = self.free.acquire().await {
            place.forget();
            // There is room; who no longer listens need not be told.
            drop(self.sender.send(told));
        }
    }
}

impl Line {
    async fn look_at_all(self: Arc<Self>, teller: Teller, looked_at: Arc<AtomicU64>) {
        // Enough for all requests that may be in flight, with lines and images taking turns.
        let at_once = 2 * self.rooms.recipe.fetch.concurrency as usize;
        let examine = |(turn, row): (u64, RowInTurn)| {
            let line = Arc::clone(&self);
            async move { (row.row().id(), Box::pin(line.examine(turn, row.row())).await) }
        };
        let rows = self.in_turns(self.rows(), Claim::from, |_, _| false);
        let mut examined = stream::iter(rows).map(examine).buffered(at_once);
        self.budget.set_head(0);
        while let Some((id, outcome)) = examined.next().await {
            let told = match outcome {
                Ok(None) => None,
                Ok(Some(finding)) => Some(Told::Found(Box::new(finding))),
                Err(error) => return teller.tell(Told::Failed(id, error)).await,
            };
            if let Some(told) = told {
                teller.tell(told).await;
            }
            let done = looked_at.fetch_add(1, Ordering::Relaxed) + 1;
            self.budget.set_head(done);
        }
        teller.tell(Told::End).await;
    }

    /// The rows of all datasets, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = SampleId> + use<> {
        let rows: Vec<u64> = self.rooms.catalog.datasets().iter().map(Dataset::rows).collect();
        let datasets = (0..).zip(rows);
        datasets.flat_map(|(dataset, rows)| (0..rows).map(move |row| SampleId { dataset, row }))
    }

    /// What is wrong with a row. An error is the store's, or nobody's.
    async fn examine(self: &Arc<Self>, turn: u64, row: RowOf<'_>) -> Result<Option<Finding>> {
        let id = row.id();
        let (flaw, outcome) = match caught(Box::pin(self.first_flaw(turn, row))).await {
            Ok(None) => return Ok(None),
            Ok(Some((flaw, outcome))) => (flaw, self.outcome(outcome)),
            // Here a run ends, though it is but one sample that is to blame.
            Err(Error::Budget(error)) => {
                let reason = Error::Budget(error).to_string();
                (Flaw::new(Room::Engine, "over-memory", reason), None)
            }
            Err(Error::Bug(reason)) => (Flaw::new(Room::Engine, "bug", reason), None),
            Err(error) => return Err(error),
        };
        let origin = self.rooms.catalog.origin(id);
        Ok(Some(Finding { error: SampleError { id, flaw, origin }, outcome }))
    }

    async fn first_flaw(
        self: &Arc<Self>,
        turn: u64,
        row: RowOf<'_>,
    ) -> Result<Option<(Flaw, Outcome)>> {
        match self.try_sample(turn.into(), row.id(), Reach::Whole, Some(row)).await? {
            Ok((measured, permits)) => {
                let flaw = self.decode_all(turn, measured, permits).await?;
                Ok(flaw.map(|flaw| (flaw, Outcome::Neutralised)))
            }
            Err(flaw) if self.rooms.plan.keeps_rows() => Ok(Some((flaw, Outcome::Neutralised))),
            Err(flaw) => Ok(Some((flaw, Outcome::Replaced))),
        }
    }

    /// What a run makes of it, by its policy.
    fn outcome(&self, outcome: Outcome) -> Option<Outcome> {
        match self.rooms.recipe.engine.on_bad_sample {
            OnBadSample::Replace => Some(outcome),
            OnBadSample::Stop => None,
        }
    }

    /// Decodes the images of a sample up to the first that can't be.
    async fn decode_all(
        &self,
        turn: u64,
        measured: Measured,
        permits: Vec<Arc<Permit>>,
    ) -> Result<Option<Flaw>> {
        for image in measured.images {
            let _room = self.room_for(&image).await?;
            let rooms = Arc::clone(&self.rooms);
            let decode = move |bench: &mut Bench| {
                let flaw = rooms.decode(&image, &mut bench.decoder).err();
                bench.decoder.tidy();
                flaw
            };
            if let Some(flaw) = self.workers.run(Turn::fill(turn), decode).await? {
                return Ok(Some(flaw));
            }
        }
        drop(permits);
        Ok(None)
    }
}
