//! Builds the index of an MDS shard: one pass over the sizes and the text.
//!
//! A shard begins with the number of its samples and where each begins; a sample with the sizes of
//! those columns that vary. What these say must fit together to the byte. Images are jumped over, or
//! taken out where the shard is compressed.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};

use xxhash_rust::xxh3::Xxh3;

use super::{Columns, Role};
use crate::dataset::entries;
use crate::dataset::entry::{Entry, Part};
use crate::dataset::packing::{Forward, Packing, Unpacked};
use crate::dataset::tar::{Built, Files, Stop};

const BUFFER: usize = 256 << 10;
/// Changes with the definition of the fingerprint.
const FINGERPRINT_SEED: u64 = 4;

/// Reads a shard of `size` bytes (as it is stored). The content of columns other than images is
/// looked at up to `max_text`.
pub(in crate::dataset) fn build(
    unpacked: Unpacked<'_>,
    size: u64,
    columns: &Columns,
    max_text: u64,
    files: &Files<'_>,
) -> Result<Built, Stop> {
    let total = (unpacked.packing == Packing::Plain).then_some(size);
    let mut builder = Builder {
        reader: Reader { inner: unpacked.reader, offset: 0 },
        entries: entries::Writer::new(files.entries).map_err(Stop::Write)?,
        taken: files
            .members
            .map(|file| Taken { file: BufWriter::with_capacity(BUFFER, file), end: 0 }),
        hash: Xxh3::with_seed(FINGERPRINT_SEED),
        columns,
        max_text,
    };
    for column in &columns.0 {
        builder.hash.update(format!("{}\0{}\0", column.name, column.encoding).as_bytes());
    }
    let begins = builder.reader.begins(total)?;
    for pair in begins.windows(2) {
        builder.sample(u64::from(pair[0]), u64::from(pair[1]))?;
    }
    let flushed = builder.taken.as_mut().map_or(Ok(()), |taken| taken.file.flush());
    flushed.map_err(Stop::Write)?;
    Ok(Built {
        rows: builder.entries.count(),
        fingerprint: builder.hash.digest(),
        body: builder.entries.finish().map_err(Stop::Write)?,
        notes: 0,
    })
}

struct Builder<'a> {
    reader: Reader<'a>,
    entries: entries::Writer<'a>,
    taken: Option<Taken<'a>>,
    hash: Xxh3,
    columns: &'a Columns,
    max_text: u64,
}

/// What is taken out of a compressed shard.
struct Taken<'a> {
    file: BufWriter<&'a File>,
    end: u64,
}

impl Builder<'_> {
    fn sample(&mut self, begin: u64, end: u64) -> Result<(), Stop> {
        let row = self.entries.count();
        let wrong = |what: &str| damaged(begin, &format!("row {row} {what}"));
        self.reader.skip_to(begin).ok_or_else(|| wrong("begins before the one ahead ends"))??;
        let vary = self.columns.0.iter().filter(|column| column.size.is_none()).count();
        let mut sizes = self.reader.numbers(vary)?.into_iter().map(u64::from);
        let all: Vec<u64> = self
            .columns
            .0
            .iter()
            .map(|column| column.size.or_else(|| sizes.next()).unwrap_or_default())
            .collect();
        if all.iter().sum::<u64>() + 4 * vary as u64 != end.saturating_sub(begin) {
            return Err(wrong("has other sizes than its columns say"));
        }
        let mut parts = Vec::new();
        for (column, size) in self.columns.0.iter().zip(all) {
            self.hash.update(&size.to_le_bytes());
            let is_text = matches!(column.role, Role::Value) && size <= self.max_text;
            let is_kept = column.role != Role::Unread;
            let place = match &self.taken {
                Some(taken) => taken.end,
                None => self.reader.offset,
            };
            if is_kept {
                parts.push(Part { name: column.name.clone(), begin: place, size });
            }
            if is_text || (is_kept && self.taken.is_some()) {
                self.content(size, is_text)?;
            } else {
                self.reader.skip(size)?;
            }
        }
        let entry = Entry { key: String::new(), place: row, twice: None, parts };
        self.entries.write(&entry.to_bytes()).map_err(Stop::Write)
    }

    fn content(&mut self, size: u64, is_hashed: bool) -> Result<(), Stop> {
        let mut buffer = vec![0; size.min(64 << 10) as usize];
        let mut left = size;
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            let part = &mut buffer[..part];
            self.reader.fill(part)?;
            left -= part.len() as u64;
            if is_hashed {
                self.hash.update(part);
            }
            if let Some(taken) = &mut self.taken {
                taken.file.write_all(part).map_err(Stop::Write)?;
                taken.end += part.len() as u64;
            }
        }
        Ok(())
    }
}

struct Reader<'a> {
    inner: Box<dyn Forward + 'a>,
    offset: u64,
}

impl Reader<'_> {
    /// Where the samples begin, and the last one ends.
    fn begins(&mut self, total: Option<u64>) -> Result<Vec<u32>, Stop> {
        let count = u64::from(self.numbers(1)?[0]);
        let table = 4 + 4 * (count + 1);
        if total.is_some_and(|total| table > total) {
            return Err(damaged(
                0,
                &format!("it claims {count} rows, more than there is room for"),
            ));
        }
        if count > entries::MOST {
            let reason = format!("it claims {count} rows, and up to {} are read", entries::MOST);
            return Err(damaged(0, &reason));
        }
        let begins = self.numbers(count as usize + 1)?;
        let last = begins.last().map_or(0, |last| u64::from(*last));
        if total.is_some_and(|total| last > total) {
            return Err(damaged(0, &format!("its rows end at byte {last}, beyond its end")));
        }
        Ok(begins)
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<u32>, Stop> {
        let mut numbers = Vec::new();
        // A claim is not believed: memory grows as bytes come.
        let mut left = count;
        while left > 0 {
            let mut bytes = vec![0; left.min(16 << 10) * 4];
            self.fill(&mut bytes)?;
            numbers.extend(
                bytes
                    .chunks_exact(4)
                    .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("it has 4 bytes"))),
            );
            left -= bytes.len() / 4;
        }
        Ok(numbers)
    }

    /// `None` for what was passed already.
    fn skip_to(&mut self, offset: u64) -> Option<Result<(), Stop>> {
        offset.checked_sub(self.offset).map(|bytes| self.skip(bytes))
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Stop> {
        let offset = self.offset;
        self.inner.skip(bytes).map_err(|error| Stop::Read { offset, error })?;
        self.offset += bytes;
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Stop> {
        let (offset, mut got) = (self.offset, 0);
        while got < buffer.len() {
            match self.inner.read(&mut buffer[got..]) {
                Ok(0) => return Err(damaged(offset, "it ends within a row")),
                Ok(count) => got += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Stop::Read { offset, error }),
            }
        }
        self.offset += buffer.len() as u64;
        Ok(())
    }
}

fn damaged(offset: u64, reason: &str) -> Stop {
    let hint = Some("the shard is cut off or damaged: copy it again, or write it anew");
    Stop::Damaged { offset, reason: format!("the shard is damaged: {reason}"), hint }
}
