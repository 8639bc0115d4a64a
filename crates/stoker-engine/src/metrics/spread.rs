//! How numbers are spread, in bounded memory: counts in buckets, eight to each doubling.
//!
//! A quantile is off by less than 9 %, the width of a bucket. One kind forgets ([`Recent`]) and is for decisions; the other
//! ([`Spread`]) is shared by threads and keeps all, for reports.

use std::sync::atomic::{AtomicU64, Ordering};

use super::is_on;

/// Buckets of each doubling.
const FINENESS: f64 = 8.0;
/// From 1 to 2^40: microseconds up to twelve days, bytes per second up to a tebibyte.
const BUCKETS: usize = 40 * FINENESS as usize;

fn bucket(value: f64) -> usize {
    ((value.max(1.0).log2() * FINENESS) as usize).min(BUCKETS - 1)
}

/// The value at a share of the way through a bucket.
fn value(bucket: usize, share: f64) -> f64 {
    ((bucket as f64 + share) / FINENESS).exp2()
}

/// The value that this share of all does not exceed.
fn quantile(counts: impl Iterator<Item = f64>, total: f64, share: f64) -> Option<f64> {
    let mut left = total * share;
    let mut last = None;
    for (bucket, count) in counts.enumerate().filter(|(_, count)| *count > 0.0) {
        if left <= count {
            return Some(value(bucket, left / count));
        }
        left -= count;
        last = Some(value(bucket, 1.0));
    }
    last
}

/// The latest numbers: the older, the less they count.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    counts: Box<[f32]>,
    total: f32,
    /// How many count in full, about; then all are halved.
    memory: f32,
}

impl Recent {
    /// Remembers about that many.
    pub(crate) fn new(memory: u32) -> Self {
        Self { counts: vec![0.0; BUCKETS].into(), total: 0.0, memory: memory as f32 }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.counts[bucket(value)] += 1.0;
        self.total += 1.0;
        if self.total > self.memory {
            self.counts.iter_mut().for_each(|count| *count /= 2.0);
            self.total /= 2.0;
        }
    }

    /// The value that this share does not exceed; `None` where fewer than `least` are known.
    pub(crate) fn quantile(&self, share: f64, least: u32) -> Option<f64> {
        if self.total < least as f32 {
            return None;
        }
        let counts = self.counts.iter().map(|count| f64::from(*count));
        quantile(counts, f64::from(self.total), share)
    }
}

/// All numbers.
#[derive(Debug)]
pub struct Spread(Box<[AtomicU64]>);

impl Default for Spread {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Spread {
    /// Counts one.
    pub fn add(&self, value: f64) {
        if is_on() {
            self.0[bucket(value)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The value that this share of all does not exceed.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let counts = || self.0.iter().map(|count| count.load(Ordering::Relaxed) as f64);
        quantile(counts(), counts().sum(), share)
    }
}

impl Spread {
    /// The counts of the buckets between the first and the last that are not empty, and where the first
    /// of them begins. There are [`Self::FINENESS`] to each doubling.
    pub fn counts(&self) -> (f64, Vec<u64>) {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let first = counts.iter().position(|count| *count > 0).unwrap_or(0);
        let end = counts.iter().rposition(|count| *count > 0).map_or(first, |last| last + 1);
        (value(first, 0.0), counts[first..end].to_vec())
    }

    /// Buckets to each doubling.
    pub const FINENESS: u64 = FINENESS as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket_of_those_of_the_sorted_list() {
        let (all, mut recent) = (Spread::default(), Recent::new(1_000_000));
        let mut sorted: Vec<f64> = (0..20_000_u64)
            .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64)
            .map(|bits| 100.0 * (bits / f64::from(1 << 22)).exp())
            .collect();
        for value in &sorted {
            all.add(*value);
            recent.add(*value);
        }
        let (begin, counts) = all.counts();
        assert_eq!(counts.iter().sum::<u64>(), 20_000);
        let least = sorted.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(begin <= least && least < begin * 1.1, "{begin} {least}");
        sorted.sort_by(f64::total_cmp);
        for share in [0.01, 0.5, 0.9, 0.95, 0.99, 0.999] {
            let exact = sorted[(share * 20_000.0) as usize];
            for found in [all.quantile(share).unwrap(), recent.quantile(share, 20).unwrap()] {
                assert!((found / exact - 1.0).abs() < 0.09, "{share}: {found} for {exact}");
            }
        }
    }

    #[test]
    fn the_recent_ones_forget_and_tell_nothing_of_too_few() {
        let mut recent = Recent::new(100);
        assert_eq!(recent.quantile(0.5, 1), None);
        (0..19).for_each(|_| recent.add(10.0));
        assert_eq!(recent.quantile(0.5, 20), None);
        (0..1000).for_each(|_| recent.add(10.0));
        (0..300).for_each(|_| recent.add(1000.0));
        let median = recent.quantile(0.2, 20).unwrap();
        assert!(median > 900.0, "{median}");
        assert_eq!(Spread::default().quantile(0.5), None);
        assert_eq!(Spread::default().counts().1, Vec::<u64>::new());
    }
}
