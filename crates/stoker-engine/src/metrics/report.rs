//! A snapshot of the metrics: numbers for machines (serde), words for people (`Display`).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::waits::Span;
use super::work::process_time;
use super::{
    Advice, BadSamples, FetchReport, HistogramReport, Metrics, Plots, Room, Stages, Waits,
};
use crate::error::{Bytes, Outcome};

/// How many bad samples a person is shown.
const SHOWN: usize = 5;

/// A snapshot of what a loader has done. Times are in seconds, sizes in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// How long the trainer was blocked.
    pub wait: WaitReport,
    /// Why it was, and what to do about it; nothing while too few batches were handed over.
    #[serde(default)]
    pub advice: Option<Advice>,
    /// What each part of the loader did of late, and waited for; nothing before the second batch, or where
    /// batches are made elsewhere.
    #[serde(default)]
    pub stages: Option<Stages>,
    /// What each room did.
    pub rooms: Vec<RoomReport>,
    /// Requests.
    pub fetch: FetchReport,
    /// Memory.
    pub memory: MemoryReport,
    /// Samples delivered.
    pub samples: u64,
    /// Images delivered.
    pub images: u64,
    /// Tokens delivered, padding not counted.
    pub tokens: u64,
    /// Tokens of padding and of neutral images in delivered batches.
    pub padding: u64,
    /// Share of `pack.max-tokens` that tokens fill; nothing where batches go by `pack.batch-size`.
    pub packing: Option<f64>,
    /// Neutral images delivered.
    pub neutral_images: u64,
    /// Bad samples that were replaced by another row.
    pub replaced: u64,
    /// Bad samples that were neutralised.
    pub neutralised: u64,
    /// Bad samples that were left out of their batch, with nothing in their place.
    #[serde(default)]
    pub left_out: u64,
    /// What was wrong with the latest bad samples (100 at most), oldest first.
    pub bad_samples: Vec<String>,
    /// How many bad samples there were of each kind.
    #[serde(default)]
    pub flaws: Vec<FlawReport>,
    /// Worker threads.
    pub workers: u64,
    /// Seconds that they worked, added up.
    #[serde(default)]
    pub worker_seconds: f64,
    /// Seconds that they had work and no core, added up when a task is done; 0 where the system does not tell.
    #[serde(default)]
    pub worker_delay_seconds: f64,
    /// Processor time of the whole process; 0 where the system is not asked.
    #[serde(default)]
    pub process_seconds: f64,
    /// Waits for single batches, the first one apart.
    #[serde(default)]
    pub wait_histogram: HistogramReport,
    /// Times from a request to the headers of its good answer.
    #[serde(default)]
    pub first_byte_histogram: HistogramReport,
    /// How all of it went along the run, for plots.
    #[serde(default)]
    pub plots: Plots,
}

/// How long the trainer was blocked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitReport {
    /// Batches after the first.
    pub batches: u64,
    /// Seconds until the first batch.
    pub first_batch_seconds: Option<f64>,
    /// Seconds blocked in `next()`, first batch apart.
    pub blocked_seconds: f64,
    /// Seconds between the first batch and the last.
    pub wall_seconds: f64,
    /// Share of the time that the trainer was blocked, first batch apart.
    pub ratio: Option<f64>,
    /// The same over the last batches (1024 at most).
    pub window_ratio: Option<f64>,
    /// Median wait for one batch in the window, in seconds.
    pub p50_seconds: Option<f64>,
    /// 95th percentile of it.
    pub p95_seconds: Option<f64>,
    /// 99th percentile of it.
    pub p99_seconds: Option<f64>,
    /// Wait for each batch in the window, in seconds, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window_seconds: Vec<f64>,
}

/// What one room did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoomReport {
    /// Which.
    pub room: Room,
    /// Seconds that threads (in `fetch`: requests) spent in it, added up.
    pub busy_seconds: f64,
    /// Things done.
    pub items: u64,
    /// Bytes that came out of it.
    pub bytes: u64,
    /// Threads (in `fetch`: requests) that were in it in the mean of the window.
    #[serde(default)]
    pub window_busy: f64,
    /// Things done in a second of the window.
    #[serde(default)]
    pub window_items_per_second: f64,
    /// Bytes that came out of it in a second of the window.
    #[serde(default)]
    pub window_bytes_per_second: f64,
}

/// Bad samples of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlawReport {
    /// Where it was found that they are bad.
    pub room: Room,
    /// The flaw's stable short name.
    pub code: String,
    /// What became of them.
    pub outcome: Outcome,
    /// How many.
    pub samples: u64,
}

/// Memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Compressed bytes held now.
    pub compressed_bytes: u64,
    /// Most compressed bytes held.
    pub peak_compressed_bytes: u64,
    /// Bytes of arenas mapped now.
    pub arena_bytes: u64,
    /// Most bytes of arenas mapped.
    pub peak_arena_bytes: u64,
    /// Bytes of arenas that hold a batch now.
    pub leased_bytes: u64,
}

impl Report {
    pub(super) fn of(metrics: &Metrics, waits: &Waits, bad: &BadSamples) -> Self {
        let span = waits.span().unwrap_or_default();
        let worked = metrics.occupancy.so_far().working;
        let rooms = Room::ALL.map(|room| RoomReport::of(metrics, room, &span));
        let flaws = bad.counts.iter().map(|((room, code, outcome), samples)| FlawReport {
            room: *room,
            code: code.clone(),
            outcome: *outcome,
            samples: *samples,
        });
        Self {
            wait: WaitReport::of(waits),
            advice: Advice::of(metrics, waits),
            stages: Stages::of(metrics, waits),
            rooms: rooms.into_iter().filter(|room| room.items > 0).collect(),
            fetch: FetchReport::of(&metrics.fetch),
            memory: MemoryReport {
                compressed_bytes: metrics.compressed_bytes.get(),
                peak_compressed_bytes: metrics.compressed_bytes.peak(),
                arena_bytes: metrics.arena_bytes.get(),
                peak_arena_bytes: metrics.arena_bytes.peak(),
                leased_bytes: metrics.leased_bytes.get(),
            },
            samples: metrics.samples.get(),
            images: metrics.images.get(),
            tokens: metrics.tokens.get(),
            padding: metrics.padding.get(),
            packing: share(metrics.tokens.get(), metrics.room.get()),
            neutral_images: metrics.neutral_images.get(),
            replaced: metrics.replaced.get(),
            neutralised: metrics.neutralised.get(),
            left_out: metrics.left_out.get(),
            bad_samples: bad.latest.iter().cloned().collect(),
            flaws: flaws.collect(),
            workers: metrics.workers.get(),
            worker_seconds: worked.as_secs_f64(),
            worker_delay_seconds: Duration::from_nanos(metrics.cores.delayed_nanos.get())
                .as_secs_f64(),
            process_seconds: process_time().as_secs_f64(),
            wait_histogram: metrics.wait_histogram.report(),
            first_byte_histogram: metrics.fetch.first_bytes.report(),
            plots: Plots::of(metrics),
        }
    }
}

impl RoomReport {
    fn of(metrics: &Metrics, room: Room, span: &Span) -> Self {
        let (meter, lately) = (metrics.room(room), span.work.room(room));
        let seconds = span.wall.as_secs_f64();
        let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        Self {
            room,
            busy_seconds: Duration::from_nanos(meter.busy_nanos.get()).as_secs_f64(),
            items: meter.items.get(),
            bytes: meter.bytes.get(),
            window_busy: rate(lately.busy.as_secs_f64()),
            window_items_per_second: rate(lately.items as f64),
            window_bytes_per_second: rate(lately.bytes as f64),
        }
    }
}

impl WaitReport {
    fn of(waits: &Waits) -> Self {
        let window: Vec<f64> = waits.window.iter().map(|w| w.wait.blocked.as_secs_f64()).collect();
        let mut sorted = window.clone();
        sorted.sort_by(f64::total_cmp);
        let blocked = waits.window.iter().map(|w| w.wait.blocked).sum();
        let wall = waits.window.iter().map(|w| w.wait.wall).sum();
        Self {
            batches: waits.total.batches,
            first_batch_seconds: waits.first.map(|w| w.blocked.as_secs_f64()),
            blocked_seconds: waits.total.blocked.as_secs_f64(),
            wall_seconds: waits.total.wall.as_secs_f64(),
            ratio: Waits::ratio(waits.total.blocked, waits.total.wall),
            window_ratio: Waits::ratio(blocked, wall),
            p50_seconds: percentile(&sorted, 0.50),
            p95_seconds: percentile(&sorted, 0.95),
            p99_seconds: percentile(&sorted, 0.99),
            window_seconds: window,
        }
    }
}

impl Report {
    /// All that was done, and what of it in the window.
    fn write_rooms(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lately = self.rooms.iter().any(|room| room.window_busy > 0.0);
        write!(f, "{:<8} {:>10} {:>10} {:>12}", "room", "busy s", "items", "bytes")?;
        if lately {
            write!(f, " {:>9} {:>10} {:>14}", "busy now", "items/s", "bytes/s")?;
        }
        writeln!(f)?;
        for room in &self.rooms {
            let bytes = Bytes(room.bytes).to_string();
            let RoomReport { room: name, busy_seconds, items, .. } = room;
            write!(f, "{name:<8} {busy_seconds:>10.2} {items:>10} {bytes:>12}")?;
            if lately {
                let rate = Bytes(room.window_bytes_per_second as u64);
                let (busy, items) = (room.window_busy, room.window_items_per_second);
                write!(f, " {busy:>9.2} {items:>10.1} {:>14}", format!("{rate}/s"))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A part of a whole; nothing of nothing.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Nearest-rank percentile of a sorted list.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = &self.wait;
        match wait.ratio {
            Some(ratio) => writeln!(
                f,
                "the trainer waited {:.1} % of {:.2} s ({:.1} % in the last {} steps), and {:.2} s for \
                 the first batch",
                ratio * 100.0,
                wait.wall_seconds,
                wait.window_ratio.unwrap_or(ratio) * 100.0,
                wait.window_seconds.len(),
                wait.first_batch_seconds.unwrap_or_default(),
            )?,
            None => writeln!(f, "fewer than two batches so far: no wait to report")?,
        }
        if let (Some(p50), Some(p95), Some(p99)) =
            (wait.p50_seconds, wait.p95_seconds, wait.p99_seconds)
        {
            writeln!(
                f,
                "wait per batch: p50 {:.1} ms, p95 {:.1} ms, p99 {:.1} ms",
                p50 * 1e3,
                p95 * 1e3,
                p99 * 1e3
            )?;
        }
        if let Some(advice) = &self.advice {
            writeln!(f, "{}", advice.words)?;
        }
        write!(
            f,
            "delivered: {} samples, {} images, {} tokens; bad samples: {} replaced, {} neutralised",
            self.samples, self.images, self.tokens, self.replaced, self.neutralised
        )?;
        match self.left_out {
            0 => writeln!(f)?,
            left_out => writeln!(f, ", {left_out} left out")?,
        }
        for FlawReport { room, code, outcome, samples } in &self.flaws {
            writeln!(f, "  {samples} {} as {room}/{code}", outcome.as_str())?;
        }
        for bad in self.bad_samples.iter().rev().take(SHOWN) {
            writeln!(f, "  {bad}")?;
        }
        if let Some(padding) = share(self.padding, self.tokens + self.padding) {
            write!(f, "batches: {:.1} % of their tokens are padding", padding * 100.0)?;
            if let Some(packing) = self.packing {
                write!(f, ", {:.1} % of pack.max-tokens is used", packing * 100.0)?;
            }
            match self.neutral_images {
                0 => writeln!(f)?,
                images => writeln!(f, ", {images} neutral images")?,
            }
        }
        write!(f, "{}", self.fetch)?;
        writeln!(
            f,
            "memory: compressed {} at most, arenas {} at most, {} worker threads",
            Bytes(self.memory.peak_compressed_bytes),
            Bytes(self.memory.peak_arena_bytes),
            self.workers
        )?;
        if let Some(stages) = &self.stages {
            write!(f, "{stages}")?;
        }
        self.write_rooms(f)
    }
}
