//! How many compressed bytes may wait at once.
//!
//! Permits are given strictly in the order of the batches, before a request is sent, so that an
//! early sample is never starved by later ones. The earliest unfinished batch (the head) always
//! gets its permit, over the limit if need be, since everything else waits for it. A permit may be
//! taken on a guess; what is really needed is told when it is known ([`Permit::need`]), and a batch
//! that by itself needs more than the limit is an error that names what was too much. So a guess
//! that is too large refuses nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::{BudgetError, Error, Result};
use crate::fetch::Urgency;
use crate::metrics::Metrics;

/// For what bytes are taken, in the order of precedence: the samples that are measured to know a
/// batch, one by one, then the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) batch: u64,
    part: u64,
}

impl Claim {
    /// For one of the samples without whose sizes a batch is not known.
    pub(super) fn measuring(batch: u64, sample: u64) -> Self {
        Self { batch, part: sample }
    }
}

impl From<u64> for Claim {
    /// For all of a batch.
    fn from(batch: u64) -> Self {
        Self { batch, part: u64::MAX }
    }
}

impl From<Claim> for Urgency {
    /// Requests are sent in the order in which memory is given.
    fn from(Claim { batch, part }: Claim) -> Self {
        Self { batch, part }
    }
}

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
    /// Bytes that are known to be needed.
    needed: BTreeMap<Claim, u64>,
    /// The earliest unfinished batch.
    head: u64,
    tickets: u64,
    waiting: BTreeMap<(Claim, u64), Waiter>,
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
    claim: Claim,
    bytes: u64,
    /// The bytes that are known to be needed; they may be more than were granted so far.
    needed: u64,
}

impl Permit {
    /// Tells how many bytes are really needed; `what` names them in an error.
    pub(super) fn need(&mut self, bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
        let total = self.budget.lock().set_needed(self.claim, self.needed, bytes);
        self.needed = bytes;
        if total > self.budget.limit { Err(self.budget.too_large(what(), total)) } else { Ok(()) }
    }

    /// Gives back what is over `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.budget.lock().set_needed(self.claim, self.needed, bytes);
        self.needed = bytes;
        self.budget.give_back(surplus);
    }

    /// Takes over another permit of the same claim, of which nothing was told.
    pub(super) fn absorb(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.lock().set_needed(self.claim, self.needed, 0);
        self.budget.give_back(self.bytes);
    }
}

impl State {
    /// One permit of a claim needs `now` in place of `before`; what the claim needs in all.
    fn set_needed(&mut self, claim: Claim, before: u64, now: u64) -> u64 {
        let total = self.needed.remove(&claim).unwrap_or(0) - before + now;
        if total > 0 {
            self.needed.insert(claim, total);
        }
        total
    }
}

impl Budget {
    pub(super) fn new(limit: u64, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { limit, metrics, state: Mutex::default() })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Waits for `bytes`.
    pub(super) async fn take(
        self: &Arc<Self>,
        claim: impl Into<Claim>,
        bytes: u64,
    ) -> Result<Permit> {
        let claim = claim.into();
        let (ticket, mut grant) = self.ask(claim, bytes);
        let _entry = Entry { budget: self, key: (claim, ticket) };
        if let Ok(permit) = grant.try_recv() {
            return Ok(permit);
        }
        let _held_back = self.metrics.occupancy.hold(|standing| &mut standing.held_back);
        grant.await.map_err(|_| Error::Stopped)
    }

    fn ask(self: &Arc<Self>, claim: Claim, bytes: u64) -> (u64, oneshot::Receiver<Permit>) {
        let mut state = self.lock();
        let (granted, grant) = oneshot::channel();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.insert((claim, ticket), Waiter { bytes, granted });
        self.settle(state);
        (ticket, grant)
    }

    /// `head` is the earliest batch that is not finished.
    pub(super) fn set_head(self: &Arc<Self>, head: u64) {
        let mut state = self.lock();
        state.head = head;
        self.settle(state);
    }

    fn give_back(self: &Arc<Self>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.metrics.compressed_bytes.sub(bytes);
        let mut state = self.lock();
        state.used -= bytes;
        self.settle(state);
    }

    /// Grants in order, and stops at the first that does not fit. The grants are sent without the
    /// lock, since a receiver that is gone gives its bytes straight back.
    fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut grants = Vec::new();
        while let Some((&(claim, ticket), waiter)) = state.waiting.first_key_value() {
            if state.used + waiter.bytes > self.limit && claim.batch > state.head {
                break;
            }
            let waiter = state.waiting.remove(&(claim, ticket)).expect("it is the first");
            let bytes = waiter.bytes;
            state.used += bytes;
            self.metrics.compressed_bytes.add(bytes);
            let permit = Permit { budget: Arc::clone(self), claim, bytes, needed: 0 };
            grants.push((waiter.granted, permit));
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

/// Takes a waiter back when the one who waits is gone; those behind it may be next.
struct Entry<'a> {
    budget: &'a Arc<Budget>,
    key: (Claim, u64),
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        if state.waiting.remove(&self.key).is_some() {
            self.budget.settle(state);
        }
    }
}

#[cfg(test)]
mod tests;
