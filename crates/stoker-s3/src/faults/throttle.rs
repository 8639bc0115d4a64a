//! The rate that a store takes: a token bucket for each prefix, as S3's partitions are described.
//!
//! A bucket holds one second's worth of requests. When it has been asked for most of what it gives
//! in each second of some time, the store has split the partition, and it gives twice as much.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use super::seconds;

/// What counts as a second of load: this share of the rate was asked for.
const LOADED: f64 = 0.8;

/// Requests that a store takes; it answers others with 503, `SlowDown`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Throttle {
    /// Requests a second, for each prefix. S3 is known to take 5,500 reads.
    pub rate: f64,
    /// How many segments of the key make the prefix; 0: all of a bucket is one.
    #[serde(default)]
    pub depth: usize,
    /// After how much time under load the rate doubles. Never, if it is not said.
    #[serde(default, rename = "doubles-after-seconds", deserialize_with = "seconds")]
    pub doubles_after: Option<Duration>,
}

/// The buckets of all prefixes that were asked for.
#[derive(Debug)]
pub(super) struct Buckets {
    throttle: Option<Throttle>,
    buckets: HashMap<String, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    filled: Duration,
    /// The second that requests are counted in, and how many there were.
    second: u64,
    requests: u64,
    /// Seconds under load on end.
    loaded: u64,
}

impl Buckets {
    pub(super) fn new(throttle: Option<Throttle>) -> Self {
        Self { throttle, buckets: HashMap::new() }
    }

    /// Whether a request for `bucket/key` is taken at that time.
    pub(super) fn admit(&mut self, path: &str, now: Duration) -> bool {
        let Some(throttle) = &self.throttle else { return true };
        let prefix = prefix(path, throttle.depth);
        if !self.buckets.contains_key(prefix) {
            let bucket = Bucket {
                rate: throttle.rate,
                tokens: throttle.rate.max(1.0),
                filled: now,
                second: now.as_secs(),
                requests: 0,
                loaded: 0,
            };
            self.buckets.insert(prefix.to_owned(), bucket);
        }
        let bucket = self.buckets.get_mut(prefix).expect("it was just made");
        bucket.observe(now.as_secs(), throttle.doubles_after);
        bucket.take(now)
    }
}

/// The bucket and so many segments of the key; the last segment is the object's own.
fn prefix(path: &str, depth: usize) -> &str {
    let ends = path.match_indices('/').map(|(end, _)| end);
    let within = ends.take(depth + 1).last();
    within.map_or(path, |end| &path[..end])
}

impl Bucket {
    /// Counts a request, and closes the seconds that are over.
    fn observe(&mut self, second: u64, doubles_after: Option<Duration>) {
        if second > self.second {
            let loaded = self.requests as f64 >= LOADED * self.rate;
            // In the seconds between there was nothing.
            self.loaded = if loaded && second == self.second + 1 { self.loaded + 1 } else { 0 };
            (self.second, self.requests) = (second, 0);
            if doubles_after.is_some_and(|after| self.loaded >= after.as_secs().max(1)) {
                self.rate *= 2.0;
                self.loaded = 0;
            }
        }
        self.requests += 1;
    }

    fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.rate.max(1.0));
        self.filled = now;
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `asked` requests a second, evenly spread, are taken in each of these seconds.
    fn taken(buckets: &mut Buckets, asked: u64, seconds: std::ops::Range<u64>) -> Vec<usize> {
        let in_second = |second: u64| {
            let at = |number| Duration::from_secs(second) + Duration::from_secs(1) * number / 1000;
            let numbers = (0..asked).map(|number| (number * 1000 / asked) as u32);
            numbers.filter(|number| buckets.admit("b/k", at(*number))).count()
        };
        seconds.map(in_second).collect()
    }

    #[test]
    fn a_store_takes_its_rate_and_a_burst_of_one_second() {
        let throttle = Throttle { rate: 100.0, depth: 0, doubles_after: None };
        let taken = taken(&mut Buckets::new(Some(throttle)), 500, 0..4);
        assert!((198..=201).contains(&taken[0]), "{taken:?}");
        assert!(taken[1..].iter().all(|taken| (99..=101).contains(taken)), "{taken:?}");
    }

    #[test]
    fn the_rate_doubles_after_load_on_end_and_not_before() {
        let throttle =
            || Throttle { rate: 100.0, depth: 0, doubles_after: Some(Duration::from_secs(3)) };
        let mut loaded = Buckets::new(Some(throttle()));
        let first = taken(&mut loaded, 500, 0..3);
        assert!((98..=102).contains(&first[2]), "{first:?}");
        let later = taken(&mut loaded, 500, 3..6);
        assert!((198..=202).contains(&later[2]), "{later:?}");
        let last = taken(&mut loaded, 500, 6..9);
        assert!((396..=404).contains(&last[2]), "{last:?}");

        let mut broken = Buckets::new(Some(throttle()));
        for start in [0, 3, 6] {
            taken(&mut broken, 500, start..start + 2);
            taken(&mut broken, 10, start + 2..start + 3);
        }
        let still = taken(&mut broken, 500, 9..11);
        assert!((98..=102).contains(&still[1]), "{still:?}");
    }

    #[test]
    fn prefixes_have_rates_of_their_own() {
        for (path, depth, expected) in [
            ("b/x/y/k", 0, "b"),
            ("b/x/y/k", 1, "b/x"),
            ("b/x/y/k", 2, "b/x/y"),
            ("b/x/y/k", 9, "b/x/y"),
            ("b/k", 1, "b"),
            ("b", 1, "b"),
        ] {
            assert_eq!(prefix(path, depth), expected, "{path} {depth}");
        }
        let throttle = Throttle { rate: 1.0, depth: 1, doubles_after: None };
        let mut buckets = Buckets::new(Some(throttle));
        let admitted = ["b/x/1", "b/x/2", "b/y/1"].map(|path| buckets.admit(path, Duration::ZERO));
        assert_eq!(admitted, [true, false, true]);
        assert!(Buckets::new(None).admit("b/k", Duration::ZERO));
    }
}
