//! How long the trainer was blocked, batch by batch. Totals are exact over the whole run; single
//! waits are kept for the last [`Waits::WINDOW`] batches, so a run of weeks stays small.

use std::collections::VecDeque;
use std::time::Duration;

use super::blame::Blame;
use super::work::Work;

/// One batch as the trainer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Time blocked in `next()`: until the batch was handed over, and what the one before took from
    /// there to the trainer.
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
    pub(super) window: VecDeque<Seen>,
    /// What was done when the batch before the window was handed over.
    pub(super) before: Work,
    /// What the batch that is about to be handed over was waited for.
    pending: Blame,
    /// What the batch that was handed over last took from there to the trainer.
    late: Duration,
}

/// What is known of the batches of the window together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) batches: u64,
    pub(super) blocked: Duration,
    pub(super) wall: Duration,
    pub(super) blame: Blame,
    pub(super) work: Work,
}

/// A batch that was waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) wait: Wait,
    pub(super) blame: Blame,
    /// What was done by then.
    pub(super) work: Work,
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

    /// Takes note what the next batch was waited for.
    pub(super) fn blame(&mut self, blame: Blame) {
        self.pending += blame;
    }

    /// What was waited for, and is of no batch yet that was handed over.
    pub(super) fn pending(&self) -> Blame {
        self.pending
    }

    /// Takes note how long the latest batch took from its hand-over to the trainer. It is in the wall time
    /// of the batch that comes next, and so it counts as that one's.
    pub(super) fn late(&mut self, late: Duration) {
        self.late += late;
    }

    /// Adds a batch; `work` is what was done by now. Gives what counts as its wait.
    pub(super) fn push(&mut self, wait: Wait, work: &Work) -> Wait {
        let (mut blame, late) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.late));
        let wait = Wait { blocked: wait.blocked + late, ..wait };
        // What no batch was at is the way of a finished one to the trainer.
        blame.hand_over += wait.blocked.saturating_sub(blame.total());
        if self.first.is_none() {
            self.first = Some(wait);
            self.before = *work;
            return wait;
        }
        self.total.batches += 1;
        self.total.blocked += wait.blocked;
        self.total.wall += wait.wall;
        if self.window.len() == Self::WINDOW
            && let Some(gone) = self.window.pop_front()
        {
            self.before = gone.work;
        }
        self.window.push_back(Seen { wait, blame, work: *work });
        wait
    }

    /// The batches of the window together; nothing where there are none.
    pub(super) fn span(&self) -> Option<Span> {
        let work = self.window.back()?.work - self.before;
        let none = Span { work, ..Span::default() };
        Some(self.window.iter().fold(none, |sum, seen| Span {
            batches: sum.batches + 1,
            blocked: sum.blocked + seen.wait.blocked,
            wall: sum.wall + seen.wait.wall,
            blame: sum.blame + seen.blame,
            ..sum
        }))
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
        let work = |requests| Work { requests, ..Work::default() };
        waits.push(wait(900, 900), &work(1));
        assert_eq!(waits.before.requests, 1);
        for batch in 0..5000 {
            waits.push(wait(1, 4), &work(10 + batch));
        }
        assert_eq!(waits.first, Some(wait(900, 900)));
        assert_eq!(waits.window.len(), Waits::WINDOW);
        assert_eq!(waits.before.requests, 10 + 5000 - Waits::WINDOW as u64 - 1);
        assert_eq!(Waits::ratio(waits.total.blocked, waits.total.wall), Some(0.25));
        let span = waits.span().unwrap();
        assert_eq!((span.batches, span.work.requests), (1024, 1024));
        assert_eq!((span.blocked * 4, span.wall), (span.wall, Duration::from_millis(4096)));
    }

    #[test]
    fn what_no_batch_was_at_and_what_comes_late_is_the_hand_over() {
        let (mut waits, ms) = (Waits::default(), Duration::from_millis);
        let step = |blocked| Wait { blocked: ms(blocked), wall: ms(20) };
        waits.push(step(9), &Work::default());
        waits.late(ms(4));
        waits.blame(Blame { pixels: ms(5), ..Blame::default() });
        assert_eq!(waits.push(step(6), &Work::default()), Wait { blocked: ms(10), wall: ms(20) });
        waits.push(step(1), &Work::default());
        let span = waits.span().unwrap();
        assert_eq!((span.blocked, span.wall), (ms(11), ms(40)));
        assert_eq!(span.blame, Blame { pixels: ms(5), hand_over: ms(6), ..Blame::default() });
    }
}
