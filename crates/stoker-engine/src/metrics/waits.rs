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
    /// Of workers, on a core while the trainer was blocked.
    pub(super) blocked_on_core: Duration,
    /// Of workers that might have run meanwhile, while others had the cores.
    pub(super) blocked_delayed: Duration,
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
        let (mut sum, mut before) = (Span { work, ..Span::default() }, &self.before);
        for Seen { wait, blame, work } in &self.window {
            // What workers had in a step goes by the time: most steps are waited for all along or not at all.
            let share = Self::ratio(wait.blocked, wait.wall).unwrap_or_default().min(1.0);
            let blocked = |now: Duration, then| now.saturating_sub(then).mul_f64(share);
            sum.batches += 1;
            sum.blocked += wait.blocked;
            sum.wall += wait.wall;
            sum.blame += *blame;
            sum.blocked_on_core += blocked(work.on_core, before.on_core);
            sum.blocked_delayed += blocked(work.delayed, before.delayed);
            before = work;
        }
        Some(sum)
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
        let ms = Duration::from_millis;
        let work = |requests| Work {
            requests,
            on_core: ms(2 * requests),
            delayed: ms(requests),
            ..Work::default()
        };
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
        assert_eq!((span.blocked * 4, span.wall), (span.wall, ms(4096)));
        assert_eq!((span.blocked_on_core, span.blocked_delayed), (ms(512), ms(256)));
    }

    #[test]
    fn workers_that_lack_a_core_while_nobody_waits_are_not_waited_for() {
        let (mut waits, ms) = (Waits::default(), Duration::from_millis);
        let done = |on_core, delayed| Work {
            on_core: ms(on_core),
            delayed: ms(delayed),
            ..Work::default()
        };
        waits.push(Wait { blocked: ms(50), wall: ms(50) }, &done(40, 10));
        waits.push(Wait { blocked: ms(0), wall: ms(20) }, &done(50, 30));
        waits.push(Wait { blocked: ms(30), wall: ms(30) }, &done(76, 34));
        waits.push(Wait { blocked: ms(0), wall: ms(0) }, &done(76, 34));
        let span = waits.span().unwrap();
        assert_eq!((span.work.on_core, span.work.delayed), (ms(36), ms(24)));
        assert_eq!((span.blocked_on_core, span.blocked_delayed), (ms(26), ms(4)));
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
