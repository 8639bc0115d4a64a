//! What batches cost: the real loader, first flat out, then with one batch at a time.
//!
//! Flat out, nothing waits for a trainer, so whatever limits the loader shows. One at a time, nothing
//! waits for anything else, which is how long a batch takes on its way, and nothing is brought in but what
//! is in the batches that are taken. All sums are differences between two reports, so that the start
//! (threads, connections, memory that is mapped) is not in them.

use std::time::{Duration, Instant};

use stoker_engine::loader::{Loader, Next};
use stoker_engine::metrics::{BUSY, CROWDED, Cost, FlatOut, Limit, Report, Room, RoomReport};
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
    before: Report,
    after: Report,
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
        cost: cost(&flat_out, &alone),
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
    let before = loader.report();
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
    Ok(Some(Taken { batches, seconds, shipped_bytes, before, after: loader.report() }))
}

fn of_room(report: &Report, room: Room, of: fn(&RoomReport) -> f64) -> f64 {
    report.rooms.iter().find(|it| it.room == room).map_or(0.0, of)
}

impl Taken {
    /// How much something grew.
    fn grew(&self, of: impl Fn(&Report) -> f64) -> f64 {
        (of(&self.after) - of(&self.before)).max(0.0)
    }

    /// The same, for each of its batches.
    fn each(&self, of: impl Fn(&Report) -> f64) -> f64 {
        self.grew(of) / self.batches.max(1) as f64
    }
}

/// What a batch costs.
fn cost(flat_out: &Taken, alone: &Taken) -> Cost {
    let samples = flat_out.each(|it| it.samples as f64);
    let at_work = flat_out.each(|it| it.worker_seconds);
    // A little of it is everywhere, for requests and the system. Who has more need not be where the job will run.
    let delayed = flat_out.each(|it| it.worker_delay_seconds).min(at_work);
    let delayed_seconds = if delayed > CROWDED * at_work { delayed } else { 0.0 };
    let worker_seconds = at_work - delayed_seconds;
    let process_seconds = flat_out.each(|it| it.process_seconds);
    let seconds = flat_out.seconds / flat_out.batches.max(1) as f64;
    let workers = flat_out.after.workers as f64;
    let busy = at_work / (seconds * workers.max(1.0));
    let advised = flat_out.after.advice.as_ref().map(|advice| advice.limit);
    let limit = match advised {
        _ if busy >= BUSY => Limit::Cores,
        // The start was in it; and others, whose share is left out.
        Some(Limit::Cores | Limit::BusyMachine) | None => Limit::Trainer,
        Some(limit) => limit,
    };
    // Flat out, some of what is brought in is of batches that nobody has yet, and more or less of it each
    // time; and what has to share a line or a store takes longer. Requests that wait for nothing but each
    // other do neither, and a few differ so much that none is to be left out.
    let telling: &[&Taken] = if limit == Limit::Requests { &[flat_out, alone] } else { &[alone] };
    let sum = |of: &dyn Fn(&Report) -> f64| telling.iter().map(|taken| taken.grew(of)).sum::<f64>();
    let brought_in =
        |of: &dyn Fn(&Report) -> f64| samples * sum(of) / sum(&|it| it.samples as f64).max(1.0);
    let requests = |it: &Report| it.fetch.requests as f64;
    let waited = |it: &Report| of_room(it, Room::Fetch, |room| room.busy_seconds);
    let bytes = |it: &Report| of_room(it, Room::Fetch, |room| room.bytes as f64);
    let (fetched_bytes, requests_each) = (brought_in(&bytes), brought_in(&requests));
    // Where they are what limits, a batch takes as long as its own do.
    let part = |own: f64, of: f64| if of > 0.0 { own / of } else { 1.0 };
    let share = match limit {
        Limit::Throttling => part(requests_each, flat_out.each(requests)),
        Limit::Bandwidth => part(fetched_bytes, flat_out.each(bytes)),
        _ => 1.0,
    };
    let asked = sum(&requests);
    Cost {
        samples,
        worker_seconds,
        delayed_seconds,
        other_seconds: (process_seconds - worker_seconds).max(0.0),
        fetched_bytes,
        shipped_bytes: flat_out.shipped_bytes as f64 / flat_out.batches.max(1) as f64,
        requests: requests_each,
        // Local files are read, not asked for.
        request_seconds: if asked > 0.0 { sum(&waited) / asked } else { 0.0 },
        alone_seconds: alone.seconds / alone.batches.max(1) as f64,
        flat_out: FlatOut { seconds: seconds * share, limit, workers, busy },
    }
}

fn shares(taken: &Taken) -> [f64; 3] {
    let busy = |room| taken.grew(|it| of_room(it, room, |room| room.busy_seconds));
    let (image, vision) = (busy(Room::Image), busy(Room::Vision));
    let rest = [Room::Dataset, Room::Text, Room::Pack].map(busy).iter().sum::<f64>();
    let all = (image + vision + rest).max(f64::MIN_POSITIVE);
    [image, vision, rest].map(|part| part / all)
}

#[cfg(test)]
mod tests;
