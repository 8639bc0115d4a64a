//! Who gets memory for a batch, and when: blocks are pooled and reused, and all of them together
//! stay under the limit.
//!
//! Batches are finished out of order and delivered in order, so memory is given in a way that can
//! not lock up: a later batch gets a block only if enough remains for every earlier batch that has
//! none yet. Should an estimate prove too small, the earliest batch goes over the limit, once,
//! rather than wait for batches that wait for it. When it is the trainer that holds everything, the
//! earliest batch waits for it, and gives up with an error that says so if the trainer waits too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::block::{Block, Draft};
use crate::error::{BudgetError, Bytes, Error, Result};
use crate::metrics::Metrics;

/// Size of a huge page, which blocks are multiples of.
const HUGE_PAGE: usize = 2 << 20;

/// How long the earliest batch waits, once it is asked for, while the trainer holds all memory.
const PATIENCE: Duration = Duration::from_secs(20);

/// The memory of all batches of a loader.
#[derive(Debug)]
pub(super) struct Pool {
    limit: usize,
    patience: Duration,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Block>,
    /// Bytes of the blocks that the trainer has.
    with_trainer: usize,
    /// Batches that are being made and have no block yet.
    expected: BTreeSet<u64>,
    /// The blocks of batches that the trainer does not have yet, and their sizes.
    placed: BTreeMap<u64, usize>,
    waiting: BTreeMap<u64, Waiter>,
    /// The largest block asked for so far: what an earlier batch may come to need.
    largest: usize,
    /// Nothing is made any more, so no block is kept for reuse.
    closed: bool,
}

#[derive(Debug)]
struct Waiter {
    capacity: usize,
    granted: oneshot::Sender<Held>,
}

/// A block (or the right to map one) that goes back to the pool when it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    pool: Arc<Pool>,
    block: Option<Block>,
    batch: u64,
    capacity: usize,
    with_trainer: bool,
}

impl Held {
    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().expect("a draft is made of a block that is mapped")
    }

    pub(super) fn block_mut(&mut self) -> &mut Block {
        self.block.as_mut().expect("a draft is made of a block that is mapped")
    }

    /// Whether it is a block to reuse.
    pub(super) fn is_mapped(&self) -> bool {
        self.block.is_some()
    }

    /// Maps the block if it was none to reuse, which has to wait for all who are getting pages.
    pub(super) fn draft(mut self, bytes: usize) -> Result<Draft> {
        if self.block.is_none() {
            self.block = Some(Block::map(self.capacity)?);
            self.pool.metrics.arena_bytes.add(self.capacity as u64);
        }
        Ok(Draft::new(self, bytes))
    }

    pub(super) fn hand_over(&mut self) {
        if !self.with_trainer {
            self.with_trainer = true;
            let mut state = self.pool.lock();
            state.displace(self.batch, self.capacity);
            state.with_trainer += self.capacity;
            self.pool.settle(state);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.metrics.leased_bytes.sub(self.capacity as u64);
        let mut state = self.pool.lock();
        if self.with_trainer {
            state.with_trainer -= self.capacity;
        } else {
            state.displace(self.batch, self.capacity);
        }
        if let Some(block) = self.block.take() {
            if state.closed {
                self.pool.metrics.arena_bytes.sub(self.capacity as u64);
                return;
            }
            state.idle.push(block);
        }
        self.pool.settle(state);
    }
}

impl Pool {
    pub(super) fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { limit, patience: PATIENCE, metrics, state: Mutex::default() })
    }

    /// A batch will need memory. Later ones leave room for it from now on, until the guard is
    /// dropped or it has its memory.
    pub(super) fn expect(self: &Arc<Self>, batch: u64) -> Expected {
        self.lock().expected.insert(batch);
        Expected { pool: Arc::clone(self), batch }
    }

    /// Waits for memory for a batch. Whether the trainer waits for this batch is what `is_asked`
    /// tells: a trainer that is busy may hold everything for as long as it likes.
    pub(super) async fn take(
        self: &Arc<Self>,
        batch: u64,
        bytes: usize,
        is_asked: impl Fn() -> bool,
    ) -> Result<Held> {
        let mut grant = self.ask(batch, bytes)?;
        let _entry = Entry { pool: self, batch };
        loop {
            let asked = is_asked();
            match tokio::time::timeout(self.patience, &mut grant).await {
                Ok(held) => return held.map_err(|_| Error::Stopped),
                Err(_) if asked && self.trainer_holds_all(batch) => {
                    return Err(self.held_back(bytes));
                }
                Err(_) => {}
            }
        }
    }

    /// Memory for a batch, without waiting.
    pub(super) fn take_now(self: &Arc<Self>, batch: u64, bytes: usize) -> Result<Held> {
        let _entry = Entry { pool: self, batch };
        self.ask(batch, bytes)?.try_recv().map_err(|_| self.held_back(bytes))
    }

    /// Unmaps what is idle, and from now on what comes back: a batch that the trainer keeps keeps
    /// no memory but its own.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.metrics.arena_bytes.sub(state.idle_bytes() as u64);
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(idle);
    }

    fn ask(self: &Arc<Self>, batch: u64, bytes: usize) -> Result<oneshot::Receiver<Held>> {
        let capacity = capacity_for(bytes);
        if capacity > self.limit / 2 {
            return Err(self.too_large(bytes, capacity));
        }
        let (granted, grant) = oneshot::channel();
        let mut state = self.lock();
        state.expected.insert(batch);
        state.waiting.insert(batch, Waiter { capacity, granted });
        self.settle(state);
        Ok(grant)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trainer_holds_all(&self, batch: u64) -> bool {
        let state = self.lock();
        state.expected.first() == Some(&batch) && state.placed.is_empty()
    }

    /// Grants what can be granted. The grants are sent without the lock, since a receiver that is
    /// gone gives its block straight back.
    fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut grants = Vec::new();
        let batches: Vec<u64> = state.waiting.keys().copied().collect();
        for batch in batches {
            let capacity = state.waiting[&batch].capacity;
            if !state.may_take(batch, capacity, self.limit) {
                continue;
            }
            let waiter = state.waiting.remove(&batch).expect("it is among the waiting");
            let (block, capacity, unmapped) = state.give(capacity, self.limit);
            self.metrics.arena_bytes.sub(unmapped as u64);
            state.place(batch, capacity);
            self.metrics.leased_bytes.add(capacity as u64);
            let pool = Arc::clone(self);
            let held = Held { pool, block, batch, capacity, with_trainer: false };
            grants.push((waiter.granted, held));
        }
        drop(state);
        for (granted, held) in grants {
            drop(granted.send(held));
        }
    }

    fn too_large(&self, bytes: usize, capacity: usize) -> Error {
        let enough = Bytes((2 * capacity) as u64 * 4 / 3 + (1 << 20));
        Error::Budget(BudgetError {
            what: "a batch".into(),
            needed: bytes as u64,
            limit: self.limit as u64 / 2,
            hint: format!(
                "half of the memory for batches is the limit, since the trainer holds one batch \
                 while it asks for the next: set engine.memory to {enough} or more, or make \
                 batches smaller (pack.batch-size, vision.max-pixels, vision.pixels)"
            ),
        })
    }

    fn held_back(&self, bytes: usize) -> Error {
        let with_trainer = Bytes(self.lock().with_trainer as u64);
        Error::Budget(BudgetError {
            what: "the next batch".into(),
            needed: bytes as u64,
            limit: self.limit as u64,
            hint: format!(
                "the trainer still holds batches of {with_trainer}: drop them (and all tensors \
                 over them), or raise engine.memory"
            ),
        })
    }
}

impl State {
    fn idle_bytes(&self) -> usize {
        self.idle.iter().map(Block::capacity).sum()
    }

    /// Bytes of blocks that are given out.
    fn leased(&self) -> usize {
        self.with_trainer + self.placed.values().sum::<usize>()
    }

    fn may_take(&self, batch: u64, capacity: usize, limit: usize) -> bool {
        let earlier = self.expected.range(..batch).count();
        let reserve = earlier.saturating_mul(self.largest.max(capacity));
        let fits = self.leased() + capacity + reserve <= limit;
        let would_lock_up = self.placed.first_key_value().is_some_and(|(&first, _)| first > batch);
        fits || (earlier == 0 && would_lock_up)
    }

    fn place(&mut self, batch: u64, capacity: usize) {
        self.expected.remove(&batch);
        *self.placed.entry(batch).or_default() += capacity;
    }

    /// A batch was made twice if it was given up and begun anew; both blocks count.
    fn displace(&mut self, batch: u64, capacity: usize) {
        let left = self.placed.remove(&batch).unwrap_or(0) - capacity;
        if left > 0 {
            self.placed.insert(batch, left);
        }
    }

    /// A block to reuse, if one fits; else room is made for a new one, a quarter larger than any
    /// batch so far, since batches vary and mapping is slow; but only if another batch has room
    /// beside it. Returns the capacity, and how many bytes were unmapped to make room.
    fn give(&mut self, capacity: usize, limit: usize) -> (Option<Block>, usize, usize) {
        self.largest = self.largest.max(capacity);
        let best = (0..self.idle.len())
            .filter(|&i| self.idle[i].capacity() >= capacity)
            .min_by_key(|&i| self.idle[i].capacity());
        if let Some(best) = best {
            let block = self.idle.swap_remove(best);
            let capacity = block.capacity();
            return (Some(block), capacity, 0);
        }
        let roomy = capacity_for(self.largest + self.largest / 4);
        let another_fits = self.leased() + roomy + self.largest <= limit;
        let capacity = if another_fits { roomy } else { capacity };
        let mut unmapped = 0;
        while self.leased() + capacity + self.idle_bytes() > limit {
            let Some(block) = self.idle.pop() else { break };
            unmapped += block.capacity();
        }
        (None, capacity, unmapped)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let idle = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).idle_bytes();
        self.metrics.arena_bytes.sub(idle as u64);
    }
}

/// A batch that leaves its turn when this is dropped, for whatever reason.
#[derive(Debug)]
pub(super) struct Expected {
    pool: Arc<Pool>,
    batch: u64,
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if state.expected.remove(&self.batch) {
            self.pool.settle(state);
        }
    }
}

/// Takes a waiter back when the one who waits is gone.
struct Entry<'a> {
    pool: &'a Arc<Pool>,
    batch: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if state.waiting.remove(&self.batch).is_some() {
            state.expected.remove(&self.batch);
            self.pool.settle(state);
        }
    }
}

/// Blocks come in steps of an eighth of their size, so that batches of similar size can reuse each
/// other's.
fn capacity_for(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 8).max(HUGE_PAGE);
    bytes.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests;
