//! What waits to be written: bounded in bytes, and off everybody's way.
//!
//! Whoever read something from the store offers it and goes on. One blocking thread at a time writes
//! what waits; if it is behind, what is offered is dropped, and is read from the store once more in
//! the next epoch. At the end it has a moment for what still waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::entry::{Name, Version};
use crate::metrics::Gauge;

/// How long the end waits for what is not written yet.
const LAST_MOMENT: Duration = Duration::from_millis(400);

/// An entry that is to be written.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: Name,
    pub(super) version: Version,
    pub(super) bytes: Bytes,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// Most bytes that wait.
    pub(super) limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Item>,
    bytes: u64,
    /// Whether a thread writes what waits.
    is_drained: bool,
    /// Whether the end was told.
    closing: bool,
    /// Whether the last file is sealed, and no thread comes again.
    closed: bool,
}

/// What becomes of an item that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// It waits, and somebody will come for it.
    Taken,
    /// It waits, and somebody has to be sent for it.
    First,
    Dropped,
}

/// What a thread that writes is to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Write this; its bytes count until it is [done](Queue::done).
    Item(Item),
    /// End, and be sent again.
    Rest,
    /// Seal the last file, and end for good.
    End,
}

impl Queue {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn offer(&self, item: Item, gauge: &Gauge) -> Offer {
        let mut state = self.lock();
        let size = item.bytes.len() as u64;
        if state.closing || state.bytes + size > self.limit {
            return Offer::Dropped;
        }
        state.bytes += size;
        gauge.add(size);
        state.waiting.push_back(item);
        if std::mem::replace(&mut state.is_drained, true) { Offer::Taken } else { Offer::First }
    }

    /// What the thread is to do next.
    pub(super) fn next(&self) -> Next {
        let mut state = self.lock();
        match state.waiting.pop_front() {
            Some(item) => Next::Item(item),
            None if state.closing => Next::End,
            None => {
                state.is_drained = false;
                Next::Rest
            }
        }
    }

    pub(super) fn done(&self, size: u64, gauge: &Gauge) {
        self.lock().bytes -= size;
        gauge.sub(size);
    }

    /// Takes no more; whether a thread has to be sent for what waits and for the end.
    pub(super) fn close(&self) -> bool {
        let mut state = self.lock();
        let is_first = !std::mem::replace(&mut state.closing, true);
        is_first && !std::mem::replace(&mut state.is_drained, true)
    }

    /// Says that the end has come.
    pub(super) fn closed(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits a moment for the end, and gives up what is not written by then; how many items.
    pub(super) fn wait(&self, gauge: &Gauge) -> u64 {
        let (since, mut state) = (Instant::now(), self.lock());
        while !state.closed {
            let left = LAST_MOMENT.saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let given_up = std::mem::take(&mut state.waiting);
        let bytes = given_up.iter().map(|item| item.bytes.len() as u64).sum();
        state.bytes -= bytes;
        gauge.sub(bytes);
        given_up.len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
