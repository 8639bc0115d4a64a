//! A whole object from front to back: large ranges, one of them ahead.
//!
//! All ranges are read of the version that was found at the start. Memory is bounded by two ranges.
//! What nobody wants may be skipped: a long stretch is then not asked for. Ranges begin small after
//! that, and double as long as all of them is wanted.

use std::future::ready;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::{Buf, Bytes};

use crate::error::{Error, FetchErrorKind, Result};
use crate::sample::{Extent, Location, Scheme};

use super::read::read;
use super::runtime::Aborting;
use super::{Fetcher, ObjectInfo};

/// Bytes of one range: S3's advice is 8 to 16 MiB.
const RANGE: u64 = 8 << 20;
/// Bytes of the first range behind a stretch that was skipped: some headers and a short text.
const SMALL: u64 = 64 << 10;
/// Shorter stretches of remote objects are read and thrown away, since that costs less than the
/// time to a new answer. On a disk a jump costs nothing.
const READ_THROUGH: u64 = 1 << 20;

/// Reads an object from front to back.
#[derive(Debug)]
pub struct Reader {
    fetcher: Fetcher,
    object: Arc<Location>,
    info: ObjectInfo,
    /// Where the next range starts.
    next: u64,
    /// Its length.
    range: u64,
    current: Bytes,
    ahead: Option<Ahead>,
}

#[derive(Debug)]
struct Ahead {
    bytes: u64,
    result: Receiver<Result<Bytes>>,
    _task: Aborting<()>,
}

impl Reader {
    pub(super) fn open(fetcher: &Fetcher, object: &Arc<Location>) -> Result<Self> {
        let info = fetcher.stat_blocking(object)?;
        let (fetcher, object) = (fetcher.clone(), Arc::clone(object));
        let current = Bytes::new();
        Ok(Self { fetcher, object, info, next: 0, range: RANGE, current, ahead: None })
    }

    /// Goes on behind that many bytes; they may lie beyond the end, where nothing more is read.
    pub fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        loop {
            let here = left.min(self.current.len() as u64);
            self.current.advance(here as usize);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            let threshold = if self.object.scheme == Scheme::File { 0 } else { READ_THROUGH };
            let coming = self.ahead.as_ref().map_or(0, |ahead| ahead.bytes);
            if left > threshold.max(coming) {
                self.ahead = None;
                self.next = (self.next - coming).saturating_add(left);
                self.range = SMALL;
                return Ok(());
            }
            if !self.advance().map_err(as_io)? {
                return Ok(());
            }
        }
    }

    /// Starts the next range, if there is one.
    fn start(&mut self) -> Result<Option<Ahead>> {
        let range = self.next..self.info.size.min(self.next.saturating_add(self.range));
        if range.is_empty() {
            return Ok(None);
        }
        self.next = range.end;
        self.range = (self.range * 2).min(RANGE);
        let bytes = range.end - range.start;
        let (sender, result) = sync_channel(1);
        let task = self.read_range(range);
        let handle = self.fetcher.room.runtime.handle()?;
        let task = handle.spawn(async move {
            // The receiver may be gone: the reader was dropped.
            drop(sender.send(task.await));
        });
        Ok(Some(Ahead { bytes, result, _task: Aborting(task) }))
    }

    fn read_range(&self, range: Range<u64>) -> impl Future<Output = Result<Bytes>> + Send + use<> {
        let extent = Extent { object: Arc::clone(&self.object), range: Some(range) };
        let (fetcher, version) = (self.fetcher.clone(), self.info.version.clone());
        async move {
            let admit = |_| ready(Ok(()));
            let read = read(&fetcher.room, fetcher.urgency, &extent, version, admit);
            read.await.map(|(bytes, _)| bytes)
        }
    }

    fn advance(&mut self) -> Result<bool> {
        let ready = match self.ahead.take() {
            Some(ahead) => Some(ahead),
            None => self.start()?,
        };
        let Some(ready) = ready else { return Ok(false) };
        // Behind a jump the next one may come soon.
        let ahead = if self.range > 2 * SMALL { self.start()? } else { None };
        self.current = ready.result.recv().unwrap_or(Err(Error::Stopped))?;
        self.ahead = ahead;
        Ok(true)
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || (self.current.is_empty() && !self.advance().map_err(as_io)?) {
            return Ok(0);
        }
        let count = buffer.len().min(self.current.len());
        buffer[..count].copy_from_slice(&self.current[..count]);
        self.current.advance(count);
        Ok(count)
    }
}

fn as_io(error: Error) -> io::Error {
    let kind = match &error {
        Error::Fetch(fetch) if fetch.kind == FetchErrorKind::NotFound => io::ErrorKind::NotFound,
        Error::Fetch(fetch) if fetch.kind == FetchErrorKind::Denied => {
            io::ErrorKind::PermissionDenied
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
