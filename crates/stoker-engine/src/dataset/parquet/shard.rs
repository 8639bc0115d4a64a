//! A Parquet file as the reader of Arrow wants it: any bytes at any time.
//!
//! The reader asks for a page's header, then for its content, and goes from column to column in
//! between. So a few windows are kept, each of what comes next in one column chunk, and no window
//! reaches into a chunk that nobody wants. Pages that are larger than a window are read by
//! themselves.
//!
//! What a page's header claims is looked at here as it passes, and a page that claims too much is never
//! given to the reader. The reader makes text of all errors, so the first one is kept here as it was.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, buf};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::build::{DAMAGED, Stop};
use super::delta::unfolded;
use super::page::{Chunk, LARGEST, MOST_VALUES, Page, Refused, UNTOLD};
use crate::dataset::Ranges;
use crate::error::Bytes as Size;

/// Bytes of one window.
const WINDOW: u64 = 4 << 20;
/// Windows that are kept: a row has hardly more large columns.
const KEPT: usize = 4;
/// What is read where no chunk is known.
const LITTLE: u64 = 64 << 10;
const PAGES: &str = "write the file anew with smaller pages and row groups";

/// A file; clones share its windows.
#[derive(Clone)]
pub(super) struct Shard {
    inner: Arc<Inner>,
}

struct Inner {
    ranges: Ranges,
    size: u64,
    /// The column chunks that are wanted, by their begin.
    chunks: Vec<Chunk>,
    windows: Mutex<VecDeque<(u64, Bytes)>>,
    /// What was read of the row group, by where its chunks begin.
    read: Mutex<BTreeMap<u64, Read>>,
    /// Bytes of the batch that no page has, as its values repeat each other.
    repeated: AtomicU64,
    stopped: Mutex<Option<Stop>>,
}

/// How far a chunk was read.
#[derive(Clone, Copy)]
struct Read {
    /// Its last page, and where that begins behind its header.
    page: Page,
    body: u64,
    /// Its values up to then, and its bytes when they are unpacked.
    values: u64,
    unpacked: u64,
    /// Those of them that nobody told of.
    untold: u64,
}

impl Shard {
    pub(super) fn new(ranges: Ranges, size: u64, mut chunks: Vec<Chunk>) -> Self {
        chunks.sort_by_key(|chunk| chunk.begin);
        let (windows, read, repeated, stopped) = Default::default();
        Self { inner: Arc::new(Inner { ranges, size, chunks, windows, read, repeated, stopped }) }
    }

    /// Why reading ended, where it was not the reader that ended it.
    pub(super) fn stopped(&self) -> Option<Stop> {
        locked(&self.inner.stopped).take()
    }

    /// From now on, what is read is held in memory together.
    pub(super) fn begin_batch(&self) {
        self.inner.repeated.store(0, Ordering::Relaxed);
    }

    /// Forgets the pages of a row group that was read.
    pub(super) fn forget(&self) {
        locked(&self.inner.read).clear();
    }
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Bytes from there on, at least so many unless the file ends.
    fn from(&self, start: u64, least: u64) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(least).filter(|end| *end <= self.size);
        let end = end.ok_or_else(|| {
            ParquetError::EOF(format!("{least} bytes at {start} reach beyond the file"))
        })?;
        let held = locked(&self.windows).iter().find_map(|(begin, bytes)| {
            let offset = start.checked_sub(*begin)?;
            let enough = end - begin <= bytes.len() as u64;
            enough.then(|| bytes.slice(offset as usize..))
        });
        if let Some(held) = held {
            return Ok(held);
        }
        let reach = match self.chunk(start) {
            Some(chunk) => chunk.end.min(start + WINDOW),
            None => start + LITTLE,
        };
        let range = start..reach.max(end).min(self.size);
        let bytes = (self.ranges)(range).map_err(|error| self.stop(Stop::Read(error)))?;
        if least < WINDOW {
            let mut windows = locked(&self.windows);
            windows.push_back((start, bytes.clone()));
            if windows.len() > KEPT {
                windows.pop_front();
            }
        }
        Ok(bytes)
    }

    fn chunk(&self, place: u64) -> Option<&Chunk> {
        self.chunks.iter().find(|chunk| (chunk.begin..chunk.end).contains(&place))
    }

    /// Keeps what ended the reading; the first time counts.
    fn stop(&self, why: Stop) -> ParquetError {
        let text = ParquetError::General("it is kept beside this".into());
        locked(&self.stopped).get_or_insert(why);
        text
    }

    fn refuse(&self, why: &Refused) -> ParquetError {
        let hint = match why {
            Refused::Large(_) => PAGES,
            Refused::Repeats => "write the file anew without DELTA_BYTE_ARRAY",
            _ => DAMAGED,
        };
        self.stop(Stop::File { reason: why.reason(), hint })
    }

    /// The header at that place. The reader looks at others, too, so one is only believed where it
    /// has to be: in the beginning of a chunk, and behind each page.
    fn look(&self, start: u64, bytes: &[u8]) {
        let Some(chunk) = self.chunk(start) else { return };
        let mut read = locked(&self.read);
        let (values, unpacked) = match read.get(&chunk.begin) {
            None if start == chunk.begin => (0, 0),
            Some(last) if last.body + last.page.packed() == start => (last.values, last.unpacked),
            _ => return,
        };
        if let Some(page) = Page::read(bytes) {
            let values = values.saturating_add(page.data_values());
            let unpacked = unpacked.saturating_add(page.unpacked());
            let untold = unpacked.saturating_sub(chunk.unpacked);
            let body = start + page.head;
            read.insert(chunk.begin, Read { page, body, values, unpacked, untold });
        }
    }

    /// The page that begins there, and its chunk, if nothing is wrong with its claims.
    fn check(&self, start: u64) -> Result<(Page, &Chunk), Refused> {
        let read = locked(&self.read);
        let last = read.range(..start).next_back().map(|(_, last)| *last);
        let last = last.filter(|last| last.body == start).ok_or(Refused::Unknown)?;
        let Read { page, values, unpacked, .. } = last;
        let chunk = self.chunk(start - page.head).ok_or(Refused::Unknown)?;
        if let Some(why) = page.refused(chunk) {
            return Err(why);
        }
        // All of a batch is in memory, and how many rows that is was found by what is told.
        let untold = read.values().fold(0_u64, |all, of| all.saturating_add(of.untold));
        drop(read);
        if untold > UNTOLD {
            return Err(Refused::Claim {
                claimed: format!("the last of {} of a column when it is unpacked", Size(unpacked)),
                all: format!("{} of it", Size(chunk.unpacked)),
            });
        }
        if values > MOST_VALUES {
            return Err(Refused::Claim {
                claimed: format!("the last of {values} values of a column"),
                all: format!("{MOST_VALUES} at most in a row group"),
            });
        }
        Ok((page, chunk))
    }
}

impl Length for Shard {
    fn len(&self) -> u64 {
        self.inner.size
    }
}

impl ChunkReader for Shard {
    type T = buf::Reader<Bytes>;

    /// A page's header is read from here; it is small.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let least = LITTLE.min(self.inner.size.saturating_sub(start));
        let chunk = self.inner.chunk(start);
        let least = chunk.map_or(least, |chunk| least.min(chunk.end - start));
        let bytes = self.inner.from(start, least)?;
        self.inner.look(start, &bytes);
        Ok(bytes.reader())
    }

    /// A page is read from here.
    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let inner = &self.inner;
        let (page, chunk) = inner.check(start).map_err(|why| inner.refuse(&why))?;
        let bytes = inner.from(start, length as u64)?.slice(..length);
        if page.is_bomb(&bytes, chunk.codec) {
            return Err(inner.refuse(&Refused::bomb(&page)));
        }
        if page.is_delta {
            let head = inner.from(start - page.head, page.head)?.slice(..page.head as usize);
            let more = unfolded(head, bytes.clone(), chunk);
            let more = more.ok_or_else(|| inner.refuse(&Refused::Lengths))?;
            let before = inner.repeated.fetch_add(more, Ordering::Relaxed);
            if before.saturating_add(more) > LARGEST {
                return Err(inner.refuse(&Refused::Repeats));
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::Compression;
    use std::io::Read;
    use std::ops::Range;

    #[test]
    fn columns_that_are_read_in_turn_are_read_window_by_window_and_no_further() {
        let content: Bytes =
            (0..20 << 20).map(|at: u32| (at >> 3) as u8).collect::<Vec<_>>().into();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (asked, bytes) = (Arc::clone(&log), content.clone());
        let ranges: Ranges = Box::new(move |range| {
            asked.lock().unwrap().push(range.clone());
            Ok(bytes.slice(range.start as usize..range.end as usize))
        });
        let mib = 1 << 20;
        let chunks = [4..5 * mib, 5 * mib..5 * mib + 100, 6 * mib..20 * mib];
        let chunks = chunks.map(|Range { start: begin, end }| Chunk {
            begin,
            end,
            unpacked: end - begin,
            codec: Compression::UNCOMPRESSED,
            levels: [false; 2],
        });
        let shard = Shard::new(ranges, content.len() as u64, chunks.into());
        let read = |start: u64, length: usize| {
            let mut head = [0; 20];
            shard.get_read(start).unwrap().read_exact(&mut head).unwrap();
            assert_eq!(head[..], content[start as usize..start as usize + 20]);
            let bytes = shard.inner.from(start + 20, length as u64).unwrap().slice(..length);
            assert_eq!(bytes, content.slice(start as usize + 20..start as usize + 20 + length));
        };
        read(4, 1000);
        read(5 * mib, 80);
        read(1024, 500_000);
        read(6 * mib, mib as usize);
        read(8 * mib, 6 << 20);
        read(5 * mib, 70);
        let asked: Vec<_> = log.lock().unwrap().drain(..).collect();
        let expected = [
            4..4 + (4 << 20),
            5 * mib..5 * mib + 100,
            6 * mib..10 * mib,
            8 * mib + 20..14 * mib + 20,
        ];
        assert_eq!(asked, expected);
        let beyond = shard.inner.from(20 * mib - 1, 2).unwrap_err().to_string();
        assert!(beyond.contains("reach beyond the file"), "{beyond}");
        assert!(shard.inner.from(u64::MAX, 2).is_err());
        // What has no header is no page.
        let unknown = shard.get_bytes(4, 10).map(drop);
        assert!(unknown.is_err() && matches!(shard.stopped(), Some(Stop::File { .. })));
    }
}
