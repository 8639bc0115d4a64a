//! How fast a loader was between two looks.

use serde::Serialize;
use stoker_engine::loader::Glance;
use stoker_engine::metrics::{Report, Room};

/// What was done in a second. Before the second look: since the loader was opened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rates {
    /// Over how long.
    pub(crate) seconds: f64,
    pub(crate) batches_per_second: f64,
    pub(crate) samples_per_second: f64,
    pub(crate) images_per_second: f64,
    pub(crate) tokens_per_second: f64,
    /// Bytes that came from the store.
    pub(crate) bytes_per_second: f64,
    /// Share of the time the trainer was blocked, from batch to batch; nothing where it took none.
    pub(crate) wait_ratio: Option<f64>,
    /// What each room did.
    pub(crate) rooms: Vec<RoomRates>,
}

/// What a room did in a second.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RoomRates {
    pub(crate) room: Room,
    /// Threads (in `fetch`: requests) that were in it, in the mean.
    pub(crate) busy: f64,
    pub(crate) items_per_second: f64,
    pub(crate) bytes_per_second: f64,
}

impl Rates {
    pub(crate) fn between(before: Option<&Glance>, now: &Glance) -> Self {
        let seconds = now.age_seconds - before.map_or(0.0, |before| before.age_seconds);
        let before = before.map(|before| &before.report);
        let gained = |of: &dyn Fn(&Report) -> f64| of(&now.report) - before.map_or(0.0, of);
        // What is asked twice in no time has done nothing.
        let rate = |of: &dyn Fn(&Report) -> f64| {
            if seconds > 0.0 { gained(of) / seconds } else { 0.0 }
        };
        let wall = gained(&|report| report.wait.wall_seconds);
        let blocked = gained(&|report| report.wait.blocked_seconds);
        let rooms = now.report.rooms.iter().map(|room| RoomRates {
            room: room.room,
            busy: rate(&|report| part(report, room.room).busy_seconds),
            items_per_second: rate(&|report| part(report, room.room).items),
            bytes_per_second: rate(&|report| part(report, room.room).bytes),
        });
        Self {
            seconds,
            batches_per_second: rate(&|report| batches(report) as f64),
            samples_per_second: rate(&|report| report.samples as f64),
            images_per_second: rate(&|report| report.images as f64),
            tokens_per_second: rate(&|report| report.tokens as f64),
            bytes_per_second: rate(&|report| part(report, Room::Fetch).bytes),
            wait_ratio: (wall > 0.0).then(|| (blocked / wall).clamp(0.0, 1.0)),
            rooms: rooms.collect(),
        }
    }
}

/// Batches delivered, the first one too.
pub(crate) fn batches(report: &Report) -> u64 {
    report.wait.batches + u64::from(report.wait.first_batch_seconds.is_some())
}

#[derive(Default)]
struct Part {
    busy_seconds: f64,
    items: f64,
    bytes: f64,
}

fn part(report: &Report, room: Room) -> Part {
    let found = report.rooms.iter().find(|one| one.room == room);
    found.map_or_else(Part::default, |room| Part {
        busy_seconds: room.busy_seconds,
        items: room.items as f64,
        bytes: room.bytes as f64,
    })
}
