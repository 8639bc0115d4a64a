//! How a run went from its beginning on, in bounded memory: steps in a row are added up in buckets, and
//! when all buckets are full, neighbours become one. So a run of any length has between half of
//! [`BUCKETS`] and all of them, each of as many steps, in some 50 KiB.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::work::Work;
use super::{Metrics, Room, Spread, Wait};

/// More points than that no plot on a screen shows apart.
const BUCKETS: usize = 256;

/// What was done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Time of workers.
    cpu: Duration,
    /// Of it, decoding; added when an image is done, as what follows.
    image: Duration,
    /// Of it, resizing and patches.
    vision: Duration,
    /// How long requests took, added up.
    in_flight: Duration,
    requests: u64,
    /// From the store.
    bytes: u64,
    samples: u64,
    images: u64,
    tokens: u64,
    padding: u64,
}

impl Done {
    /// All that was done so far.
    pub(super) fn so_far(metrics: &Metrics, work: &Work) -> Self {
        Self {
            cpu: work.spent.working,
            image: work.room(Room::Image).busy,
            vision: work.room(Room::Vision).busy,
            in_flight: work.in_flight(),
            requests: work.requests,
            bytes: work.bytes(),
            samples: metrics.samples.get(),
            images: metrics.images.get(),
            tokens: metrics.tokens.get(),
            padding: metrics.padding.get(),
        }
    }
}

/// Some steps in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    steps: u64,
    wall: Duration,
    blocked: Duration,
    /// The longest wait.
    longest: Duration,
    /// By its end.
    done: Done,
}

impl Bucket {
    fn with(self, later: Self) -> Self {
        Self {
            steps: self.steps + later.steps,
            wall: self.wall + later.wall,
            blocked: self.blocked + later.blocked,
            longest: self.longest.max(later.longest),
            done: later.done,
        }
    }
}

/// All steps but the first.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// Steps to a bucket; the last one may have fewer.
    each: u64,
    /// What was done when the first batch was handed over.
    begin: Option<Done>,
    buckets: Vec<Bucket>,
}

impl Default for History {
    fn default() -> Self {
        Self { each: 1, begin: None, buckets: Vec::new() }
    }
}

impl History {
    /// Adds a step; `done` is what was done by now. The first one waits for the start of everything, and
    /// only says where the others begin.
    pub(super) fn push(&mut self, wait: Wait, done: Done) {
        if self.begin.is_none() {
            self.begin = Some(done);
            return;
        }
        let Wait { blocked, wall } = wait;
        let step = Bucket { steps: 1, wall, blocked, longest: blocked, done };
        match self.buckets.last_mut() {
            Some(last) if last.steps < self.each => *last = last.with(step),
            _ => {
                if self.buckets.len() == BUCKETS {
                    self.halve();
                }
                self.buckets.push(step);
            }
        }
    }

    fn halve(&mut self) {
        let pairs = self.buckets.chunks(2);
        self.buckets = pairs.filter_map(|pair| pair.iter().copied().reduce(Bucket::with)).collect();
        self.each *= 2;
    }
}

/// How a run went from its beginning on, for plots.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plots {
    /// Steps to a point; the last one may have fewer. The first step of all is in none.
    pub steps_each: u64,
    /// The points, each list from the beginning of the run on.
    pub points: Points,
    /// Where the first bucket of times to first byte begins, in seconds.
    pub first_byte_from_seconds: f64,
    /// Buckets to each doubling of the time.
    pub first_byte_per_doubling: u64,
    /// How many requests' first bytes came in each.
    pub first_byte_counts: Vec<u64>,
}

/// What was done in the steps of each point: sums, but for the longest wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Points {
    /// How many steps.
    pub steps: Vec<u64>,
    /// Seconds that they took, waits included.
    pub wall_seconds: Vec<f64>,
    /// Seconds that the trainer was blocked.
    pub blocked_seconds: Vec<f64>,
    /// Seconds of the longest wait among them.
    pub longest_seconds: Vec<f64>,
    /// Samples delivered.
    pub samples: Vec<u64>,
    /// Images delivered.
    pub images: Vec<u64>,
    /// Tokens delivered, padding not counted.
    pub tokens: Vec<u64>,
    /// Tokens of padding and of neutral images delivered.
    pub padding: Vec<u64>,
    /// Seconds that workers worked, added up.
    pub worker_seconds: Vec<f64>,
    /// Of these, decoding.
    pub decode_seconds: Vec<f64>,
    /// Of these, resizing and patches.
    pub resize_seconds: Vec<f64>,
    /// Seconds that requests took, added up.
    pub request_seconds: Vec<f64>,
    /// Requests sent.
    pub requests: Vec<u64>,
    /// Bytes that came.
    pub bytes: Vec<u64>,
}

impl Plots {
    pub(super) fn of(metrics: &Metrics) -> Self {
        let (begin, counts) = metrics.fetch.first_byte.counts();
        let history = metrics.history();
        Self {
            steps_each: history.each,
            points: Points::of(&history),
            first_byte_from_seconds: begin / 1e6,
            first_byte_per_doubling: Spread::FINENESS,
            first_byte_counts: counts,
        }
    }
}

impl Points {
    fn of(history: &History) -> Self {
        let mut points = Self::default();
        let mut before = history.begin.unwrap_or_default();
        for Bucket { steps, wall, blocked, longest, done } in &history.buckets {
            let since = |of: fn(&Done) -> Duration| seconds(of(done).saturating_sub(of(&before)));
            points.steps.push(*steps);
            points.wall_seconds.push(seconds(*wall));
            points.blocked_seconds.push(seconds(*blocked));
            points.longest_seconds.push(seconds(*longest));
            points.samples.push(done.samples - before.samples);
            points.images.push(done.images - before.images);
            points.tokens.push(done.tokens - before.tokens);
            points.padding.push(done.padding - before.padding);
            points.worker_seconds.push(since(|it| it.cpu));
            points.decode_seconds.push(since(|it| it.image));
            points.resize_seconds.push(since(|it| it.vision));
            points.request_seconds.push(since(|it| it.in_flight));
            points.requests.push(done.requests - before.requests);
            points.bytes.push(done.bytes - before.bytes);
            before = *done;
        }
        points
    }
}

/// To the microsecond: what is behind it is noise, and long to write.
fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Steps as (blocked, wall, samples) in milliseconds and samples; the first is the one apart.
    fn history(steps: &[(u64, u64, u64)]) -> History {
        let (mut history, mut samples) = (History::default(), 0);
        for (blocked, wall, delivered) in steps {
            samples += delivered;
            let cpu = Duration::from_millis(3 * samples);
            let (blocked, wall) = (Duration::from_millis(*blocked), Duration::from_millis(*wall));
            history.push(Wait { blocked, wall }, Done { cpu, samples, ..Done::default() });
        }
        history
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn points_are_the_sums_of_equally_many_steps_in_a_row(
            steps in prop::collection::vec((0_u64..50, 50_u64..100, 0_u64..9), 0..3000)
        ) {
            let points = Points::of(&history(&steps));
            let after = steps.get(1..).unwrap_or_default();
            // The oracle: the least power of two with which they fit.
            let each = (0..32).map(|n| 1_usize << n).find(|each| after.len() <= each * BUCKETS).unwrap();
            let sums = |of: fn(&(u64, u64, u64)) -> u64| -> Vec<u64> {
                after.chunks(each).map(|steps| steps.iter().map(of).sum()).collect()
            };
            let millis = |seconds: &[f64]| -> Vec<u64> {
                seconds.iter().map(|seconds| (seconds * 1e3).round() as u64).collect()
            };
            prop_assert_eq!(&points.steps, &sums(|_| 1));
            prop_assert_eq!(millis(&points.blocked_seconds), sums(|step| step.0));
            prop_assert_eq!(millis(&points.wall_seconds), sums(|step| step.1));
            prop_assert_eq!(&points.samples, &sums(|step| step.2));
            prop_assert_eq!(millis(&points.worker_seconds), sums(|step| 3 * step.2));
            let longest: Vec<u64> =
                after.chunks(each).filter_map(|steps| steps.iter().map(|step| step.0).max()).collect();
            prop_assert_eq!(millis(&points.longest_seconds), longest);
        }
    }

    #[test]
    fn a_run_of_weeks_stays_small() {
        let mut all = history(&[(1, 1, 1)]);
        for _ in 0..1_000_000 {
            all.push(
                Wait { blocked: Duration::ZERO, wall: Duration::from_secs(1) },
                Done::default(),
            );
        }
        assert!(all.buckets.len() <= BUCKETS && all.buckets.len() > BUCKETS / 2 - 1);
        assert!(all.buckets.capacity() * size_of::<Bucket>() < 100 << 10);
        assert_eq!(all.buckets.iter().map(|bucket| bucket.steps).sum::<u64>(), 1_000_000);
    }
}
