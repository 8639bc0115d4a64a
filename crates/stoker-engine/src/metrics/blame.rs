//! Whom the trainer waits for: what the batch that it is blocked for is at meanwhile.

use std::ops::{Add, AddAssign};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a batch in the making is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its samples are brought in and measured.
    Bytes,
    /// It waits for the memory that it is to fill.
    Memory,
    /// It is filled.
    Pixels,
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
}

impl Blame {
    fn of(&mut self, phase: Phase) -> &mut Duration {
        match phase {
            Phase::Bytes => &mut self.bytes,
            Phase::Memory => &mut self.memory,
            Phase::Pixels => &mut self.pixels,
        }
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        self.bytes + self.memory + self.pixels
    }
}

impl Add for Blame {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            memory: self.memory + other.memory,
            pixels: self.pixels + other.pixels,
        }
    }
}

impl AddAssign for Blame {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What a batch is at, and for how long somebody has been blocked for it.
#[derive(Debug)]
pub struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Since when what is not in the blame yet counts; nothing while nobody asks.
    since: Option<Instant>,
    blame: Blame,
}

impl Default for Progress {
    fn default() -> Self {
        Self(Mutex::new(State { phase: Phase::Bytes, since: None, blame: Blame::default() }))
    }
}

impl Progress {
    /// The batch goes on to something else.
    pub fn enter(&self, phase: Phase) {
        let mut state = self.state();
        state.settle(Instant::now());
        state.phase = phase;
    }

    /// Somebody is blocked for it from now on, until it is finished.
    pub fn asked(&self) {
        self.state().since.get_or_insert_with(Instant::now);
    }

    /// It is finished: how long somebody was blocked for what.
    pub fn finish(&self) -> Blame {
        let mut state = self.state();
        state.settle(Instant::now());
        state.blame
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn settle(&mut self, now: Instant) {
        if let Some(since) = &mut self.since {
            let blocked = now - std::mem::replace(since, now);
            *self.blame.of(self.phase) += blocked;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn only_time_in_which_somebody_is_blocked_counts() {
        let progress = Progress::default();
        sleep(Duration::from_millis(2));
        progress.enter(Phase::Memory);
        assert_eq!(progress.finish(), Blame::default());
    }

    #[test]
    fn time_counts_for_what_the_batch_was_at() {
        let (progress, began) = (Progress::default(), Instant::now());
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
}
