//! How long the trainer was blocked, batch by batch. Totals are exact over the whole run; single
//! waits are kept for the last [`Waits::WINDOW`] batches, so a run of weeks stays small.

use std::collections::VecDeque;
use std::time::Duration;

/// One batch as the trainer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Time blocked in `next()`.
    pub blocked: Duration,
    /// Wall time since the previous batch was handed over, this wait included; for the first batch
    /// since the iteration began.
    pub wall: Duration,
}

/// The log of waits.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The first batch, which waits for the start of everything and is kept apart.
    pub(super) first: Option<Wait>,
    /// All later batches, added up.
    pub(super) total: Totals,
    /// The latest of the later batches.
    pub(super) window: VecDeque<Wait>,
}

/// Sums over batches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) batches: u64,
    pub(super) blocked: Duration,
    pub(super) wall: Duration,
}

impl Waits {
    /// How many single waits are kept.
    pub const WINDOW: usize = 1024;

    /// Adds a batch.
    pub fn push(&mut self, wait: Wait) {
        if self.first.is_none() {
            self.first = Some(wait);
            return;
        }
        self.total.batches += 1;
        self.total.blocked += wait.blocked;
        self.total.wall += wait.wall;
        if self.window.len() == Self::WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(wait);
    }

    /// The share of `wall` in `blocked`.
    pub(super) fn ratio(blocked: Duration, wall: Duration) -> Option<f64> {
        (!wall.is_zero()).then(|| blocked.as_secs_f64() / wall.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batch_is_kept_apart_and_the_window_is_bounded() {
        let mut waits = Waits::default();
        let wait = |blocked, wall| Wait {
            blocked: Duration::from_millis(blocked),
            wall: Duration::from_millis(wall),
        };
        waits.push(wait(900, 900));
        for _ in 0..5000 {
            waits.push(wait(1, 4));
        }
        assert_eq!(waits.first, Some(wait(900, 900)));
        assert_eq!(waits.window.len(), Waits::WINDOW);
        assert_eq!(Waits::ratio(waits.total.blocked, waits.total.wall), Some(0.25));
    }
}
