//! Bodies of answers: where their bytes come from, and how fast they leave.
//!
//! A body without limits leaves in one piece. A paced one leaves in chunks, each at the moment at
//! which its last byte would have arrived; the moments are fixed by the first one, so that late
//! timers don't add up.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream;
use s3s::Body;
use s3s::dto::StreamingBlob;

use crate::server::{Counters, InFlight};
use crate::shaping::Line;

/// Bytes that leave at once: small against what a connection carries in the time that a timer is
/// late (1 ms), large against the cost of a timer.
const CHUNK: u64 = 64 << 10;
/// The same for files without limits on their rate.
const FILE_CHUNK: u64 = 1 << 20;

/// Where bytes come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Memory(Bytes),
    File { file: Arc<File>, start: u64, end: u64 },
}

impl Source {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { start, end, .. } => end - start,
        }
    }

    /// The part in `range`, which lies in it.
    pub(crate) fn slice(self, range: &Range<u64>) -> Self {
        match self {
            Self::Memory(bytes) => {
                Self::Memory(bytes.slice(range.start as usize..range.end as usize))
            }
            Self::File { file, start, .. } => {
                Self::File { file, start: start + range.start, end: start + range.end }
            }
        }
    }

    /// Reads a part. Files are read on the spot: they mostly lie in the page cache.
    pub(crate) fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Self::File { file, start, .. } => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                file.read_exact_at(&mut bytes, start + range.start)?;
                Ok(bytes.into())
            }
        }
    }
}

/// The limits on one body.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) rate: Option<f64>,
    pub(crate) line: Option<Arc<Line>>,
}

impl Pace {
    /// When the bytes up to `sent`, the last `chunk` of which are new, may have arrived.
    fn due(&self, start: Instant, sent: u64, chunk: usize) -> Option<Instant> {
        let paced = self.rate.map(|rate| start + Duration::from_secs_f64(sent as f64 / rate));
        let shared = self.line.as_ref().map(|line| line.reserve(chunk, Instant::now()));
        paced.max(shared)
    }
}

struct State {
    source: Source,
    pace: Pace,
    start: Instant,
    sent: u64,
    chunk: u64,
    counters: Arc<Counters>,
    _in_flight: InFlight,
}

/// The body of an answer.
pub(crate) fn stream(
    source: Source,
    pace: Pace,
    counters: Arc<Counters>,
    in_flight: InFlight,
) -> StreamingBlob {
    let unlimited = pace.rate.is_none() && pace.line.is_none();
    if let (true, Source::Memory(bytes)) = (unlimited, &source) {
        counters.sent(bytes.len());
        return Body::from(bytes.clone()).into();
    }
    let chunk = if unlimited { FILE_CHUNK } else { CHUNK };
    let start = Instant::now();
    let state = State { source, pace, start, sent: 0, chunk, counters, _in_flight: in_flight };
    StreamingBlob::wrap(stream::try_unfold(state, next))
}

async fn next(mut state: State) -> io::Result<Option<(Bytes, State)>> {
    let end = state.source.len().min(state.sent + state.chunk);
    if end == state.sent {
        return Ok(None);
    }
    let bytes = state.source.read(state.sent..end)?;
    state.sent = end;
    if let Some(due) = state.pace.due(state.start, state.sent, bytes.len()) {
        tokio::time::sleep_until(due.into()).await;
    }
    state.counters.sent(bytes.len());
    Ok(Some((bytes, state)))
}
