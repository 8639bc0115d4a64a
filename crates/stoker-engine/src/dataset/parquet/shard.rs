//! A Parquet file as the reader of Arrow wants it: any bytes at any time.
//!
//! The reader asks for a page's header, then for its content, and goes from column to column in
//! between. So a few windows are kept, each of what comes next in one column chunk, and no window
//! reaches into a chunk that nobody wants. Pages that are larger than a window are read by
//! themselves.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, buf};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::dataset::Ranges;

/// Bytes of one window.
const WINDOW: u64 = 4 << 20;
/// Windows that are kept: a row has hardly more large columns.
const KEPT: usize = 4;
/// What is read where no chunk is known.
const LITTLE: u64 = 64 << 10;

/// A file; clones share its windows.
#[derive(Clone)]
pub(super) struct Shard {
    inner: Arc<Inner>,
}

struct Inner {
    ranges: Ranges,
    size: u64,
    /// The column chunks that are wanted, by their begin.
    chunks: Vec<Range<u64>>,
    windows: Mutex<VecDeque<(u64, Bytes)>>,
}

impl Shard {
    pub(super) fn new(ranges: Ranges, size: u64, mut chunks: Vec<Range<u64>>) -> Self {
        chunks.sort_by_key(|chunk| chunk.start);
        Self { inner: Arc::new(Inner { ranges, size, chunks, windows: Mutex::default() }) }
    }
}

impl Inner {
    /// Bytes from there on, at least so many unless the file ends.
    fn from(&self, start: u64, least: u64) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(least).filter(|end| *end <= self.size);
        let end = end.ok_or_else(|| {
            ParquetError::EOF(format!("{least} bytes at {start} reach beyond the file"))
        })?;
        let windows = || self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let held = windows().iter().find_map(|(begin, bytes)| {
            let offset = start.checked_sub(*begin)?;
            let enough = end - begin <= bytes.len() as u64;
            enough.then(|| bytes.slice(offset as usize..))
        });
        if let Some(held) = held {
            return Ok(held);
        }
        let chunk = self.chunks.iter().find(|chunk| chunk.contains(&start));
        let reach = match chunk {
            Some(chunk) => chunk.end.min(start + WINDOW),
            None => start + LITTLE,
        };
        let range = start..reach.max(end).min(self.size);
        let bytes = (self.ranges)(range).map_err(|error| ParquetError::External(error.into()))?;
        if least < WINDOW {
            let mut windows = windows();
            windows.push_back((start, bytes.clone()));
            if windows.len() > KEPT {
                windows.pop_front();
            }
        }
        Ok(bytes)
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
        let chunk = self.inner.chunks.iter().find(|chunk| chunk.contains(&start));
        let least = chunk.map_or(least, |chunk| least.min(chunk.end - start));
        Ok(self.inner.from(start, least)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.inner.from(start, length as u64)?;
        Ok(bytes.slice(..length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

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
        let chunks = vec![4..5 * mib, 5 * mib..5 * mib + 100, 6 * mib..20 * mib];
        let shard = Shard::new(ranges, content.len() as u64, chunks);
        let read = |start: u64, length: usize| {
            let mut head = [0; 20];
            shard.get_read(start).unwrap().read_exact(&mut head).unwrap();
            assert_eq!(head[..], content[start as usize..start as usize + 20]);
            let bytes = shard.get_bytes(start + 20, length).unwrap();
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
        let beyond = shard.get_bytes(20 * mib - 1, 2).unwrap_err().to_string();
        assert!(beyond.contains("reach beyond the file"), "{beyond}");
        assert!(shard.get_bytes(u64::MAX, 2).is_err());
    }
}
