//! Whom the trainer waits for: what the batch that it is blocked for is at meanwhile.

use std::ops::{Add, AddAssign};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::occupancy::Standing;
use super::{Metrics, is_on};

/// What a batch in the making is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its samples are brought in and measured.
    Bytes,
    /// They are there, and it waits until it is wanted.
    Brought,
    /// It waits for the memory that it is to fill.
    Memory,
    /// It is filled.
    Pixels,
    /// It is finished, and waits for the trainer.
    Ready,
}

/// How long somebody was blocked, by what the batch was at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// Bringing in and measuring samples.
    pub bytes: Duration,
    /// Waiting for memory.
    pub memory: Duration,
    /// Filling.
    pub pixels: Duration,
    /// Nothing: it was finished, and on its way to the trainer.
    pub hand_over: Duration,
}

impl Blame {
    fn of(&mut self, phase: Phase) -> &mut Duration {
        match phase {
            Phase::Bytes | Phase::Brought => &mut self.bytes,
            Phase::Memory => &mut self.memory,
            Phase::Pixels => &mut self.pixels,
            Phase::Ready => &mut self.hand_over,
        }
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        self.bytes + self.memory + self.pixels + self.hand_over
    }
}

impl Add for Blame {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            memory: self.memory + other.memory,
            pixels: self.pixels + other.pixels,
            hand_over: self.hand_over + other.hand_over,
        }
    }
}

impl AddAssign for Blame {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What a batch is at, and for how long somebody has been blocked for it. It is among what the loader
/// has in the making ([`super::Occupancy`]) until it is dropped.
#[derive(Debug)]
pub struct Progress {
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    wanted: bool,
    /// Since when what is not in the blame yet counts; nothing while nobody asks.
    since: Option<Instant>,
    blame: Blame,
}

impl Progress {
    /// A batch that is begun.
    pub fn begin(metrics: Arc<Metrics>) -> Self {
        let (phase, since, blame) = (Phase::Bytes, None, Blame::default());
        let state = State { phase, wanted: false, since, blame };
        metrics.occupancy.change(|standing| *state.place(standing) += 1);
        Self { metrics, state: Mutex::new(state) }
    }

    /// It is to be filled as soon as its samples are there.
    pub fn want(&self) {
        self.change(|state| state.wanted = true);
    }

    /// The batch goes on to something else.
    pub fn enter(&self, phase: Phase) {
        self.change(|state| {
            state.settle();
            state.phase = phase;
        });
    }

    /// Somebody is blocked for it from now on, until it is finished.
    pub fn asked(&self) {
        if is_on() {
            self.state().since.get_or_insert_with(Instant::now);
        }
    }

    /// It is finished: how long somebody was blocked for what.
    pub fn finish(&self) -> Blame {
        self.enter(Phase::Ready);
        self.state().blame
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let before = *state;
        change(&mut state);
        if (before.phase, before.wanted) != (state.phase, state.wanted) {
            self.metrics.occupancy.change(|standing| {
                *before.place(standing) -= 1;
                *state.place(standing) += 1;
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let state = *self.state();
        self.metrics.occupancy.change(|standing| *state.place(standing) -= 1);
    }
}

impl State {
    fn settle(&mut self) {
        if let Some(since) = &mut self.since {
            let now = Instant::now();
            let blocked = now - std::mem::replace(since, now);
            *self.blame.of(self.phase) += blocked;
        }
    }

    /// Where it counts.
    fn place<'a>(&self, standing: &'a mut Standing) -> &'a mut u32 {
        match self.phase {
            Phase::Bytes if self.wanted => &mut standing.missing,
            Phase::Bytes => &mut standing.bringing,
            Phase::Brought => &mut standing.brought,
            Phase::Memory => &mut standing.memory,
            Phase::Pixels => &mut standing.filling,
            Phase::Ready => &mut standing.ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn only_time_in_which_somebody_is_blocked_counts() {
        let progress = Progress::begin(Arc::default());
        sleep(Duration::from_millis(2));
        progress.enter(Phase::Memory);
        assert_eq!(progress.finish(), Blame::default());
    }

    #[test]
    fn time_counts_for_what_the_batch_was_at() {
        let (progress, began) = (Progress::begin(Arc::default()), Instant::now());
        progress.asked();
        sleep(Duration::from_millis(2));
        progress.enter(Phase::Memory);
        progress.asked();
        progress.enter(Phase::Pixels);
        sleep(Duration::from_millis(3));
        let (blame, all) = (progress.finish(), began.elapsed());
        assert!(blame.bytes >= Duration::from_millis(2), "{blame:?}");
        assert!(blame.pixels >= Duration::from_millis(3), "{blame:?}");
        assert!(blame.total() <= all, "{blame:?}, {all:?}");
        assert!(blame.memory < blame.bytes, "{blame:?}");
    }

    #[test]
    fn a_batch_counts_in_one_place_until_it_is_dropped() {
        let metrics = Arc::<Metrics>::default();
        let standing = || {
            let mut seen = Standing::default();
            metrics.occupancy.change(|standing| seen = *standing);
            seen
        };
        let none = Standing::default();
        let progress = Progress::begin(Arc::clone(&metrics));
        assert_eq!(standing(), Standing { bringing: 1, ..none });
        progress.want();
        assert_eq!(standing(), Standing { missing: 1, ..none });
        for (phase, expected) in [
            (Phase::Brought, Standing { brought: 1, ..none }),
            (Phase::Memory, Standing { memory: 1, ..none }),
            (Phase::Pixels, Standing { filling: 1, ..none }),
            (Phase::Ready, Standing { ready: 1, ..none }),
        ] {
            progress.enter(phase);
            assert_eq!(standing(), expected);
        }
        drop(progress);
        assert_eq!(standing(), none);
    }
}
