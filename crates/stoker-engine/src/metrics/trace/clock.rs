//! The clock of traces. What happens is timed by the monotonic clock; other profilers' traces, which ours
//! are laid beside, tell the time of day. Both clocks are read at the beginning and at the end, and
//! between these the one follows from the other along a straight line, as torch's profiler does it too.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often both clocks are read, to take the pair that was read in the shortest time.
const READINGS: usize = 16;

/// Seconds in three months of a mean Gregorian year. torch's profiler counts time from the last whole
/// multiple of it, as microseconds since 1970 with their fractions are too long for a double.
const QUARTER: u64 = 31_556_952 / 4;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    /// Nanoseconds since 1970.
    pub(super) wall: i64,
}

impl Moment {
    pub(super) fn now() -> Self {
        let readings = (0..READINGS).map(|_| {
            let before = Instant::now();
            let wall = wall();
            let took = before.elapsed();
            (took, Self { instant: before + took / 2, wall })
        });
        let best = readings.min_by_key(|(took, _)| *took);
        best.map(|(_, moment)| moment).expect("there are readings")
    }
}

#[expect(clippy::disallowed_methods, reason = "a trace is laid beside others by the time of day")]
fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or_default()
}

/// Says when something was, in nanoseconds after [`Self::base`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begin: Moment,
    /// Nanoseconds by the wall for one by the monotonic clock.
    rate: f64,
    /// Nanoseconds since 1970.
    pub(super) base: i64,
}

/// How far the clocks may drift apart, and the time of day still be said to have been set by nobody:
/// twice what NTP does.
const DRIFT: f64 = 1e-3;

impl Clock {
    pub(super) fn between(begin: Moment, end: Moment) -> Self {
        let elapsed = end.instant.saturating_duration_since(begin.instant).as_nanos() as f64;
        let rate = (end.wall - begin.wall) as f64 / elapsed.max(1.0);
        let is_steady = elapsed > 0.0 && (rate - 1.0).abs() < DRIFT;
        let quarter = QUARTER * 1_000_000_000;
        let base = begin.wall.cast_unsigned() / quarter * quarter;
        Self { begin, rate: if is_steady { rate } else { 1.0 }, base: base.cast_signed() }
    }

    pub(super) fn at(&self, instant: Instant) -> i64 {
        let scaled = |time: Duration| (time.as_nanos() as f64 * self.rate) as i64;
        let from_begin = match instant.checked_duration_since(self.begin.instant) {
            Some(after) => scaled(after),
            None => -scaled(self.begin.instant - instant),
        };
        self.begin.wall - self.base + from_begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_the_line_between_both_readings_unless_the_clock_was_set() {
        let instant = Instant::now();
        let begin = Moment { instant, wall: 1_790_857_026_000_000_000 + 5_000 };
        let second = Duration::from_secs(1);
        let after = |wall| Moment { instant: instant + 10 * second, wall: begin.wall + wall };
        let slewed = Clock::between(begin, after(10_001_000_000));
        assert_eq!(slewed.base, 1_790_857_026_000_000_000);
        assert_eq!(slewed.at(instant), 5_000);
        assert_eq!(slewed.at(instant + 5 * second), 5_000 + 5_000_500_000);
        assert_eq!(slewed.at(instant.checked_sub(second).unwrap()), 5_000 - 1_000_100_000);
        let set = Clock::between(begin, after(3_600_000_000_000));
        assert_eq!(set.at(instant + second), 5_000 + 1_000_000_000);
        assert_eq!(Clock::between(begin, begin).at(instant), 5_000);
    }
}
