//! What was done up to some moment, in a few numbers; the difference of two says what a time was
//! spent with.

use std::ops::Sub;
use std::time::Duration;

use super::occupancy::Spent;
use super::{Metrics, Room};

/// What was done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// How long tasks waited for a worker, added up.
    pub(super) queued_tasks: Duration,
    /// What each room did.
    pub(super) rooms: [RoomWork; Room::ALL.len()],
    /// From requests to the headers of their good answers, added up.
    pub(super) first_bytes: Duration,
    /// Good answers.
    pub(super) answers: u64,
    /// How long requests waited to be sent, added up.
    pub(super) queued_requests: Duration,
    /// Requests, retries among them.
    pub(super) requests: u64,
    /// Answers that asked for patience.
    pub(super) throttled: u64,
    /// Samples handed over.
    pub(super) samples: u64,
    /// Bytes of the batches that were.
    pub(super) batch_bytes: u64,
    /// What batches and workers were at.
    pub(super) spent: Spent,
    /// Of workers, on a core.
    pub(super) on_core: Duration,
    /// Of workers that might have run, while others had the cores.
    pub(super) delayed: Duration,
    /// Of processors, for all threads of this process.
    pub(super) process: Duration,
}

/// What a room did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoomWork {
    pub(super) busy: Duration,
    pub(super) items: u64,
    pub(super) bytes: u64,
}

impl Work {
    /// All that was done so far.
    pub(super) fn so_far(metrics: &Metrics) -> Self {
        let rooms = Room::ALL.map(|room| {
            let meter = metrics.room(room);
            let busy = Duration::from_nanos(meter.busy_nanos.get());
            RoomWork { busy, items: meter.items.get(), bytes: meter.bytes.get() }
        });
        let fetch = &metrics.fetch;
        Self {
            queued_tasks: Duration::from_nanos(metrics.queued_task_nanos.get()),
            rooms,
            first_bytes: fetch.first_bytes.total(),
            answers: fetch.first_bytes.count(),
            queued_requests: Duration::from_nanos(fetch.queued_nanos.get()),
            requests: fetch.requests.get(),
            throttled: fetch.throttled.get(),
            samples: metrics.samples.get(),
            batch_bytes: metrics.batch_bytes.get(),
            spent: metrics.occupancy.so_far(),
            on_core: Duration::from_nanos(metrics.cores.on_core_nanos.get()),
            delayed: Duration::from_nanos(metrics.cores.delayed_nanos.get()),
            process: process_time(),
        }
    }

    /// What a room did.
    pub(super) fn room(&self, room: Room) -> RoomWork {
        self.rooms[room as usize]
    }

    /// How long requests took, added up.
    pub(super) fn in_flight(&self) -> Duration {
        self.room(Room::Fetch).busy
    }

    /// Bytes that came.
    pub(super) fn bytes(&self) -> u64 {
        self.room(Room::Fetch).bytes
    }

    /// Time in the rooms that need a processor.
    pub(super) fn in_rooms(&self) -> Duration {
        let all: Duration = self.rooms.iter().map(|room| room.busy).sum();
        all.saturating_sub(self.in_flight())
    }
}

/// What processors did for this process up to now; nothing where the system is not asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn process_time() -> Duration {
    Duration::ZERO
}

/// What processors did for this process up to now.
#[cfg(target_os = "linux")]
pub(super) fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let time = |of: fn(&Self) -> Duration| of(&self).saturating_sub(of(&before));
        let count = |of: fn(&Self) -> u64| of(&self).saturating_sub(of(&before));
        Self {
            queued_tasks: time(|it| it.queued_tasks),
            rooms: std::array::from_fn(|room| self.rooms[room] - before.rooms[room]),
            first_bytes: time(|it| it.first_bytes),
            answers: count(|it| it.answers),
            queued_requests: time(|it| it.queued_requests),
            requests: count(|it| it.requests),
            throttled: count(|it| it.throttled),
            samples: count(|it| it.samples),
            batch_bytes: count(|it| it.batch_bytes),
            spent: self.spent - before.spent,
            on_core: time(|it| it.on_core),
            delayed: time(|it| it.delayed),
            process: time(|it| it.process),
        }
    }
}

impl Sub for RoomWork {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            items: self.items.saturating_sub(before.items),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}
