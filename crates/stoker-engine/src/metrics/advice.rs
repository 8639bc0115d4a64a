//! Why the trainer waits, in words: the bottleneck, and what would end the wait.
//!
//! The rule looks at the latest batches. A trainer that hardly waits is itself the limit. Otherwise,
//! where all workers are busy, cores are; where they are not, it is what the batches that the trainer was
//! blocked for were at meanwhile ([`Blame`]): memory, one large image, or bytes. Bytes are slow in
//! four ways, which the requests tell apart.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Metrics;
use super::blame::Blame;
use super::waits::Waits;
use super::work::Work;
use crate::error::Bytes;

/// Share of the time that a trainer may wait before a reason is looked for.
const WAIT: f64 = 0.02;

/// Batches that tell enough.
const ENOUGH: usize = 8;

/// Share of the workers' time from which on they are what is short: the rest goes between tasks.
const BUSY: f64 = 0.85;

/// Share of a limit from which on it is one.
const FULL: f64 = 0.8;

/// Share of requests that a store refuses for now from which on that is what slows.
const REFUSED: f64 = 0.02;

/// What the engine may use, as the report compares it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Worker threads.
    pub workers: u64,
    /// Requests in flight.
    pub requests: u64,
    /// Compressed bytes.
    pub compressed_bytes: u64,
    /// Bytes of all batches.
    pub batch_bytes: u64,
    /// Whether pixels leave as `u8`, which is the least work.
    pub is_u8: bool,
}

impl Limits {
    /// All memory.
    pub fn memory(&self) -> u64 {
        self.compressed_bytes + self.batch_bytes
    }
}

/// What limits the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The trainer: data is there when it asks.
    Trainer,
    /// Processor time of the workers.
    Cores,
    /// One large image that a batch waits for while workers are idle.
    LargeImage,
    /// `engine.memory`.
    Memory,
    /// The store asks for fewer requests.
    Throttling,
    /// Requests that may be in flight at once.
    Requests,
    /// Bytes that come in a second.
    Bandwidth,
    /// The store's slow answers.
    Latency,
}

/// Why the trainer waits, and what to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// What limits the pace.
    pub limit: Limit,
    /// It, and what would help, with numbers.
    pub words: String,
    /// Share of the workers' time in which they worked.
    pub workers_busy: f64,
    /// Requests in flight in the mean.
    pub requests_in_flight: f64,
    /// Bytes that came in a second.
    pub bytes_per_second: f64,
    /// Seconds blocked while samples were brought in and measured.
    pub bytes_blocked_seconds: f64,
    /// Seconds blocked while the batch waited for memory.
    pub memory_blocked_seconds: f64,
    /// Seconds blocked while the batch was filled.
    pub pixels_blocked_seconds: f64,
}

/// What is known of the latest batches.
struct Window {
    limits: Limits,
    blame: Blame,
    work: Work,
    blocked: f64,
    wall: f64,
    peak_compressed: u64,
    /// Median seconds to the first byte of an answer.
    first_byte: Option<f64>,
}

impl Advice {
    /// What the latest batches tell, if they are enough.
    pub(super) fn of(metrics: &Metrics, waits: &Waits) -> Option<Self> {
        let limits = *metrics.limits.get()?;
        let last = waits.window.back()?;
        if waits.window.len() < ENOUGH {
            return None;
        }
        let sum = |of: fn(&super::waits::Seen) -> Duration| {
            waits.window.iter().map(of).sum::<Duration>().as_secs_f64()
        };
        let window = Window {
            limits,
            blame: waits.window.iter().fold(Blame::default(), |sum, seen| sum + seen.blame),
            work: last.work - waits.before,
            blocked: sum(|seen| seen.wait.blocked),
            wall: sum(|seen| seen.wait.wall),
            peak_compressed: metrics.compressed_bytes.peak(),
            first_byte: metrics.fetch.first_byte.quantile(0.5).map(|micros| micros / 1e6),
        };
        (window.wall > 0.0).then(|| window.advice())
    }
}

impl Window {
    fn advice(&self) -> Advice {
        let limit = self.limit();
        Advice {
            limit,
            words: self.words(limit),
            workers_busy: self.busy(),
            requests_in_flight: self.in_flight(),
            bytes_per_second: self.work.bytes as f64 / self.wall,
            bytes_blocked_seconds: self.blame.bytes.as_secs_f64(),
            memory_blocked_seconds: self.blame.memory.as_secs_f64(),
            pixels_blocked_seconds: self.blame.pixels.as_secs_f64(),
        }
    }

    /// Share of the time that the trainer waited.
    fn wait(&self) -> f64 {
        (self.blocked / self.wall).min(1.0)
    }

    fn busy(&self) -> f64 {
        self.work.cpu.as_secs_f64() / (self.wall * self.limits.workers.max(1) as f64)
    }

    fn in_flight(&self) -> f64 {
        self.work.in_flight.as_secs_f64() / self.wall
    }

    /// How long a request takes.
    fn request_seconds(&self) -> f64 {
        self.work.in_flight.as_secs_f64() / self.work.requests.max(1) as f64
    }

    fn limit(&self) -> Limit {
        if self.wait() < WAIT {
            return Limit::Trainer;
        }
        if self.busy() >= BUSY {
            return Limit::Cores;
        }
        let Blame { bytes, memory, pixels } = self.blame;
        if memory > bytes.max(pixels) {
            return Limit::Memory;
        }
        if pixels > bytes {
            return Limit::LargeImage;
        }
        self.limit_of_bytes()
    }

    fn limit_of_bytes(&self) -> Limit {
        let refused = self.work.throttled as f64 / self.work.requests.max(1) as f64;
        let body = self.first_byte.map_or(0.0, |first| 1.0 - first / self.request_seconds());
        let full = |part: f64, whole: u64| part >= FULL * whole as f64;
        if refused >= REFUSED {
            Limit::Throttling
        } else if body > 0.5 {
            Limit::Bandwidth
        } else if full(self.in_flight(), self.limits.requests) {
            Limit::Requests
        } else if full(self.peak_compressed as f64, self.limits.compressed_bytes) {
            Limit::Memory
        } else {
            Limit::Latency
        }
    }

    fn words(&self, limit: Limit) -> String {
        let wait = self.wait() * 100.0;
        let (workers, busy) = (self.limits.workers, self.busy() * 100.0);
        let rate = Bytes((self.work.bytes as f64 / self.wall) as u64);
        let request = self.request_seconds() * 1e3;
        match limit {
            Limit::Trainer => format!(
                "the trainer waits {wait:.1} %: it is the limit itself; the workers ({workers}) are \
                 busy {busy:.0} % of the time"
            ),
            Limit::Cores => self.cores(),
            Limit::LargeImage => format!(
                "the trainer waits {wait:.1} %: batches wait for single large images while other \
                 workers are idle (busy {busy:.0} % of {workers}); lower vision.max-pixels or \
                 image.max-pixels, or put more samples into a batch"
            ),
            Limit::Memory => format!(
                "the trainer waits {wait:.1} %: memory is the limit, {} for batches and {} for \
                 compressed samples; raise engine.memory, or let go of batches sooner",
                Bytes(self.limits.batch_bytes),
                Bytes(self.limits.compressed_bytes)
            ),
            Limit::Throttling => format!(
                "the trainer waits {wait:.1} %: the store refuses {} of {} requests for now; spread \
                 the objects over more prefixes, pack them into larger shards, or ask for a higher \
                 limit",
                self.work.throttled, self.work.requests
            ),
            Limit::Requests => format!(
                "the trainer waits {wait:.1} %: all {} requests that may be in flight are, and one \
                 takes {request:.0} ms; raise fetch.concurrency, or pack samples into larger shards",
                self.limits.requests
            ),
            Limit::Bandwidth => format!(
                "the trainer waits {wait:.1} %: the network is the limit, {rate} come in a second; \
                 use smaller images, a local cache (fetch.cache), or data workers on other \
                 machines (stoker.ray)"
            ),
            Limit::Latency => format!(
                "the trainer waits {wait:.1} %: the store's slow answers come late ({request:.0} ms \
                 in the mean, {:.1} requests in flight); raise engine.prefetch, and engine.memory \
                 with it",
                self.in_flight()
            ),
        }
    }

    fn cores(&self) -> String {
        let (wait, workers) = (self.wait(), self.limits.workers);
        let (image, vision, all) =
            (self.work.image.as_secs_f64(), self.work.vision.as_secs_f64(), self.work.rooms());
        let (room, part) = [
            ("decoding", image),
            ("resizing and patches", vision),
            ("text and lines", all.as_secs_f64() - image - vision),
        ]
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there are three");
        let share = 100.0 * part / all.as_secs_f64().max(f64::MIN_POSITIVE);
        // With a trainer that does nothing itself, no number of cores ends the wait.
        let helps = if wait < 0.95 {
            let more = (workers as f64 * wait / (1.0 - wait)).ceil();
            format!("{more:.0} more cores, here or as data workers (stoker.ray), end it")
        } else {
            "more cores, here or as data workers (stoker.ray), make it faster".to_owned()
        };
        let u8 = if !self.limits.is_u8 && vision > 0.25 * all.as_secs_f64() {
            "; vision.pixels = \"u8\" leaves the last step to the device"
        } else {
            ""
        };
        format!(
            "the trainer waits {:.1} %: cores are the limit, {workers} of {workers} workers are busy, \
             {share:.0} % of it with {room}; {helps}{u8}",
            wait * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds with four workers, of which the trainer waited four.
    fn window() -> Window {
        let seconds = Duration::from_secs_f64;
        Window {
            limits: Limits {
                workers: 4,
                requests: 64,
                compressed_bytes: 1 << 30,
                batch_bytes: 3 << 30,
                is_u8: false,
            },
            blame: Blame { bytes: seconds(2.0), memory: seconds(1.0), pixels: seconds(1.0) },
            work: Work {
                cpu: seconds(8.0),
                image: seconds(4.0),
                vision: seconds(3.0),
                other: seconds(0.5),
                in_flight: seconds(100.0),
                bytes: 1 << 30,
                requests: 1000,
                throttled: 0,
            },
            blocked: 4.0,
            wall: 10.0,
            peak_compressed: 1 << 20,
            first_byte: Some(0.09),
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Window), limit: Limit, words: &[&str]) {
        let mut window = window();
        change(&mut window);
        let advice = window.advice();
        assert_eq!(advice.limit, limit, "{}", advice.words);
        for word in words {
            assert!(advice.words.contains(word), "{word:?} is not in {:?}", advice.words);
        }
    }

    #[test]
    fn a_trainer_that_hardly_waits_is_the_limit() {
        check(|window| window.blocked = 0.1, Limit::Trainer, &["1.0 %", "busy 20 %"]);
    }

    #[test]
    fn busy_workers_are_the_limit_whatever_the_batch_was_at() {
        let words = ["40.0 %", "4 of 4 workers", "53 % of it with decoding", "3 more cores", "u8"];
        let busy = |window: &mut Window| window.work.cpu = Duration::from_secs(39);
        check(busy, Limit::Cores, &words);
        check(
            |window| {
                busy(window);
                window.blocked = 10.0;
                window.limits.is_u8 = true;
            },
            Limit::Cores,
            &["make it faster"],
        );
    }

    #[test]
    fn what_the_batch_was_at_longest_is_named() {
        let most = Duration::from_secs(3);
        check(|window| window.blame.memory = most, Limit::Memory, &["raise engine.memory"]);
        check(|window| window.blame.pixels = most, Limit::LargeImage, &["vision.max-pixels"]);
    }

    #[test]
    fn requests_tell_why_bytes_are_slow() {
        check(|_| {}, Limit::Latency, &["100 ms", "10.0 requests", "engine.prefetch"]);
        check(|window| window.work.throttled = 30, Limit::Throttling, &["30 of 1000"]);
        check(|window| window.first_byte = Some(0.02), Limit::Bandwidth, &["102.4 MiB", "network"]);
        let many = |window: &mut Window| {
            window.work.in_flight = Duration::from_mins(10);
            window.work.requests = 6000;
        };
        check(many, Limit::Requests, &["all 64 requests", "fetch.concurrency"]);
        check(|window| window.peak_compressed = 1 << 30, Limit::Memory, &["compressed"]);
    }
}
