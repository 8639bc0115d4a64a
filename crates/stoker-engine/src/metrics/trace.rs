//! Recording what happens and when, for some steps: the material of a trace ([`chrome`]).
//!
//! Off, a [`Tracer`] costs whoever asks one relaxed load. On, every span is an entry in one list behind
//! a lock that is held for a push: some tens of entries for an image, which takes milliseconds. The list
//! is bounded in bytes. When it is full, what was recorded first stays, since a trace is read from its
//! beginning, and the rest is counted.
//!
//! Spans are recorded when they end, on the thread that they happened on. Batches live on no thread, so
//! of them the moments are recorded in which they go on to something else; spans are made of those when
//! all is over, so that what was begun before the recording, or goes on after it, is in it too.

mod chrome;
mod clock;
mod lanes;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::Stopwatch;
use clock::Moment;
pub use spans::Span;
use spans::{this_name, this_thread};

/// Bytes of entries that are kept: some hundred thousand of them.
const MOST_BYTES: usize = 64 << 20;

/// What is told of a span beside its name.
pub type Arguments = Vec<(&'static str, Argument)>;

/// One thing that is told of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A count, or bytes.
    Number(u64),
    /// A name: of an object, an image or a line.
    Text(String),
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Argument {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Where a span happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    /// What the trainer's thread does, as far as a loader sees it.
    Trainer,
    /// A thread of the system.
    Thread(u32),
    /// A request of the fetch room, of which many are in flight on one thread.
    Request,
}

/// What a batch goes on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its samples are brought in and measured.
    Bytes,
    /// They are there; it waits to be wanted.
    Unwanted,
    /// It waits for memory.
    Memory,
    /// It is filled.
    Fill,
    /// It waits for the trainer.
    Ready,
    /// It is with the trainer, or was given up.
    Gone,
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bring in and measure",
            Self::Unwanted => "wait to be wanted",
            Self::Memory => "wait for memory",
            Self::Fill => "fill",
            Self::Ready => "ready",
            Self::Gone => "gone",
        }
    }
}

/// A number over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// Batches that are finished and wait for the trainer.
    Ready,
    /// Requests in flight.
    Requests,
    /// Compressed bytes that are waited for or wait to be decoded.
    CompressedBytes,
}

impl Count {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready batches",
            Self::Requests => "requests in flight",
            Self::CompressedBytes => "compressed bytes",
        }
    }
}

#[derive(Debug)]
enum Event {
    Span { track: Track, name: &'static str, begin: Instant, end: Instant, told: Arguments },
    Batch { sequence: u64, stage: Stage, at: Instant },
    Count { count: Count, value: u64, at: Instant },
}

impl Event {
    /// Memory that it takes.
    fn bytes(&self) -> usize {
        let Self::Span { told, .. } = self else { return size_of::<Self>() };
        let text = told.iter().map(|(_, argument)| match argument {
            Argument::Text(text) => text.capacity(),
            Argument::Number(_) => 0,
        });
        size_of::<Self>() + told.capacity() * size_of::<(&str, Argument)>() + text.sum::<usize>()
    }
}

/// What was recorded.
#[derive(Debug)]
pub struct Recording {
    /// Which loader's of this process.
    loader: u32,
    /// Steps that it is to have; without a number it goes on until it is stopped.
    limit: Option<u64>,
    steps: u64,
    begin: Moment,
    end: Option<Moment>,
    events: Vec<Event>,
    threads: BTreeMap<u32, String>,
    bytes: usize,
    most_bytes: usize,
    /// Since when there is no room for more.
    full: Option<Instant>,
    dropped: u64,
}

impl Recording {
    fn new(loader: u32, steps: Option<u64>, most_bytes: usize) -> Self {
        Self {
            loader,
            limit: steps,
            steps: 0,
            begin: Moment::now(),
            end: None,
            events: Vec::new(),
            threads: BTreeMap::new(),
            bytes: 0,
            most_bytes,
            full: None,
            dropped: 0,
        }
    }

    fn push(&mut self, event: Event) {
        let bytes = event.bytes();
        if self.bytes + bytes > self.most_bytes {
            self.dropped += 1;
            self.full.get_or_insert_with(Instant::now);
            // Nothing smaller slips in behind it: what is there is all there was until then.
            self.most_bytes = self.bytes;
            return;
        }
        self.bytes += bytes;
        if let Event::Span { track: Track::Thread(thread), .. } = &event {
            self.threads.entry(*thread).or_insert_with(this_name);
        }
        self.events.push(event);
    }

    /// Batches that were handed over meanwhile.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Entries that did not fit in.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Records, when it is told to.
#[derive(Debug, Default)]
pub struct Tracer {
    /// The place among the process' loaders of which there are traces.
    loader: OnceLock<u32>,
    on: AtomicBool,
    recording: Mutex<Option<Recording>>,
    ended: Condvar,
}

impl Tracer {
    /// Whether anything is recorded: a relaxed load.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Begins to record so many steps, or until [`Self::finish`]. `false` if it does so already, or what
    /// was recorded before has not been [taken](Self::take).
    pub fn start(&self, steps: Option<u64>) -> bool {
        self.start_within(steps, MOST_BYTES)
    }

    fn start_within(&self, steps: Option<u64>, most_bytes: usize) -> bool {
        static LOADERS: AtomicU32 = AtomicU32::new(0);
        let mut recording = self.recording();
        if recording.is_some() {
            return false;
        }
        let loader = self.loader.get_or_init(|| LOADERS.fetch_add(1, Ordering::Relaxed));
        *recording = Some(Recording::new(*loader, steps, most_bytes));
        self.on.store(true, Ordering::Relaxed);
        true
    }

    /// Records nothing more.
    pub fn finish(&self) {
        self.finish_locked(&mut self.recording());
    }

    fn finish_locked(&self, recording: &mut Option<Recording>) {
        self.on.store(false, Ordering::Relaxed);
        if let Some(recording) = recording {
            recording.end.get_or_insert_with(Moment::now);
        }
        self.ended.notify_all();
    }

    /// Waits until nothing more is recorded, and gives what was; `None` if nothing is recorded.
    pub fn take(&self) -> Option<Recording> {
        let recording = self.recording();
        let goes_on = |recording: &mut Option<Recording>| {
            recording.as_ref().is_some_and(|recording| recording.end.is_none())
        };
        let ended = self.ended.wait_while(recording, goes_on);
        ended.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What this thread does until the guard is dropped; `told` is asked only if it is recorded. Where it
    /// tells a batch, that is told of each such guard within it too.
    pub fn span(&self, name: &'static str, told: impl FnOnce() -> Arguments) -> Span<'_> {
        Span::begin(self, name, told)
    }

    /// What this thread did since then.
    pub fn since(&self, name: &'static str, begin: Stopwatch) {
        if let (true, Some(begin)) = (self.is_on(), begin.0) {
            self.put(this_thread(), name, begin..Instant::now(), Arguments::new());
        }
    }

    /// A request that was in flight since then.
    pub fn request(&self, begin: Instant, told: Arguments) {
        self.put(Track::Request, chrome::REQUEST, begin..Instant::now(), told);
    }

    /// A batch goes on to something else.
    pub fn batch(&self, sequence: u64, stage: Stage) {
        if self.is_on() {
            self.push(Event::Batch { sequence, stage, at: Instant::now() });
        }
    }

    /// A number has another value now.
    pub fn count(&self, count: Count, value: impl FnOnce() -> u64) {
        if self.is_on() {
            self.push(Event::Count { count, value: value(), at: Instant::now() });
        }
    }

    /// A batch was handed over: since when the trainer was blocked for it, and since when it had had the
    /// one before. Ends the recording after the last step that was asked for.
    pub fn step(&self, sequence: u64, had: Option<Instant>, asked: Instant, now: Instant) {
        if !self.is_on() {
            return;
        }
        let told = || vec![("batch", sequence.into())];
        if let Some(had) = had {
            self.put(Track::Trainer, "trainer has a batch", had..asked, Arguments::new());
        }
        self.put(Track::Trainer, "trainer blocked", asked..now, told());
        let mut recording = self.recording();
        let Some(current) = &mut *recording else { return };
        if current.end.is_some() {
            return;
        }
        current.steps += 1;
        if current.limit.is_some_and(|limit| limit <= current.steps) {
            self.finish_locked(&mut recording);
        }
    }

    fn put(
        &self,
        track: Track,
        name: &'static str,
        when: std::ops::Range<Instant>,
        told: Arguments,
    ) {
        self.push(Event::Span { track, name, begin: when.start, end: when.end, told });
    }

    fn push(&self, event: Event) {
        let mut recording = self.recording();
        if let Some(recording) = recording.as_mut().filter(|recording| recording.end.is_none()) {
            recording.push(event);
        }
    }

    fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
