//! What is known of some time, for [`super::Advice`]: of one loader, or of many data workers and the rank
//! that they work for.

use serde::{Deserialize, Serialize};

use super::blame::Blame;
use super::waits::Span;
use super::{Metrics, Room};

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
    /// Time of workers on a core.
    #[serde(default)]
    pub on_core_seconds: f64,
    /// Time of workers that might have run, while others had the cores.
    #[serde(default)]
    pub delayed_seconds: f64,
    /// Of the time on a core, while the trainer was blocked; nothing of data workers, which don't know.
    #[serde(default)]
    pub blocked_on_core_seconds: f64,
    /// Of the time without one, likewise.
    #[serde(default)]
    pub blocked_delayed_seconds: f64,
    /// Processor time of all threads of the engine's process.
    #[serde(default)]
    pub process_seconds: f64,
    /// Of the workers' time, decoding.
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
    /// How many of them can run at once.
    #[serde(default)]
    pub usable_cores: f64,
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
        let Span { batches, blocked, wall, blame, work, blocked_on_core, blocked_delayed } = span;
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
            on_core_seconds: work.on_core.as_secs_f64(),
            delayed_seconds: work.delayed.as_secs_f64(),
            blocked_on_core_seconds: blocked_on_core.as_secs_f64(),
            blocked_delayed_seconds: blocked_delayed.as_secs_f64(),
            process_seconds: work.process.as_secs_f64(),
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
            usable_cores: limits.workers.min(limits.cores) as f64,
            most_requests: limits.requests as f64,
            requests_now: metrics.fetch.limit.get() as f64,
            compressed_limit_bytes: limits.compressed_bytes as f64,
            batch_limit_bytes: limits.batch_bytes as f64,
            u8_workers: if limits.is_u8 { limits.workers as f64 } else { 0.0 },
        }
    }
}
