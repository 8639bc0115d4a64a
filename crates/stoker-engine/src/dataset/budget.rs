//! How much memory the builders of indexes may hold together, and how much they may copy to the disk.
//!
//! Reading front to back takes little. A page of a Parquet file is read as a whole, and may hold the
//! images of a whole row group; a builder asks before it reads one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes of row groups that are read at once. A larger one is read alone.
const LIMIT: u64 = 2 << 30;

/// Bytes that all shards of a dataset were unpacked to so far.
#[derive(Debug, Default)]
pub(super) struct Unpacked(AtomicU64);

impl Unpacked {
    /// Counts some more; whether all are at most so many.
    pub(super) fn add(&self, bytes: u64, most: u64) -> bool {
        self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= most
    }
}

/// The memory of all builders.
#[derive(Debug, Default)]
pub(super) struct Budget {
    held: Mutex<u64>,
    given_back: Condvar,
}

/// The right to hold memory; given back on drop.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// Waits until there is room for so many bytes, or nothing else is held.
    pub(super) fn take(&self, bytes: u64) -> Permit<'_> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while *held > 0 && held.saturating_add(bytes) > LIMIT {
            held = self.given_back.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = bytes.min(u64::MAX - *held);
        *held += bytes;
        Permit { budget: self, bytes }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.budget.held.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.budget.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn no_more_is_held_than_the_limit_and_a_larger_group_is_held_alone() {
        let (budget, held, most) = (Budget::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (budget, held, most) = (&budget, &held, &most);
                scope.spawn(move || {
                    for step in 0..200 {
                        let bytes =
                            [LIMIT / 3, 1, LIMIT, LIMIT * 2, 0][(thread + step) as usize % 5];
                        let permit = budget.take(bytes);
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        // Who holds nothing does not keep a larger group from being held beside it.
                        assert!(now <= LIMIT || now == bytes || bytes == 0, "{now} with {bytes}");
                        most.fetch_max(now, Ordering::SeqCst);
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), LIMIT * 2);
        assert_eq!(*budget.held.lock().unwrap(), 0);
    }
}
