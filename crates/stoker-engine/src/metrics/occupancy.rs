//! What batches in the making are at, and whether workers work or what they wait for, added up over time.
//!
//! A gauge tells what is true when somebody looks; a stage table wants to know for how long it was. So
//! each change of the *standing* first adds the time since the change before it to what it was then.
//! There is a change for each step of a batch, for each time that a worker runs out of tasks or is given one
//! again, and for each read that must wait for memory: one lock and one look at the clock, 0.1 microseconds.

use std::ops::Sub;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::is_on;

/// How many of what there are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Batches whose samples are being brought in, and that are not to be filled yet.
    pub bringing: u32,
    /// Those that would be filled if the samples were there.
    pub missing: u32,
    /// Batches whose samples are there, and that are not to be filled yet.
    pub brought: u32,
    /// Batches that wait for memory.
    pub memory: u32,
    /// Batches that are being filled.
    pub filling: u32,
    /// Batches that are finished, and that the trainer does not have.
    pub ready: u32,
    /// Workers that there are.
    pub workers: u32,
    /// Those of them for which there is no task.
    pub idle: u32,
    /// Reads that wait for memory for their bytes.
    pub held_back: u32,
}

/// Time that was spent so, of all that there were of a kind together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// Of batches whose samples are there, and that wait to be filled.
    pub(super) brought: Duration,
    /// Of finished batches that wait for the trainer.
    pub(super) ready: Duration,
    /// Of reads that wait for memory.
    pub(super) held_back: Duration,
    /// Of workers for which there is a task.
    pub(super) working: Duration,
    /// Of workers that wait for samples.
    pub(super) idle_input: Duration,
    /// Of workers that wait for memory to fill.
    pub(super) idle_memory: Duration,
    /// Of workers that wait while others have all that there is to fill.
    pub(super) idle_others: Duration,
    /// Of workers that wait since all that may be made is.
    pub(super) idle_trainer: Duration,
    /// In which no samples waited to be filled.
    pub(super) none_brought: Duration,
    /// In which no batch was ready.
    pub(super) none_ready: Duration,
    /// In which some read waited for memory.
    pub(super) some_held_back: Duration,
    /// In which the samples of all batches that are begun were there.
    pub(super) all_brought: Duration,
    /// Of batches that are being brought in.
    pub(super) bringing: Duration,
}

/// The standing, and the time spent in each up to now.
#[derive(Debug, Default)]
pub struct Occupancy(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    standing: Standing,
    /// Nothing before the first change.
    since: Option<Instant>,
    spent: Spent,
}

impl Occupancy {
    /// Something is otherwise from now on.
    pub fn change(&self, change: impl FnOnce(&mut Standing)) {
        let mut state = self.state();
        if is_on() {
            state.settle(Instant::now());
        }
        change(&mut state.standing);
    }

    /// One more of something until the guard is dropped.
    pub fn hold(&self, which: fn(&mut Standing) -> &mut u32) -> Holding<'_> {
        self.change(|standing| *which(standing) += 1);
        Holding { occupancy: self, which }
    }

    /// The time spent so far.
    pub(super) fn so_far(&self) -> Spent {
        let mut state = self.state();
        state.settle(Instant::now());
        state.spent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of something; see [`Occupancy::hold`].
#[derive(Debug)]
pub struct Holding<'a> {
    occupancy: &'a Occupancy,
    which: fn(&mut Standing) -> &mut u32,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.occupancy.change(|standing| *(self.which)(standing) -= 1);
    }
}

impl State {
    fn settle(&mut self, now: Instant) {
        let Some(since) = self.since.replace(now) else { return };
        // Who looked at the clock first need not have come first.
        self.spent.add(&self.standing, now.saturating_duration_since(since));
        self.since = Some(now.max(since));
    }
}

impl Spent {
    fn add(&mut self, standing: &Standing, time: Duration) {
        let &Standing { bringing, missing, brought, memory, filling, .. } = standing;
        let &Standing { ready, workers, idle, held_back, .. } = standing;
        self.brought += time * brought;
        self.ready += time * ready;
        self.held_back += time * held_back;
        self.bringing += time * (bringing + missing);
        self.working += time * workers.saturating_sub(idle);
        let of_idle = if memory > 0 {
            &mut self.idle_memory
        } else if missing > 0 {
            &mut self.idle_input
        } else if filling > 0 {
            &mut self.idle_others
        } else {
            &mut self.idle_trainer
        };
        *of_idle += time * idle;
        let whiles = [
            (brought == 0, &mut self.none_brought),
            (ready == 0, &mut self.none_ready),
            (held_back > 0, &mut self.some_held_back),
            (bringing + missing == 0, &mut self.all_brought),
        ];
        for (_, sum) in whiles.into_iter().filter(|(holds, _)| *holds) {
            *sum += time;
        }
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let less = |of: fn(&Self) -> Duration| of(&self).saturating_sub(of(&before));
        Self {
            brought: less(|it| it.brought),
            ready: less(|it| it.ready),
            held_back: less(|it| it.held_back),
            working: less(|it| it.working),
            idle_input: less(|it| it.idle_input),
            idle_memory: less(|it| it.idle_memory),
            idle_others: less(|it| it.idle_others),
            idle_trainer: less(|it| it.idle_trainer),
            none_brought: less(|it| it.none_brought),
            none_ready: less(|it| it.none_ready),
            some_held_back: less(|it| it.some_held_back),
            all_brought: less(|it| it.all_brought),
            bringing: less(|it| it.bringing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of it, with two idle workers.
    fn second(standing: Standing) -> Spent {
        let mut spent = Spent::default();
        spent.add(&Standing { workers: 5, idle: 2, ..standing }, Duration::from_secs(1));
        spent
    }

    #[test]
    fn idle_workers_wait_for_what_the_batches_lack() {
        let (none, two) = (Standing::default(), Duration::from_secs(2));
        assert_eq!(second(none).idle_trainer, two);
        assert_eq!(
            second(Standing { bringing: 3, brought: 1, ready: 1, ..none }).idle_trainer,
            two
        );
        assert_eq!(second(Standing { filling: 1, ..none }).idle_others, two);
        assert_eq!(second(Standing { missing: 1, filling: 1, ..none }).idle_input, two);
        let short = second(Standing { memory: 1, missing: 1, filling: 1, ..none });
        assert_eq!((short.idle_memory, short.idle_input), (two, Duration::ZERO));
        assert_eq!(short.working, Duration::from_secs(3));
    }

    #[test]
    fn queues_are_empty_or_full_for_so_long() {
        let (none, one) = (Standing::default(), Duration::from_secs(1));
        let empty = second(Standing { missing: 1, held_back: 3, ..none });
        assert_eq!([empty.none_ready, empty.none_brought, empty.some_held_back], [one; 3]);
        assert_eq!((empty.held_back, empty.all_brought), (3 * one, Duration::ZERO));
        let full = second(Standing { ready: 4, brought: 7, ..none });
        assert_eq!((full.ready, full.brought, full.all_brought), (4 * one, 7 * one, one));
        assert_eq!([full.none_ready, full.none_brought, full.some_held_back], [Duration::ZERO; 3]);
    }

    #[test]
    fn what_is_held_counts_until_it_is_dropped() {
        let occupancy = Occupancy::default();
        let held = occupancy.hold(|standing| &mut standing.held_back);
        std::thread::sleep(Duration::from_millis(2));
        drop(held);
        let then = occupancy.so_far();
        assert!(then.held_back >= Duration::from_millis(2), "{then:?}");
        std::thread::sleep(Duration::from_millis(2));
        let later = occupancy.so_far() - then;
        assert_eq!(later.held_back, Duration::ZERO);
        assert!(later.none_ready >= Duration::from_millis(2), "{later:?}");
    }
}
