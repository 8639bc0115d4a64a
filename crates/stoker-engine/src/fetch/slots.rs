//! Who may send a request next.
//!
//! At most `limit` requests are in flight, and of those to one store (a lane) at most as many as
//! [`Slots::allow`] says. A slot that becomes free goes to the read that is needed soonest, ties
//! first come first served; a read whose store is full is passed over, and keeps its place. No read
//! starves: it is overtaken only by those that are needed before it, and positions only grow.
//!
//! A waiter that is dropped leaves the queue, and a slot that was on its way to it goes to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::metrics::{Metrics, nanos};

/// How soon what is read is needed: the batch that waits for it, and its part of the batch. The
/// smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency {
    /// Number of the batch in the global sequence.
    pub batch: u64,
    /// Which of its parts.
    pub part: u64,
}

impl Urgency {
    /// Somebody does nothing else until it is there: indexes, listings, looking at data.
    pub const NOW: Self = Self { batch: 0, part: 0 };
}

/// The number of a lane.
pub(super) type Lane = u64;

#[derive(Debug)]
pub(super) struct Slots {
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    in_use: usize,
    tickets: u64,
    closed: bool,
    /// Those that are in use or waited for.
    lanes: BTreeMap<Lane, Queue>,
}

#[derive(Debug)]
struct Queue {
    limit: usize,
    in_use: usize,
    waiting: BTreeMap<Place, oneshot::Sender<Slot>>,
}

/// Whether a read asks for its first slot, or for a retry or a second request: it stands before those
/// that are as urgent and came after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coming {
    Again,
    Anew,
}

/// A place in the queue: urgency, then the order of coming.
type Place = (Urgency, Coming, u64);

/// The right to have one request in flight; given back on drop.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    lane: Lane,
}

impl Slots {
    pub(super) fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        let (in_use, tickets, closed, lanes) = (0, 0, false, BTreeMap::new());
        let state = Mutex::new(State { limit, in_use, tickets, closed, lanes });
        Arc::new(Self { metrics, state })
    }

    /// Waits for a slot. `limit` is what the lane may have if nobody uses it yet.
    pub(super) async fn take(
        self: &Arc<Self>,
        lane: Lane,
        limit: usize,
        urgency: Urgency,
        coming: Coming,
    ) -> Result<Slot> {
        let since = Instant::now();
        let (place, slot) = self.ask(lane, limit, (urgency, coming))?;
        let waiter = Waiter { slots: self, lane, place };
        let slot = slot.await.map_err(|_| Error::Stopped);
        drop(waiter);
        self.metrics.fetch.queued_nanos.add(nanos(since.elapsed()));
        slot
    }

    fn ask(
        self: &Arc<Self>,
        lane: Lane,
        limit: usize,
        (urgency, coming): (Urgency, Coming),
    ) -> Result<(Place, oneshot::Receiver<Slot>)> {
        let mut state = self.lock();
        if state.closed {
            return Err(Error::Stopped);
        }
        let (sender, slot) = oneshot::channel();
        let place = (urgency, coming, state.tickets);
        state.tickets += 1;
        let queue = state.lanes.entry(lane).or_insert_with(|| Queue {
            limit,
            in_use: 0,
            waiting: BTreeMap::new(),
        });
        queue.waiting.insert(place, sender);
        self.metrics.fetch.queued.add(1);
        self.settle(state);
        Ok((place, slot))
    }

    /// How many requests a lane may have in flight from now on.
    pub(super) fn allow(self: &Arc<Self>, lane: Lane, limit: usize) {
        let mut state = self.lock();
        if let Some(queue) = state.lanes.get_mut(&lane) {
            queue.limit = limit;
            self.settle(state);
        }
    }

    /// Whether reads wait for a slot of the lane.
    pub(super) fn wanted(&self, lane: Lane) -> bool {
        self.lock().lanes.get(&lane).is_some_and(|queue| !queue.waiting.is_empty())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Ends the waiting of all, for ever.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let mut ended = Vec::new();
        for queue in state.lanes.values_mut() {
            ended.extend(std::mem::take(&mut queue.waiting));
        }
        state.lanes.retain(|_, queue| queue.in_use > 0);
        drop(state);
        self.metrics.fetch.queued.sub(ended.len() as u64);
    }

    /// Gives what is free to those that are next. Without the lock, since a receiver that is gone
    /// gives its slot straight back.
    fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        while state.in_use < state.limit {
            let open = state.lanes.iter_mut().filter(|(_, queue)| queue.in_use < queue.limit);
            let next = open.filter_map(|(lane, queue)| {
                let place = *queue.waiting.first_key_value()?.0;
                Some((place, *lane, queue))
            });
            let Some((place, lane, queue)) = next.min_by_key(|(place, ..)| *place) else { break };
            let waiter = queue.waiting.remove(&place).expect("it is the first of its lane");
            queue.in_use += 1;
            state.in_use += 1;
            granted.push((waiter, Slot { slots: Arc::clone(self), lane }));
        }
        drop(state);
        self.metrics.fetch.queued.sub(granted.len() as u64);
        for (waiter, slot) in granted {
            drop(waiter.send(slot));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets a lane that nobody uses.
    fn tidy(&mut self, lane: Lane) {
        let idle = |queue: &Queue| queue.in_use == 0 && queue.waiting.is_empty();
        if self.lanes.get(&lane).is_some_and(idle) {
            self.lanes.remove(&lane);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        state.in_use -= 1;
        if let Some(queue) = state.lanes.get_mut(&self.lane) {
            queue.in_use -= 1;
        }
        state.tidy(self.lane);
        self.slots.settle(state);
    }
}

/// Leaves the queue when the one who waits is gone.
struct Waiter<'a> {
    slots: &'a Arc<Slots>,
    lane: Lane,
    place: Place,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        let queue = state.lanes.get_mut(&self.lane);
        let left = queue.and_then(|queue| queue.waiting.remove(&self.place)).is_some();
        state.tidy(self.lane);
        drop(state);
        if left {
            self.slots.metrics.fetch.queued.sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
