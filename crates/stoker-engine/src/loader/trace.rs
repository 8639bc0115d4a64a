//! A trace of some steps, in a file.
//!
//! The file is made when the recording begins, so that a path that is no good is told then, and written
//! by a thread of its own when it ends, so that no step waits for it. A [`Trace`] that is dropped goes
//! on: the loader has it too, and ends it and waits for its file when it is closed.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::Error;
use crate::metrics::{Metrics, Recording};
use crate::sample::Rank;

const THREAD: &str = "stoker-trace";

/// A trace that is recorded or was written: a file of Chrome's trace events as torch's profiler writes
/// them, compressed where its name ends in `.gz`. Clones are the same trace.
#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    metrics: Arc<Metrics>,
    path: PathBuf,
    writing: Mutex<Writing>,
}

enum Writing {
    /// Its recording is in the tracer until this thread has written it, and no other is begun.
    Goes(JoinHandle<io::Result<Written>>),
    Ended(Result<Written, TraceError>),
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Batches that were handed over meanwhile.
    pub steps: u64,
    /// Events that were left out, as there was no memory for more.
    pub dropped: u64,
}

/// Why there is no trace.
#[derive(Clone, Debug)]
pub enum TraceError {
    /// One is being recorded or written already.
    Busy,
    /// Nothing is to be recorded.
    NoSteps,
    /// The file can't be written: what the system says, and of which kind it is.
    File(PathBuf, io::ErrorKind, String),
    /// The machine refuses the thread that writes.
    Machine(Error),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(
                f,
                "this loader records a trace already: stop that one before the next is begun"
            ),
            Self::NoSteps => write!(f, "a trace has 1 step or more"),
            Self::File(path, _, reason) => {
                let path = path.display();
                write!(f, "the trace can't be written: {reason}: {path}; give another file")
            }
            Self::Machine(error) => write!(f, "{error}"),
        }
    }
}

impl Trace {
    pub(super) fn start(
        metrics: Arc<Metrics>,
        rank: Rank,
        path: &Path,
        steps: Option<u64>,
    ) -> Result<Self, TraceError> {
        if steps == Some(0) {
            return Err(TraceError::NoSteps);
        }
        let tracer = &metrics.trace;
        if !tracer.start(steps) {
            return Err(TraceError::Busy);
        }
        let give_up = |error| {
            tracer.finish();
            drop(tracer.take());
            error
        };
        let file = File::create(path).map_err(|error| give_up(of_file(path, &error)))?;
        let is_packed = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gz"));
        let writer = Arc::clone(&metrics);
        let write = move || {
            let Some(recording) = writer.trace.take() else {
                return Err(io::Error::other("nothing was recorded"));
            };
            written(&recording, rank, file, is_packed)?;
            Ok(Written { steps: recording.steps(), dropped: recording.dropped() })
        };
        let thread = Builder::new()
            .name(THREAD.to_owned())
            .spawn(write)
            .map_err(|error| give_up(TraceError::Machine(Error::no_thread(THREAD, &error))))?;
        let (path, writing) = (path.to_owned(), Mutex::new(Writing::Goes(thread)));
        Ok(Self(Arc::new(Inner { metrics, path, writing })))
    }

    /// Whether the file is written, or will never be.
    pub fn ended(&self) -> bool {
        let writing = match self.0.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody waits for it.
            Err(TryLockError::WouldBlock) => return false,
        };
        match &*writing {
            Writing::Goes(thread) => thread.is_finished(),
            Writing::Ended(_) => true,
        }
    }

    /// Ends the recording, if it goes on, and waits until the file is written.
    pub fn stop(&self) -> Result<Written, TraceError> {
        let mut writing = self.writing();
        let nothing = Writing::Ended(Err(TraceError::Busy));
        let ended = match std::mem::replace(&mut *writing, nothing) {
            Writing::Goes(thread) => {
                self.0.metrics.trace.finish();
                let written = thread.join();
                let written = written.unwrap_or_else(|_| Err(io::Error::other("writing panicked")));
                written.map_err(|error| of_file(&self.0.path, &error))
            }
            Writing::Ended(ended) => ended,
        };
        *writing = Writing::Ended(ended.clone());
        ended
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.0.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_file(path: &Path, error: &io::Error) -> TraceError {
    TraceError::File(path.to_owned(), error.kind(), error.to_string())
}

fn written(recording: &Recording, rank: Rank, file: File, is_packed: bool) -> io::Result<()> {
    let who = format!("stoker, rank {} of {}", rank.index, rank.of);
    let mut out = BufWriter::new(file);
    if is_packed {
        let mut packed = GzEncoder::new(&mut out, Compression::fast());
        recording.write(&who, &mut packed)?;
        packed.finish()?;
    } else {
        recording.write(&who, &mut out)?;
    }
    out.flush()
}
