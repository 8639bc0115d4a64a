//! What the engine counts while it works, always on: a few relaxed atomics per sample, and now and then
//! what the scheduler knows of a worker.
//!
//! Each room has a [`Meter`] (time busy, items, bytes). The fetch room counts its requests, the
//! front door logs per batch how long the trainer was blocked. [`Metrics::report`] takes a snapshot
//! of it all: the [`Report`].

mod advice;
mod blame;
mod cache;
mod core_time;
mod evidence;
mod families;
mod fetch;
mod forecast;
mod histogram;
mod history;
mod occupancy;
mod page;
pub mod prometheus;
mod report;
mod retries;
mod spread;
mod stages;
mod trace;
mod waits;
mod words;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
#[cfg(feature = "metrics-switch")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{BadSample, Outcome};
use history::{Done, History};
use work::Work;

pub use advice::{Advice, BUSY, CROWDED, Limit, Limits};
pub use blame::{Blame, Phase, Progress};
pub use cache::{CacheMeter, CacheReport};
pub use core_time::{CoreMeter, CoreTime};
pub use evidence::Evidence;
pub use families::{Family, Kind, Point, Value, families};
pub use fetch::{FetchMeter, FetchReport};
pub use forecast::{Ahead, Cost, FlatOut, Forecast, Job, Machine, Needs};
pub use histogram::{Histogram, HistogramReport};
pub use history::{Plots, Points};
pub use occupancy::{Holding, Occupancy, Standing};
pub use page::page_style;
pub use report::{FlawReport, MemoryReport, Report, RoomReport, WaitReport};
pub use retries::{Cause, Causes, RetriesReport};
pub(crate) use spread::Recent;
pub use spread::Spread;
pub use stages::{DeliverStage, FetchStage, Stages, WorkersStage};
pub use trace::{Argument, Arguments, Count, Recording, Span, Stage, Tracer};
pub use waits::{Wait, Waits};

/// The rooms that data passes through, in order: the names of metrics, errors and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Room {
    /// The order.
    Plan,
    /// Lines and their meaning.
    Dataset,
    /// Bytes.
    Fetch,
    /// Decoding.
    Image,
    /// Resizing and patches.
    Vision,
    /// Tokens and labels.
    Text,
    /// Layout and text tensors.
    Pack,
    /// Memory and threads.
    Engine,
}

impl Room {
    /// All rooms, in the order that data flows.
    pub const ALL: [Self; 8] = [
        Self::Plan,
        Self::Dataset,
        Self::Fetch,
        Self::Image,
        Self::Vision,
        Self::Text,
        Self::Pack,
        Self::Engine,
    ];

    /// The room's one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Dataset => "dataset",
            Self::Fetch => "fetch",
            Self::Image => "image",
            Self::Vision => "vision",
            Self::Text => "text",
            Self::Pack => "pack",
            Self::Engine => "engine",
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tables give it a width.
        f.pad(self.as_str())
    }
}

/// Whether anything is counted. Always, unless `bench.overhead` switches it off to see what it costs: then
/// nothing of this is touched but what goes up and down (gauges, and the standing of [`Occupancy`]), and no
/// [`Stopwatch`] looks at a clock.
#[cfg(not(feature = "metrics-switch"))]
const fn is_on() -> bool {
    true
}

#[cfg(feature = "metrics-switch")]
static IS_ON: AtomicBool = AtomicBool::new(true);

#[cfg(feature = "metrics-switch")]
fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Switches it off or on, for all loaders, as a counter does not know whose it is. Their reports are wrong from
/// then on.
#[cfg(feature = "metrics-switch")]
pub fn switch(on: bool) {
    IS_ON.store(on, Ordering::Relaxed);
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        if is_on() {
            self.0.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down, and its peak.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    /// Raises it.
    pub fn add(&self, amount: u64) {
        let now = self.now.fetch_add(amount, Ordering::Relaxed) + amount;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    /// Lowers it.
    pub fn sub(&self, amount: u64) {
        self.now.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The largest value it had.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// When something began whose time is only counted: nothing but metrics may depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Option<Instant>);

impl Stopwatch {
    /// Now.
    pub fn start() -> Self {
        Self(is_on().then(Instant::now))
    }

    /// Since then.
    pub fn elapsed(self) -> Duration {
        self.0.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// What one room did.
#[derive(Debug, Default)]
pub struct Meter {
    /// Nanoseconds that threads (in `fetch`: requests) spent in the room, added up.
    pub busy_nanos: Counter,
    /// Things done: images decoded, texts encoded, requests answered.
    pub items: Counter,
    /// Bytes that came out of it.
    pub bytes: Counter,
}

impl Meter {
    /// Counts the time until the returned guard is dropped, and one item.
    pub fn enter(&self) -> Busy<'_> {
        Busy { meter: self, since: Stopwatch::start() }
    }

    /// Counts one item that took so long, and what came out of it.
    pub fn count(&self, busy: Duration, bytes: u64) {
        self.busy_nanos.add(nanos(busy));
        self.items.add(1);
        self.bytes.add(bytes);
    }
}

/// Counts busy time of a room until it is dropped.
#[derive(Debug)]
pub struct Busy<'a> {
    meter: &'a Meter,
    since: Stopwatch,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.meter.busy_nanos.add(nanos(self.since.elapsed()));
        self.meter.items.add(1);
    }
}

/// Everything that is counted, for one loader.
#[derive(Debug, Default)]
pub struct Metrics {
    meters: [Meter; Room::ALL.len()],
    /// Requests.
    pub fetch: FetchMeter,
    /// Compressed bytes that are waited for or wait to be decoded.
    pub compressed_bytes: Gauge,
    /// Bytes of arenas that are mapped.
    pub arena_bytes: Gauge,
    /// Bytes of arenas that hold a batch which is being made, waits or is with the trainer.
    pub leased_bytes: Gauge,
    /// Samples delivered.
    pub samples: Counter,
    /// Images delivered.
    pub images: Counter,
    /// Tokens delivered, padding not counted.
    pub tokens: Counter,
    /// Tokens of padding and of neutral images in delivered batches.
    pub padding: Counter,
    /// Tokens that delivered batches might have had, where that is limited.
    pub room: Counter,
    /// Neutral images delivered.
    pub neutral_images: Counter,
    /// Bad samples that were replaced by another row.
    pub replaced: Counter,
    /// Bad samples that were neutralised.
    pub neutralised: Counter,
    /// Bad samples that were left out of their batch, with nothing in their place.
    pub left_out: Counter,
    /// Bytes of the batches delivered.
    pub batch_bytes: Counter,
    /// Worker threads of the engine.
    pub workers: Gauge,
    /// Nanoseconds that tasks waited for a worker, added up.
    pub queued_task_nanos: Counter,
    /// What batches in the making and workers are at, over time.
    pub occupancy: Occupancy,
    /// What workers had of the cores; added now and then when a task is done.
    pub cores: CoreMeter,
    /// What may be used, once that is known.
    pub limits: OnceLock<Limits>,
    /// Waits for single batches, the first one apart.
    wait_histogram: Histogram,
    /// What happens when, while that is recorded.
    pub trace: Tracer,
    history: Mutex<History>,
    waits: Mutex<Waits>,
    bad_samples: Mutex<BadSamples>,
}

/// The bad samples that were met.
#[derive(Debug, Default)]
struct BadSamples {
    /// The latest ones, in words.
    latest: VecDeque<String>,
    /// All of them, by what was wrong and what became of them.
    counts: BTreeMap<(Room, String, Outcome), u64>,
}

/// How many bad samples are remembered in words; the counters know of all.
const BAD_SAMPLES: usize = 100;

impl Metrics {
    /// The meter of a room.
    pub fn room(&self, room: Room) -> &Meter {
        &self.meters[room as usize]
    }

    /// Logs how long the trainer was blocked for one batch.
    pub fn waited(&self, wait: Wait) {
        if !is_on() {
            return;
        }
        let mut waits = self.waits();
        let (work, is_first) = (Work::so_far(self), waits.first.is_none());
        let wait = waits.push(wait, &work);
        if !is_first {
            self.wait_histogram.add(wait.blocked);
        }
        drop(waits);
        self.history().push(wait, Done::so_far(self, &work));
    }

    /// What is known since the beginning, for who adds up several of them: data workers do not know whose wait
    /// it is, so of that there is only what batches were asked for while they were made.
    pub fn evidence(&self) -> Evidence {
        let (work, blame) = (Work::so_far(self), self.waits().pending());
        let span = waits::Span { blame, work, ..waits::Span::default() };
        Evidence { data_workers: 1.0, ..Evidence::of(self, &span) }
    }

    /// Logs for what the next batch that is handed over was waited for.
    pub fn blamed(&self, blame: Blame) {
        self.waits().blame(blame);
    }

    /// Logs how long the batch that was handed over last took from there to the trainer.
    pub fn late(&self, late: Duration) {
        self.waits().late(late);
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a bad sample, and remembers it; of many, the latest.
    pub fn bad_sample(&self, bad: &BadSample) {
        match bad.outcome {
            Outcome::Replaced => self.replaced.add(1),
            Outcome::Neutralised => self.neutralised.add(1),
            Outcome::LeftOut => self.left_out.add(1),
        }
        let mut known = self.bad_samples.lock().unwrap_or_else(PoisonError::into_inner);
        if known.latest.len() == BAD_SAMPLES {
            known.latest.pop_front();
        }
        known.latest.push_back(bad.to_string());
        *known.counts.entry((bad.room, bad.code.clone(), bad.outcome)).or_insert(0) += 1;
    }

    /// A snapshot.
    pub fn report(&self) -> Report {
        let bad = self.bad_samples.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = self.waits();
        Report::of(self, &waits, &bad)
    }
}

/// A duration in whole nanoseconds.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
