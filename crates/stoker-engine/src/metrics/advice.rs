//! Why the trainer waits: the bottleneck, with the numbers that it is known by.
//!
//! The rule looks at the latest batches. A trainer that hardly waits is itself the limit. Otherwise it is what
//! the batches that the trainer was blocked for were at meanwhile ([`Blame`]). Those that were finished were
//! late on their way. Where all workers are busy, cores are short; where they are not, it is memory, one large
//! image, or bytes. Bytes are slow in five ways, which the requests tell apart.
//!
//! [`Evidence`] is all that the rule knows, in numbers that can be added: of one loader, or of many data
//! workers and the rank that they work for. What is said of it is in [`super::words`].

use serde::{Deserialize, Serialize};

use super::blame::Blame;
use super::waits::{Span, Waits};
use super::{Metrics, Room};

/// Share of the time that a trainer may wait before a reason is looked for.
pub(super) const WAIT: f64 = 0.02;

/// Batches that tell enough.
const ENOUGH: f64 = 8.0;

/// Share of the workers' time from which on they are what is short: the rest goes between tasks.
pub(super) const BUSY: f64 = 0.85;

/// Share of a limit from which on it is one.
const FULL: f64 = 0.8;

/// Share of requests that a store refuses for now from which on that is what slows.
const REFUSED: f64 = 0.02;

/// Share of a request that goes to the body, and of the time in which reads wait for memory, from which on that
/// is what requests are about.
const MOST: f64 = 0.5;

/// With a trainer that does nothing itself, no number ends the wait.
const HOPELESS: f64 = 0.95;

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
    /// The way of finished batches into the trainer's process.
    HandOver,
    /// The network card of the trainer's node, which finished batches come over.
    Network,
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

impl Limit {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Trainer,
        Self::HandOver,
        Self::Network,
        Self::Cores,
        Self::LargeImage,
        Self::Memory,
        Self::Throttling,
        Self::Requests,
        Self::Bandwidth,
        Self::Latency,
    ];

    /// Its one word, as it stands in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Trainer => "trainer",
            Self::HandOver => "hand-over",
            Self::Network => "network",
            Self::Cores => "cores",
            Self::LargeImage => "large-image",
            Self::Memory => "memory",
            Self::Throttling => "throttling",
            Self::Requests => "requests",
            Self::Bandwidth => "bandwidth",
            Self::Latency => "latency",
        }
    }
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
    /// Seconds blocked while the batch was finished, and on its way.
    #[serde(default)]
    pub hand_over_blocked_seconds: f64,
    /// How many times as many bytes the store could give: by as many requests as may be in flight, each as
    /// fast as they are now. Nothing where bodies take longest, since they share a network.
    #[serde(default)]
    pub store_could_give: Option<f64>,
    /// How many times as fast all must go for the wait to end; nothing where the trainer does nothing itself.
    #[serde(default)]
    pub pace_needed: Option<f64>,
}

/// What is known of some time, in numbers that can be added and subtracted; the limits are those at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Batches handed over.
    pub batches: f64,
    /// The time.
    pub wall_seconds: f64,
    /// Of it, the trainer was blocked.
    pub blocked_seconds: f64,
    /// Of that, while samples were brought in and measured.
    pub bytes_blocked_seconds: f64,
    /// While the batch waited for memory.
    pub memory_blocked_seconds: f64,
    /// While it was filled.
    pub pixels_blocked_seconds: f64,
    /// While it was finished, in this process or on this machine.
    pub hand_over_blocked_seconds: f64,
    /// While it was finished, and came over a network.
    pub network_blocked_seconds: f64,
    /// Time of workers at work.
    pub cpu_seconds: f64,
    /// Of it, decoding.
    pub image_seconds: f64,
    /// Of it, resizing and patches.
    pub vision_seconds: f64,
    /// Of it, other rooms.
    pub other_seconds: f64,
    /// How long requests took, added up.
    pub request_seconds: f64,
    /// From requests to the headers of their good answers, added up.
    pub first_byte_seconds: f64,
    /// Good answers.
    pub answers: f64,
    /// Requests, retries among them.
    pub requests: f64,
    /// Answers that asked for patience.
    pub throttled: f64,
    /// Bytes that came.
    pub fetched_bytes: f64,
    /// For how long batches were brought in, added up.
    pub bringing_seconds: f64,
    /// In which reads waited for memory.
    pub held_back_seconds: f64,
    /// Time of workers that waited since batches had no memory to be filled.
    pub memory_idle_seconds: f64,
    /// Time of those that waited while others had all that there was to fill.
    pub others_idle_seconds: f64,
    /// Engines elsewhere that make the batches; none where this one does.
    pub data_workers: f64,
    /// Worker threads of all of them.
    pub workers: f64,
    /// Requests that may be in flight, by the recipe.
    pub most_requests: f64,
    /// Those that may now, by what the store can bear.
    pub requests_now: f64,
    /// Memory for compressed bytes.
    pub compressed_limit_bytes: f64,
    /// Memory for batches.
    pub batch_limit_bytes: f64,
    /// Share of the workers whose pixels leave as `u8`, added up: all or none.
    pub u8_workers: f64,
}

impl Evidence {
    pub(super) fn of(metrics: &Metrics, span: &Span) -> Self {
        let limits = metrics.limits.get().copied().unwrap_or_default();
        let Span { batches, blocked, wall, blame, work } = span;
        let Blame { bytes, memory, pixels, hand_over } = blame;
        let (image, vision) = (work.room(Room::Image).busy, work.room(Room::Vision).busy);
        Self {
            batches: *batches as f64,
            wall_seconds: wall.as_secs_f64(),
            blocked_seconds: blocked.as_secs_f64(),
            bytes_blocked_seconds: bytes.as_secs_f64(),
            memory_blocked_seconds: memory.as_secs_f64(),
            pixels_blocked_seconds: pixels.as_secs_f64(),
            hand_over_blocked_seconds: hand_over.as_secs_f64(),
            network_blocked_seconds: 0.0,
            cpu_seconds: work.spent.working.as_secs_f64(),
            image_seconds: image.as_secs_f64(),
            vision_seconds: vision.as_secs_f64(),
            other_seconds: work.in_rooms().saturating_sub(image + vision).as_secs_f64(),
            request_seconds: work.in_flight().as_secs_f64(),
            first_byte_seconds: work.first_bytes.as_secs_f64(),
            answers: work.answers as f64,
            requests: work.requests as f64,
            throttled: work.throttled as f64,
            fetched_bytes: work.bytes() as f64,
            bringing_seconds: work.spent.bringing.as_secs_f64(),
            held_back_seconds: work.spent.some_held_back.as_secs_f64(),
            memory_idle_seconds: work.spent.idle_memory.as_secs_f64(),
            others_idle_seconds: work.spent.idle_others.as_secs_f64(),
            data_workers: 0.0,
            workers: limits.workers as f64,
            most_requests: limits.requests as f64,
            requests_now: metrics.fetch.limit.get() as f64,
            compressed_limit_bytes: limits.compressed_bytes as f64,
            batch_limit_bytes: limits.batch_bytes as f64,
            u8_workers: if limits.is_u8 { limits.workers as f64 } else { 0.0 },
        }
    }

    /// What it tells, if it is enough.
    pub fn advice(&self) -> Option<Advice> {
        if self.batches < ENOUGH || self.wall_seconds <= 0.0 {
            return None;
        }
        let limit = self.limit();
        Some(Advice {
            limit,
            words: self.words(limit),
            workers_busy: self.busy(),
            requests_in_flight: self.in_flight(),
            bytes_per_second: self.rate(),
            bytes_blocked_seconds: self.bytes_blocked_seconds,
            memory_blocked_seconds: self.memory_blocked_seconds,
            pixels_blocked_seconds: self.pixels_blocked_seconds,
            hand_over_blocked_seconds: self.hand_over_blocked_seconds
                + self.network_blocked_seconds,
            store_could_give: self.store_could_give(),
            pace_needed: self.pace_needed(),
        })
    }

    /// Share of the time that the trainer waited.
    pub(super) fn wait(&self) -> f64 {
        (self.blocked_seconds / self.wall_seconds).min(1.0)
    }

    pub(super) fn busy(&self) -> f64 {
        (self.cpu_seconds / (self.wall_seconds * self.workers.max(1.0))).min(1.0)
    }

    pub(super) fn in_flight(&self) -> f64 {
        self.request_seconds / self.wall_seconds
    }

    /// Bytes that came in a second.
    pub(super) fn rate(&self) -> f64 {
        self.fetched_bytes / self.wall_seconds
    }

    /// How long a request takes; nothing where files are read, for which there are none.
    pub(super) fn each_request(&self) -> f64 {
        if self.requests > 0.0 { self.request_seconds / self.requests } else { 0.0 }
    }

    /// How many engines it is of.
    pub(super) fn engines(&self) -> f64 {
        self.data_workers.max(1.0)
    }

    /// Share of requests' time that goes to bodies.
    pub(super) fn body(&self) -> f64 {
        let head = self.first_byte_seconds / self.answers.max(1.0);
        if self.answers > 0.0 { (1.0 - head / self.each_request()).max(0.0) } else { 0.0 }
    }

    pub(super) fn pace_needed(&self) -> Option<f64> {
        (self.wait() < HOPELESS).then(|| 1.0 / (1.0 - self.wait()))
    }

    pub(super) fn store_could_give(&self) -> Option<f64> {
        let known = self.in_flight() > 0.0 && self.body() <= MOST;
        known.then(|| (self.requests_now / self.in_flight()).max(1.0))
    }

    fn limit(&self) -> Limit {
        let (late, network) = (self.hand_over_blocked_seconds, self.network_blocked_seconds);
        let (bytes, memory, pixels) =
            (self.bytes_blocked_seconds, self.memory_blocked_seconds, self.pixels_blocked_seconds);
        let making = bytes + memory + pixels;
        if self.wait() < WAIT {
            Limit::Trainer
        } else if network > making.max(late) {
            Limit::Network
        } else if late > making {
            Limit::HandOver
        } else if self.busy() >= BUSY {
            Limit::Cores
        } else if memory > bytes.max(pixels) {
            Limit::Memory
        } else if pixels > bytes {
            self.limit_of_idle_workers()
        } else {
            self.limit_of_bytes()
        }
    }

    /// Batches are filled, and some workers idle: the others of them have all there is, or what more there is
    /// has no memory.
    fn limit_of_idle_workers(&self) -> Limit {
        if self.memory_idle_seconds > self.others_idle_seconds {
            Limit::Memory
        } else {
            Limit::LargeImage
        }
    }

    fn limit_of_bytes(&self) -> Limit {
        if self.throttled >= REFUSED * self.requests.max(1.0) {
            Limit::Throttling
        } else if self.body() > MOST {
            Limit::Bandwidth
        } else if self.in_flight() >= FULL * self.most_requests {
            Limit::Requests
        } else if self.held_back_seconds > MOST * self.wall_seconds * self.engines() {
            Limit::Memory
        } else {
            Limit::Latency
        }
    }
}

impl Advice {
    /// What the latest batches of a loader tell, if they are enough.
    pub(super) fn of(metrics: &Metrics, waits: &Waits) -> Option<Self> {
        metrics.limits.get()?;
        Evidence::of(metrics, &waits.span()?).advice()
    }
}

#[cfg(test)]
mod tests;
