//! How many compressed bytes may wait at once.
//!
//! Permits are given strictly in the order of the batches, before a request is sent, so that an
//! early sample is never starved by later ones. The earliest unfinished batch (the head) always
//! gets its permit, over the limit if need be, since everything else waits for it; a batch that by
//! itself needs more than the limit is an error that names what was too much.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::{BudgetError, Error, Result};
use crate::metrics::Metrics;

/// The right to have compressed bytes in memory.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    /// Bytes by batch.
    by_batch: BTreeMap<u64, u64>,
    /// The earliest unfinished batch.
    head: u64,
    tickets: u64,
    waiting: BTreeMap<(u64, u64), Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<Permit>,
}

/// Bytes that were granted; given back on drop.
#[derive(Debug)]
pub(super) struct Permit {
    budget: Arc<Budget>,
    batch: u64,
    bytes: u64,
}

impl Permit {
    /// Gives back what is over `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.budget.give_back(self.batch, surplus);
    }

    /// Takes over another permit of the same batch.
    pub(super) fn absorb(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.give_back(self.batch, self.bytes);
    }
}

impl Budget {
    pub(super) fn new(limit: u64, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { limit, metrics, state: Mutex::default() })
    }

    /// Waits for `bytes` on behalf of a batch; `what` names them in an error.
    pub(super) async fn take(
        self: &Arc<Self>,
        batch: u64,
        bytes: u64,
        what: impl FnOnce() -> String,
    ) -> Result<Permit> {
        let (ticket, grant) = self.ask(batch, bytes, what)?;
        let _entry = Entry { budget: self, key: (batch, ticket) };
        grant.await.map_err(|_| Error::Stopped)
    }

    fn ask(
        self: &Arc<Self>,
        batch: u64,
        bytes: u64,
        what: impl FnOnce() -> String,
    ) -> Result<(u64, oneshot::Receiver<Permit>)> {
        let mut state = self.lock();
        let needed = state.by_batch.get(&batch).copied().unwrap_or(0) + bytes;
        if needed > self.limit {
            return Err(self.too_large(what(), needed));
        }
        let (granted, grant) = oneshot::channel();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.insert((batch, ticket), Waiter { bytes, granted });
        self.settle(state);
        Ok((ticket, grant))
    }

    /// The batches before `head` are finished.
    pub(super) fn advance(self: &Arc<Self>, head: u64) {
        let mut state = self.lock();
        state.head = state.head.max(head);
        self.settle(state);
    }

    fn give_back(self: &Arc<Self>, batch: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.metrics.compressed_bytes.sub(bytes);
        let mut state = self.lock();
        state.used -= bytes;
        let rest = state.by_batch.get_mut(&batch).map(|used| {
            *used -= bytes;
            *used
        });
        if rest == Some(0) {
            state.by_batch.remove(&batch);
        }
        self.settle(state);
    }

    /// Grants in order, and stops at the first that does not fit. The grants are sent without the
    /// lock, since a receiver that is gone gives its bytes straight back.
    fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut grants = Vec::new();
        while let Some((&(batch, ticket), waiter)) = state.waiting.first_key_value() {
            if state.used + waiter.bytes > self.limit && batch > state.head {
                break;
            }
            let waiter = state.waiting.remove(&(batch, ticket)).expect("it is the first");
            let bytes = waiter.bytes;
            state.used += bytes;
            *state.by_batch.entry(batch).or_default() += bytes;
            self.metrics.compressed_bytes.add(bytes);
            grants.push((waiter.granted, Permit { budget: Arc::clone(self), batch, bytes }));
        }
        drop(state);
        for (granted, permit) in grants {
            drop(granted.send(permit));
        }
    }

    fn too_large(&self, what: String, needed: u64) -> Error {
        let hint = "a quarter of engine.memory is for compressed images and large decoded ones: \
                    raise engine.memory, or lower pack.batch-size or image.max-bytes";
        Error::Budget(BudgetError { what, needed, limit: self.limit, hint: hint.into() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a waiter back when the one who waits is gone.
struct Entry<'a> {
    budget: &'a Budget,
    key: (u64, u64),
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.budget.lock().waiting.remove(&self.key);
    }
}

#[cfg(test)]
mod tests;
