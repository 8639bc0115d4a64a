//! How often something took how long, in fixed steps of time. Quantiles say more of one process; these
//! can be added up over many, and over any stretch of time, which is what monitoring systems do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Counter, is_on, nanos};

/// Upper ends of the steps: from what nobody notices to what only a fault explains.
const BOUNDS: [Duration; 16] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
];

/// Durations, counted by step.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: Counter,
}

/// Durations by step, since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramReport {
    /// Upper ends of the steps in seconds, each within its step.
    pub bounds_seconds: Vec<f64>,
    /// How many there were in each step; one more than bounds, for what is above all.
    pub counts: Vec<u64>,
    /// All durations, added up.
    pub sum_seconds: f64,
}

impl Histogram {
    /// Counts one.
    pub fn add(&self, duration: Duration) {
        if !is_on() {
            return;
        }
        let step = BOUNDS.partition_point(|bound| *bound < duration);
        self.counts[step].fetch_add(1, Ordering::Relaxed);
        self.nanos.add(nanos(duration));
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// All of them added up.
    pub(super) fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.get())
    }

    /// What was counted.
    pub(super) fn report(&self) -> HistogramReport {
        HistogramReport {
            bounds_seconds: BOUNDS.iter().map(Duration::as_secs_f64).collect(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum_seconds: self.total().as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_step_and_what_is_above_all_to_the_last() {
        let histogram = Histogram::default();
        for micros in [0, 500, 501, 1000, 60_000_000, 60_000_001] {
            histogram.add(Duration::from_micros(micros));
        }
        assert_eq!(histogram.count(), 6);
        let report = histogram.report();
        assert!(report.bounds_seconds.is_sorted());
        assert_eq!(report.counts.len(), report.bounds_seconds.len() + 1);
        assert_eq!((report.counts[0], report.counts[1]), (2, 2));
        assert_eq!((report.counts[15], report.counts[16]), (1, 1));
        assert_eq!(report.counts.iter().sum::<u64>(), 6);
        assert!((report.sum_seconds - 120.002_002).abs() < 1e-9, "{}", report.sum_seconds);
    }
}
