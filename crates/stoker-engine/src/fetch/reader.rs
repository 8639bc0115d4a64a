//! A whole object from front to back: large ranges, one of them ahead.
//!
//! All ranges are read of the version that was found at the start. Memory is bounded by two ranges.

use std::future::ready;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::{Buf, Bytes};

use crate::error::{Error, FetchErrorKind, Result};
use crate::sample::{Extent, Location};

use super::read::read;
use super::runtime::Aborting;
use super::{Fetcher, ObjectInfo};

/// Bytes of one range: S3's advice is 8 to 16 MiB.
const RANGE: u64 = 8 << 20;

pub(super) struct Reader {
    fetcher: Fetcher,
    object: Arc<Location>,
    info: ObjectInfo,
    /// Where the next range starts.
    next: u64,
    current: Bytes,
    ahead: Option<Ahead>,
}

struct Ahead {
    result: Receiver<Result<Bytes>>,
    _task: Aborting<()>,
}

impl Reader {
    pub(super) fn open(fetcher: &Fetcher, object: &Arc<Location>) -> Result<Self> {
        let info = fetcher.stat_blocking(object)?;
        let (fetcher, object) = (fetcher.clone(), Arc::clone(object));
        Ok(Self { fetcher, object, info, next: 0, current: Bytes::new(), ahead: None })
    }

    /// Starts the next range, if there is one.
    fn start(&mut self) -> Result<Option<Ahead>> {
        let range = self.next..self.info.size.min(self.next + RANGE);
        if range.is_empty() {
            return Ok(None);
        }
        self.next = range.end;
        let (sender, result) = sync_channel(1);
        let task = self.range(range);
        let handle = self.fetcher.room.runtime.handle()?;
        let task = handle.spawn(async move {
            // The receiver may be gone: the reader was dropped.
            drop(sender.send(task.await));
        });
        Ok(Some(Ahead { result, _task: Aborting(task) }))
    }

    fn range(&self, range: Range<u64>) -> impl Future<Output = Result<Bytes>> + Send + use<> {
        let extent = Extent { object: Arc::clone(&self.object), range: Some(range) };
        let (fetcher, version) = (self.fetcher.clone(), self.info.version.clone());
        async move { read(&fetcher.room, &extent, version, |_| ready(Ok(()))).await }
    }

    fn advance(&mut self) -> Result<bool> {
        let ready = match self.ahead.take() {
            Some(ahead) => Some(ahead),
            None => self.start()?,
        };
        let Some(ready) = ready else { return Ok(false) };
        let ahead = self.start()?;
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
