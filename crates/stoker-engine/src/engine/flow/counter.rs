//! What lies on the counter: batches in the making, batches that wait to be taken, and who asks for which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::super::batch::Batch;
use crate::error::Result;
use crate::metrics::Progress;

/// The counter.
#[derive(Default)]
pub(super) struct Counter {
    /// Begun and not finished.
    pub(super) making: BTreeMap<u64, Making>,
    pub(super) finished: BTreeMap<u64, Finished>,
    /// These may have memory.
    pub(super) wanted: BTreeSet<u64>,
    /// Somebody waits for these.
    pub(super) asked: BTreeSet<u64>,
    pub(super) stopped: bool,
}

/// A batch that waits to be taken.
pub(super) struct Finished {
    pub(super) batch: Result<Batch>,
    /// Counts it as ready until it is dropped.
    _progress: Arc<Progress>,
}

impl Finished {
    pub(super) fn new(batch: Result<Batch>, progress: Arc<Progress>) -> Self {
        Self { batch, _progress: progress }
    }
}

/// A batch that is being made.
pub(super) struct Making {
    pub(super) task: AbortHandle,
    /// Tells it that it is wanted; gone when that was told.
    pub(super) want: Option<oneshot::Sender<()>>,
    /// What it is at.
    pub(super) progress: Arc<Progress>,
}

impl Making {
    pub(super) fn want(&mut self) {
        if let Some(want) = self.want.take() {
            self.progress.want();
            // A task that is past caring has finished or failed.
            let _told = want.send(());
        }
    }
}

impl Counter {
    /// Somebody waits for a batch.
    pub(super) fn asked(&mut self, sequence: u64) {
        self.asked.insert(sequence);
        if let Some(making) = self.making.get(&sequence) {
            making.progress.asked();
        }
    }

    pub(super) fn want(&mut self, sequence: u64) {
        if self.wanted.insert(sequence)
            && let Some(making) = self.making.get_mut(&sequence)
        {
            making.want();
        }
    }
}
