//! What was done up to some moment, in a few numbers; the difference of two says what a time was
//! spent with.

use std::ops::Sub;
use std::time::Duration;

use super::{Metrics, Room};

/// What was done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Time of workers.
    pub(super) cpu: Duration,
    /// Of it, decoding.
    pub(super) image: Duration,
    /// Of it, resizing and patches.
    pub(super) vision: Duration,
    /// Of it, other rooms.
    pub(super) other: Duration,
    /// How long requests took, added up.
    pub(super) in_flight: Duration,
    /// Bytes that came.
    pub(super) bytes: u64,
    /// Requests, retries among them.
    pub(super) requests: u64,
    /// Answers that asked for patience.
    pub(super) throttled: u64,
}

impl Work {
    /// All that was done so far.
    pub(super) fn so_far(metrics: &Metrics) -> Self {
        let busy = |room: Room| Duration::from_nanos(metrics.room(room).busy_nanos.get());
        let other = [Room::Plan, Room::Dataset, Room::Text, Room::Pack, Room::Engine];
        Self {
            cpu: Duration::from_nanos(metrics.worker_nanos.get()),
            image: busy(Room::Image),
            vision: busy(Room::Vision),
            other: other.into_iter().map(busy).sum(),
            in_flight: busy(Room::Fetch),
            bytes: metrics.room(Room::Fetch).bytes.get(),
            requests: metrics.fetch.requests.get(),
            throttled: metrics.fetch.throttled.get(),
        }
    }

    /// Time in the rooms that need a processor.
    pub(super) fn rooms(&self) -> Duration {
        self.image + self.vision + self.other
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            image: self.image.saturating_sub(before.image),
            vision: self.vision.saturating_sub(before.vision),
            other: self.other.saturating_sub(before.other),
            in_flight: self.in_flight.saturating_sub(before.in_flight),
            bytes: self.bytes.saturating_sub(before.bytes),
            requests: self.requests.saturating_sub(before.requests),
            throttled: self.throttled.saturating_sub(before.throttled),
        }
    }
}
