//! What batches cost: the real loader, first flat out, then with one batch at a time.
//!
//! Flat out, nothing waits for a trainer, so whatever limits the loader shows. One at a time, nothing
//! waits for anything else, which is how long a batch takes on its way. All sums are differences between
//! two reports, so that the start (threads, connections, memory that is mapped) is not in them.

use std::fs;
use std::time::{Duration, Instant};

use stoker_engine::loader::{Loader, Next};
use stoker_engine::metrics::{Cost, FlatOut, Limit, Report, Room};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;

use super::too_few;
use crate::outcome::Failure;
use crate::{bar, interrupt};

/// How long to wait for a batch before looking for Ctrl-C again.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shares of the time: until all runs evenly, flat out, one at a time. And batches at least.
const WARM: (f64, u64) = (0.2, 8);
const FLAT_OUT: (f64, u64) = (0.5, 12);
const ALONE: (f64, u64) = (0.3, 6);

/// The first batches that come one at a time: they get memory that is mapped for them.
const FIRST_ALONE: u64 = 2;

/// Share of their time from which on workers are what is short, as in the report.
const BUSY: f64 = 0.85;

/// Ticks of the system's clock for processes; the same on all of Linux.
const TICKS: f64 = 100.0;

/// What was measured.
pub(super) struct Measured {
    pub(super) cost: Cost,
    /// Of the time in the rooms: decoding, resizing and patches, the rest.
    pub(super) shares: [f64; 3],
    /// Batches that were taken, of all kinds.
    pub(super) batches: u64,
    pub(super) seconds: f64,
}

/// Some batches that were taken one after the other.
struct Taken {
    batches: u64,
    seconds: f64,
    shipped_bytes: u64,
    before: Snapshot,
    after: Snapshot,
}

struct Snapshot {
    report: Report,
    processor_seconds: f64,
}

/// Measures for about so many seconds; nothing after Ctrl-C.
pub(super) fn measure(recipe: Recipe, seconds: f64) -> Result<Option<Measured>, Failure> {
    let alone = {
        let mut recipe = recipe.clone();
        recipe.engine.prefetch = Some(0);
        recipe
    };
    let begun = Instant::now();
    let bar = bar::of_bytes();
    let opened =
        Loader::open_with_progress(recipe, Rank { index: 0, of: 1 }, &mut bar::follow(&bar));
    bar.finish_and_clear();
    let loader = opened?;
    let bar = bar::of_batches(None);
    let interrupt = interrupt::is_noted();
    let go_on = |batches| {
        bar.set_position(batches);
        bar.set_message("measuring");
        !interrupt.heard()
    };
    let Some(warm) = take(&loader, seconds, WARM, go_on)? else { return Ok(None) };
    let Some(flat_out) = take(&loader, seconds, FLAT_OUT, go_on)? else { return Ok(None) };
    loader.close();
    let loader = Loader::open(alone, Rank { index: 0, of: 1 })?;
    let Some(first) = take(&loader, 0.0, (0.0, FIRST_ALONE), go_on)? else { return Ok(None) };
    let Some(alone) = take(&loader, seconds, ALONE, go_on)? else { return Ok(None) };
    bar.finish_and_clear();
    let batches = [&warm, &flat_out, &first, &alone].iter().map(|taken| taken.batches).sum();
    Ok(Some(Measured {
        cost: cost(&warm, &flat_out, &alone),
        shares: shares(&flat_out),
        batches,
        seconds: begun.elapsed().as_secs_f64(),
    }))
}

/// Takes batches for a share of so many seconds, and a number of them at least.
fn take(
    loader: &Loader,
    seconds: f64,
    (share, least): (f64, u64),
    go_on: impl Fn(u64) -> bool,
) -> Result<Option<Taken>, Failure> {
    let before = Snapshot::of(loader);
    let (since, mut batches, mut shipped_bytes) = (Instant::now(), 0, 0);
    while batches < least || since.elapsed().as_secs_f64() < share * seconds {
        if !go_on(batches) {
            return Ok(None);
        }
        match loader.next(PATIENCE)? {
            Next::Waiting => {}
            Next::End if batches == 0 => {
                return Err(too_few("there are too few samples to measure"));
            }
            Next::End => loader.rewind()?,
            Next::Batch(batch) => {
                batches += 1;
                let bytes = batch.tensors().iter().map(|tensor| batch.data(tensor).len() as u64);
                shipped_bytes += bytes.sum::<u64>();
            }
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    Ok(Some(Taken { batches, seconds, shipped_bytes, before, after: Snapshot::of(loader) }))
}

impl Snapshot {
    fn of(loader: &Loader) -> Self {
        Self { report: loader.report(), processor_seconds: processor_seconds() }
    }

    fn room(&self, room: Room, of: fn(&stoker_engine::metrics::RoomReport) -> f64) -> f64 {
        self.report.rooms.iter().find(|it| it.room == room).map_or(0.0, of)
    }
}

impl Taken {
    /// How much something grew.
    fn grew(&self, of: impl Fn(&Snapshot) -> f64) -> f64 {
        (of(&self.after) - of(&self.before)).max(0.0)
    }

    /// The same, for each of its batches.
    fn each(&self, of: impl Fn(&Snapshot) -> f64) -> f64 {
        self.grew(of) / self.batches.max(1) as f64
    }
}

/// How much something grew from one moment to another for each sample that was brought in meanwhile:
/// samples are brought in ahead, and not evenly.
fn brought_in(before: &Snapshot, after: &Snapshot, of: impl Fn(&Snapshot) -> f64) -> f64 {
    let grew = |of: &dyn Fn(&Snapshot) -> f64| (of(after) - of(before)).max(0.0);
    grew(&of) / grew(&|it| it.room(Room::Dataset, |room| room.items as f64)).max(1.0)
}

/// What a batch costs.
fn cost(warm: &Taken, flat_out: &Taken, alone: &Taken) -> Cost {
    // Of few samples all may be there before the loader runs evenly.
    let brought_in = |of: &dyn Fn(&Snapshot) -> f64| brought_in(&warm.before, &flat_out.after, of);
    let samples = flat_out.each(|it| it.report.samples as f64);
    let worker_seconds = flat_out.each(|it| it.report.worker_seconds);
    let processor_seconds = flat_out.each(|it| it.processor_seconds);
    let requests = |it: &Snapshot| it.report.fetch.requests as f64;
    let asked = alone.grew(requests);
    let waited = |it: &Snapshot| it.room(Room::Fetch, |room| room.busy_seconds);
    let seconds = flat_out.seconds / flat_out.batches.max(1) as f64;
    let workers = flat_out.after.report.workers as f64;
    let busy = worker_seconds / (seconds * workers.max(1.0));
    let advised = flat_out.after.report.advice.as_ref().map(|advice| advice.limit);
    let limit = match advised {
        _ if busy >= BUSY => Limit::Cores,
        // The start was in it.
        Some(Limit::Cores) | None => Limit::Trainer,
        Some(limit) => limit,
    };
    Cost {
        samples,
        worker_seconds,
        other_seconds: (processor_seconds - worker_seconds).max(0.0),
        fetched_bytes: samples * brought_in(&|it| it.room(Room::Fetch, |room| room.bytes as f64)),
        shipped_bytes: flat_out.shipped_bytes as f64 / flat_out.batches.max(1) as f64,
        requests: samples * brought_in(&requests),
        // Local files are read, not asked for.
        request_seconds: if asked > 0.0 { alone.grew(waited) / asked } else { 0.0 },
        alone_seconds: alone.seconds / alone.batches.max(1) as f64,
        flat_out: FlatOut { seconds, limit, workers, busy },
    }
}

fn shares(taken: &Taken) -> [f64; 3] {
    let busy = |room| taken.grew(|it| it.room(room, |room| room.busy_seconds));
    let (image, vision) = (busy(Room::Image), busy(Room::Vision));
    let rest = [Room::Dataset, Room::Text, Room::Pack].map(busy).iter().sum::<f64>();
    let all = (image + vision + rest).max(f64::MIN_POSITIVE);
    [image, vision, rest].map(|part| part / all)
}

/// Processor time of this process; 0 where the system does not tell it.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, which may hold anything, ends with the last parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_in_the_processor_time() {
        let (before, since) = (processor_seconds(), Instant::now());
        while processor_seconds() <= before {
            assert!(since.elapsed() < Duration::from_secs(30), "no time passes");
            std::hint::black_box((0..100_000_u64).fold(0, |sum, n| sum ^ n));
        }
    }
}
