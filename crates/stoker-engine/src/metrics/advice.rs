//! Why the trainer waits: the bottleneck, with the numbers that it is known by.
//!
//! The rule looks at the latest batches. A trainer that hardly waits is itself the limit. Otherwise it is what
//! the batches that the trainer was blocked for were at meanwhile ([`super::Blame`]). Those that were finished were
//! late on their way. Where all workers are busy, cores are short; where they are not, it is memory, one large
//! image, or bytes. Before it is said of busy workers or of one image, it is looked whether others have the
//! cores. Bytes are slow in five ways, which the requests tell apart.
//!
//! [`Evidence`] is all that the rule knows. What is said of it is in [`super::words`].

use serde::{Deserialize, Serialize};

use super::waits::Waits;
use super::{Evidence, Metrics};

/// Share of the time that a trainer may wait before a reason is looked for.
pub(super) const WAIT: f64 = 0.02;

/// Batches that tell enough.
const ENOUGH: f64 = 8.0;

/// Share of the workers' time from which on they are what is short: the rest goes between tasks.
pub const BUSY: f64 = 0.85;

/// Share of a limit from which on it is one.
const FULL: f64 = 0.8;

/// Share of requests that a store refuses for now from which on that is what slows.
const REFUSED: f64 = 0.02;

/// Share of a request that goes to the body, and of the time in which reads wait for memory, from which on that
/// is what requests are about.
const MOST: f64 = 0.5;

/// With a trainer that does nothing itself, no number ends the wait.
const HOPELESS: f64 = 0.95;

/// Share of the time that workers might run, in which they have no core, from which on others have these.
pub const CROWDED: f64 = 0.3;

/// What the engine may use, as the report compares it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Worker threads.
    pub workers: u64,
    /// Cores that this process may run on.
    pub cores: u64,
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
    /// Others, who have the cores that the workers need.
    BusyMachine,
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
    pub const ALL: [Self; 11] = [
        Self::Trainer,
        Self::HandOver,
        Self::Network,
        Self::Cores,
        Self::BusyMachine,
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
            Self::BusyMachine => "busy-machine",
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

impl Evidence {
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

    /// So many cores the workers had, in the mean.
    pub(super) fn cores_had(&self) -> f64 {
        self.on_core_seconds / self.wall_seconds
    }

    /// Whether others have the cores. More workers than cores keep these from each other, and have them all.
    fn is_crowded_out(&self) -> bool {
        let (had, lacked) = (self.on_core_seconds, self.delayed_seconds);
        lacked > CROWDED * (had + lacked) && self.cores_had() < FULL * self.usable_cores
    }

    /// Whether the trainer waits for cores more than for what is done on them, where some workers idle: what
    /// the others lack while nobody waits costs nothing. Data workers don't know when somebody does.
    fn is_waiting_for_cores(&self) -> bool {
        let is_known = self.data_workers == 0.0;
        let is_most = self.blocked_delayed_seconds > self.blocked_on_core_seconds;
        self.is_crowded_out() && (is_most || !is_known)
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
            if self.is_crowded_out() { Limit::BusyMachine } else { Limit::Cores }
        } else if memory > bytes.max(pixels) {
            Limit::Memory
        } else if pixels > bytes {
            self.limit_of_idle_workers()
        } else {
            self.limit_of_bytes()
        }
    }

    /// Batches are filled, and some workers idle: what more there is has no memory, or the others of them
    /// have all there is and get no core for it, or it is one image.
    fn limit_of_idle_workers(&self) -> Limit {
        let memory = self.memory_idle_seconds;
        let is_memory = memory > self.others_idle_seconds;
        // A little of the time is always others'; it tells nothing where there is more of another kind.
        if is_memory && memory > self.delayed_seconds {
            Limit::Memory
        } else if self.workers <= self.usable_cores && self.is_waiting_for_cores() {
            Limit::BusyMachine
        } else if is_memory {
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
