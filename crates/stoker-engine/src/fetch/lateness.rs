//! How long the latest of the late reads took: what is brought in ahead should last as long, so that the
//! trainer does not notice them.
//!
//! Counted is from the first request of a read to its last byte, with the pauses between its attempts;
//! not the time in which it waited for its turn, as that grows with what is brought in ahead.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What takes no longer is not late.
const USUAL: Duration = Duration::from_millis(100);
/// What takes longer is not worth the memory that it takes to hide it.
const MOST: Duration = Duration::from_secs(10);
/// For how long, and up to twice that, a late read is remembered.
const PERIOD: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Lateness(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Since when `latest` is seen; nothing before the first.
    since: Option<Instant>,
    latest: Duration,
    /// In the period before.
    before: Duration,
}

impl Lateness {
    /// A read has taken so long, or will at least.
    pub(super) fn note(&self, took: Duration) {
        if took > USUAL {
            let mut seen = self.turned(Instant::now());
            seen.latest = seen.latest.max(took.min(MOST));
        }
    }

    /// How long late reads take; nothing where none were late.
    pub(super) fn of_late(&self) -> Duration {
        let seen = self.turned(Instant::now());
        seen.latest.max(seen.before)
    }

    fn turned(&self, now: Instant) -> MutexGuard<'_, Seen> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now - *seen.since.get_or_insert(now);
        if passed >= PERIOD {
            seen.before = if passed < 2 * PERIOD { seen.latest } else { Duration::ZERO };
            (seen.since, seen.latest) = (Some(now), Duration::ZERO);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_latest_read_is_remembered_for_a_period_or_two() {
        let second = Duration::from_secs(1);
        let lateness = Lateness::default();
        lateness.note(USUAL);
        assert_eq!(lateness.of_late(), Duration::ZERO);
        lateness.note(3 * second);
        lateness.note(2 * second);
        assert_eq!(lateness.of_late(), 3 * second);
        tokio::time::advance(PERIOD).await;
        lateness.note(second);
        assert_eq!(lateness.of_late(), 3 * second);
        tokio::time::advance(PERIOD).await;
        assert_eq!(lateness.of_late(), second);
        tokio::time::advance(PERIOD).await;
        assert_eq!(lateness.of_late(), Duration::ZERO);
        lateness.note(100 * second);
        assert_eq!(lateness.of_late(), MOST);
        tokio::time::advance(3 * PERIOD).await;
        assert_eq!(lateness.of_late(), Duration::ZERO);
    }
}
