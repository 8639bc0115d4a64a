//! A recording as a file of Chrome's trace events, in JSON: what torch's profiler writes, and Perfetto
//! and `chrome://tracing` read. Times are in microseconds from the same base as torch's.
//!
//! Threads have the numbers that the system gives them, in the process that they are in, so that both
//! traces show one process when they are merged. What belongs to no thread (the trainer as the loader
//! sees it, batches, requests) has threads of its own, numbered as no thread of Linux is, and those of
//! each loader by themselves. Arrows lead from a request to the image that it brought, and from an image
//! to its batch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;
use serde_json::value::RawValue;

use super::clock::{Clock, Moment};
use super::lanes::lanes;
use super::{Argument, Event, Recording, Stage, Track};

/// Linux numbers threads up to 2^22. From here on they are ours.
pub(super) const FIRST_MADE_UP: u32 = 1 << 22;
/// So many batches are never in the making, nor requests in flight.
const LANES: u32 = 1 << 16;
/// Loaders of a process whose numbers differ; all numbers are less than 2^31.
const LOADERS: u32 = 1 << 13;

/// The names of spans that arrows lead from and to.
pub(super) const REQUEST: &str = "request";
const IMAGE: &str = "image";
/// What is told of a batch.
pub(super) const BATCH: &str = "batch";

/// The threads of a loader that are made up.
#[derive(Clone, Copy)]
struct Threads {
    trainer: u32,
    batches: u32,
    requests: u32,
}

impl Threads {
    fn of(loader: u32) -> Self {
        let trainer = FIRST_MADE_UP + loader % LOADERS * (2 * LANES);
        Self { trainer, batches: trainer + 1, requests: trainer + LANES }
    }
}

/// A span on a thread, in nanoseconds from the base.
struct Slice<'a> {
    thread: u32,
    when: Range<i64>,
    name: String,
    told: Vec<(&'a str, Argument)>,
}

/// Where an arrow begins or ends.
struct Tip {
    thread: u32,
    at: i64,
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: u32,
    tid: u32,
    ts: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// An arrow ends at the span around its tip.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    args: serde_json::Map<String, serde_json::Value>,
}

impl Recording {
    /// Writes it down. `who` is the name of the loader.
    pub fn write(&self, who: &str, out: &mut dyn Write) -> io::Result<()> {
        let end = self.end.unwrap_or_else(Moment::now);
        let clock = Clock::between(self.begin, end);
        // What came later is not known.
        let last = self.full.unwrap_or(end.instant);
        let all = clock.at(self.begin.instant)..clock.at(last);
        let (lives, on_threads) = (self.lives(&clock, &all), self.slices(&clock));
        let (requests, names) = (self.requests(&clock), self.names(&lives, who));
        let (arrows, made_up) = (arrows(&on_threads, &requests, &lives), self.made_up());
        // Files are merged, and arrows of another one must not end at ours.
        let own = format!("{} {}", std::process::id(), self.begin.wall);
        let own = xxhash_rust::xxh3::xxh3_64(own.as_bytes()) & !u64::from(u32::MAX);

        let mut file = File { out, process: std::process::id(), start: all.start, lines: 0 };
        write!(file.out, "{{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",")?;
        let (steps, dropped) = (self.steps, self.dropped);
        let ours = serde_json::json!({"version": env!("CARGO_PKG_VERSION"), "steps": steps, "dropped": dropped});
        write!(
            file.out,
            "\"baseTimeNanoseconds\":{},\"stoker\":{ours},\"traceEvents\":[",
            clock.base
        )?;
        let last = requests.iter().map(|slice| slice.thread).max();
        file.names(who, &names, made_up, last)?;
        for slice in on_threads.iter().chain(&requests).chain(&lives) {
            file.slice(slice)?;
        }
        for event in &self.events {
            if let Event::Count { count, value, at } = event {
                let args = vec![("value", Argument::Number(*value))];
                // Numbers of one name and process are one, where nothing tells them apart.
                let id = (self.loader > 0).then(|| format!("{:#x}", self.loader));
                file.line("C", count.as_str(), 0, clock.at(*at), |line| {
                    (line.id, line.args) = (id, map(&args));
                })?;
            }
        }
        for (number, (from, to)) in arrows.iter().enumerate() {
            let id = Some(format!("{:#x}", own | number as u64));
            file.line("s", "bytes", from.thread, from.at, |line| line.id.clone_from(&id))?;
            file.line("f", "bytes", to.thread, to.at, |line| {
                (line.id, line.bp) = (id, Some("e"));
            })?;
        }
        if self.dropped > 0 {
            let words = "stoker: no room to record more";
            file.line("i", words, made_up.trainer, all.end, |_| {})?;
        }
        write!(file.out, "\n]}}\n")?;
        file.out.flush()
    }

    fn made_up(&self) -> Threads {
        Threads::of(self.loader)
    }

    /// What happened on threads of the system, and what the trainer did; of a thread the earliest first,
    /// and what holds others before them.
    fn slices(&self, clock: &Clock) -> Vec<Slice<'_>> {
        let slices = self.events.iter().filter_map(|event| {
            let Event::Span { track, name, begin, end, told } = event else { return None };
            let thread = match track {
                Track::Trainer => self.made_up().trainer,
                Track::Thread(number) => *number,
                Track::Request => return None,
            };
            let when = clock.at(*begin)..clock.at(*end);
            Some(Slice { thread, when, name: (*name).to_owned(), told: told.clone() })
        });
        let mut slices: Vec<_> = slices.collect();
        slices.sort_by_key(|slice| (slice.thread, slice.when.start, Reverse(slice.when.end)));
        slices
    }

    /// Requests, on as many lanes as were in flight at once.
    fn requests(&self, clock: &Clock) -> Vec<Slice<'_>> {
        let spans = self.events.iter().filter_map(|event| match event {
            Event::Span { track: Track::Request, name, begin, end, told } => {
                Some((*name, clock.at(*begin)..clock.at(*end), told))
            }
            _ => None,
        });
        let spans: Vec<_> = spans.collect();
        let lanes = lanes(&spans.iter().map(|(_, when, _)| when.clone()).collect::<Vec<_>>());
        let on_lanes = spans.into_iter().zip(lanes);
        let slices = on_lanes.map(|((name, when, told), lane)| Slice {
            thread: self.made_up().requests + lane as u32,
            when,
            name: name.to_owned(),
            told: told.clone(),
        });
        slices.collect()
    }

    /// The lives of batches, and within them what they went through.
    fn lives(&self, clock: &Clock, all: &Range<i64>) -> Vec<Slice<'_>> {
        let (mut open, mut lives) = (BTreeMap::<u64, Vec<(Stage, i64)>>::new(), Vec::new());
        for event in &self.events {
            let Event::Batch { sequence, stage, at } = event else { continue };
            let life = open.entry(*sequence).or_default();
            if life.is_empty() && *stage != Stage::Bytes {
                life.push((before(*stage), all.start));
            }
            // Threads that tell of one batch look at the clock first, and then take turns.
            let latest = life.last().map_or(i64::MIN, |(_, at)| *at);
            life.push((*stage, clock.at(*at).max(latest)));
            if *stage == Stage::Gone {
                lives.extend(open.remove_entry(sequence));
            }
        }
        for (sequence, mut life) in open {
            life.push((Stage::Gone, all.end));
            lives.push((sequence, life));
        }
        let whole = |life: &[(Stage, i64)]| life[0].1..life[life.len() - 1].1;
        let spans: Vec<_> = lives.iter().map(|(_, life)| whole(life)).collect();
        let mut slices = Vec::new();
        for ((sequence, life), lane) in lives.iter().zip(lanes(&spans)) {
            let thread = self.made_up().batches + lane as u32;
            let told = vec![(BATCH, Argument::Number(*sequence))];
            let name = format!("batch {sequence}");
            slices.push(Slice { thread, when: whole(life), name, told: told.clone() });
            for pair in life.windows(2) {
                let (name, when) = (pair[0].0.as_str().to_owned(), pair[0].1..pair[1].1);
                slices.push(Slice { thread, when, name, told: told.clone() });
            }
        }
        slices
    }

    /// The names of threads and lanes of batches.
    fn names(&self, lives: &[Slice<'_>], who: &str) -> BTreeMap<u32, String> {
        let Threads { trainer, batches, .. } = self.made_up();
        let lanes: BTreeSet<u32> = lives.iter().map(|slice| slice.thread).collect();
        let threads = self.threads.iter().map(|(number, name)| (*number, name.clone()));
        let lanes = lanes.into_iter().map(|lane| (lane, format!("batches {}", lane - batches + 1)));
        threads.chain([(trainer, format!("{who}: trainer"))]).chain(lanes).collect()
    }
}

/// What a batch was at before that.
fn before(stage: Stage) -> Stage {
    match stage {
        Stage::Bytes | Stage::Unwanted => Stage::Bytes,
        Stage::Memory => Stage::Unwanted,
        Stage::Fill => Stage::Memory,
        Stage::Ready => Stage::Fill,
        Stage::Gone => Stage::Ready,
    }
}

fn text<'a>(slice: &'a Slice<'_>, name: &str) -> Option<&'a str> {
    slice.told.iter().find_map(|(known, value)| match value {
        Argument::Text(text) if *known == name => Some(text.as_str()),
        _ => None,
    })
}

/// The batch that something is for.
pub(super) fn batch(told: &[(&str, Argument)]) -> Option<u64> {
    told.iter().find_map(|(known, value)| match value {
        Argument::Number(number) if *known == BATCH => Some(*number),
        _ => None,
    })
}

/// Arrows from requests to images and from images to batches. An image that lies in an object of which
/// its batch had several parts read has no request of its own, and none is guessed.
fn arrows(
    on_threads: &[Slice<'_>],
    requests: &[Slice<'_>],
    lives: &[Slice<'_>],
) -> Vec<(Tip, Tip)> {
    let mut brought = BTreeMap::<_, Vec<&Slice<'_>>>::new();
    for request in requests.iter().filter(|slice| slice.name == REQUEST) {
        let key = (batch(&request.told), text(request, "object"));
        brought.entry(key).or_default().push(request);
    }
    let ready = lives.iter().filter(|slice| slice.name == Stage::Ready.as_str());
    let ready: BTreeMap<_, _> = ready.map(|slice| (batch(&slice.told), slice)).collect();
    let mut arrows = Vec::new();
    for slice in on_threads.iter().filter(|slice| slice.name == IMAGE) {
        let (batch, Some(image)) = (batch(&slice.told), text(slice, IMAGE)) else { continue };
        let object = image.split_once(": ").map(|(_, object)| object);
        let requests = brought.get(&(batch, object)).map_or(&[][..], Vec::as_slice);
        let done = requests.iter().filter(|request| request.when.end <= slice.when.start);
        let parts: BTreeSet<_> = requests.iter().map(|request| text(request, "range")).collect();
        // What goes on with a whole object that stopped coming asks for a part of it.
        let is_one = parts.len() == 1 || parts.contains(&None);
        if let Some(request) = done.max_by_key(|request| request.when.end).filter(|_| is_one) {
            arrows.push((last(request), first(slice)));
        }
        // The batch may be told of as ready while the worker still comes out of its last image.
        if let Some(ready) = ready.get(&batch).filter(|ready| slice.when.start <= ready.when.start)
        {
            let from = Tip { at: last(slice).at.min(ready.when.start), ..last(slice) };
            arrows.push((from, first(ready)));
        }
    }
    arrows
}

fn first(slice: &Slice<'_>) -> Tip {
    Tip { thread: slice.thread, at: slice.when.start }
}

/// The last moment that is within it.
fn last(slice: &Slice<'_>) -> Tip {
    Tip { thread: slice.thread, at: (slice.when.end - 1).max(slice.when.start) }
}

fn map(told: &[(&str, Argument)]) -> serde_json::Map<String, serde_json::Value> {
    let value = |argument: &Argument| match argument {
        Argument::Number(number) => (*number).into(),
        Argument::Text(text) => text.as_str().into(),
    };
    told.iter().map(|(name, argument)| ((*name).to_owned(), value(argument))).collect()
}

/// Nanoseconds as microseconds.
fn micros(nanos: i64) -> io::Result<Box<RawValue>> {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    Ok(RawValue::from_string(format!("{sign}{}.{:03}", nanos / 1000, nanos % 1000))?)
}

struct File<'a> {
    out: &'a mut dyn Write,
    process: u32,
    start: i64,
    lines: usize,
}

impl File<'_> {
    fn names(
        &mut self,
        who: &str,
        threads: &BTreeMap<u32, String>,
        Threads { trainer, requests: first_request, .. }: Threads,
        last_request: Option<u32>,
    ) -> io::Result<()> {
        self.name("process_name", 0, "name", who.into())?;
        let requests = (first_request..=last_request.unwrap_or(0))
            .map(|lane| (lane, format!("requests {}", lane - first_request + 1)));
        for (thread, name) in threads.clone().into_iter().chain(requests) {
            self.name("thread_name", thread, "name", name.into())?;
            // The trainer goes before torch's threads, which are sorted by their numbers, all else after.
            let place = if thread == trainer { -1 } else { i64::from(FIRST_MADE_UP + thread) };
            self.name("thread_sort_index", thread, "sort_index", place.into())?;
        }
        Ok(())
    }

    fn name(
        &mut self,
        what: &str,
        thread: u32,
        key: &str,
        value: serde_json::Value,
    ) -> io::Result<()> {
        self.line("M", what, thread, self.start, |line| {
            line.cat = None;
            line.args.insert(key.to_owned(), value);
        })
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let duration = micros(slice.when.end - slice.when.start)?;
        self.line("X", &slice.name, slice.thread, slice.when.start, |line| {
            (line.dur, line.args) = (Some(duration), map(&slice.told));
        })
    }

    fn line(
        &mut self,
        kind: &'static str,
        name: &str,
        thread: u32,
        at: i64,
        more: impl FnOnce(&mut Line<'_>),
    ) -> io::Result<()> {
        let (ts, args) = (micros(at)?, serde_json::Map::new());
        let (pid, tid, cat) = (self.process, thread, Some("stoker"));
        let mut line =
            Line { ph: kind, name, cat, pid, tid, ts, dur: None, id: None, bp: None, args };
        more(&mut line);
        self.out.write_all(if self.lines == 0 { b"\n" } else { b",\n" })?;
        self.lines += 1;
        serde_json::to_writer(&mut *self.out, &line)?;
        Ok(())
    }
}
