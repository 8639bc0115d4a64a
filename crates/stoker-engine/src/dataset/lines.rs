//! Builds the index of a shard of JSON lines, and keeps its lines where they can't be read at random.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use xxhash_rust::xxh3::Xxh3;

use super::packing::Unpacked;
use super::scan::{Event, Stop, Totals, scan};
use super::sidecar::{HEADER, Row};

const BUFFER: usize = 256 << 10;

/// Reads text that begins at `offset` to its end and writes records, and lines where they are kept;
/// what was found, and the hash of the records.
pub(super) fn build(
    mut text: Unpacked<'_>,
    offset: u64,
    max_line: u64,
    records: &File,
    lines: Option<&File>,
) -> Result<(Totals, u64), Stop> {
    let mut lines = lines.map(Lines::new);
    let mut records = Records::new(records).map_err(Stop::Write)?;
    let mut visit = |event: Event<'_>| match event {
        Event::Bytes(bytes) => lines.as_mut().map_or(Ok(()), |lines| lines.write(bytes)),
        Event::Row { offset, length, line } => {
            let offset = lines.as_mut().map_or(Ok(offset), Lines::end)?;
            records.write(offset, length, line)
        }
    };
    let totals = scan(&mut text.reader, offset, max_line, &mut visit)?;
    let hash = records.finish().map_err(Stop::Write)?;
    lines.map_or(Ok(()), |mut lines| lines.file.flush()).map_err(Stop::Write)?;
    Ok((totals, hash))
}

/// One record per row, behind the place of the header.
struct Records<'a> {
    file: BufWriter<&'a File>,
    rows: u64,
    hash: Xxh3,
}

impl<'a> Records<'a> {
    fn new(file: &'a File) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(BUFFER, file);
        file.write_all(&[0; HEADER])?;
        Ok(Self { file, rows: 0, hash: Xxh3::new() })
    }

    fn write(&mut self, offset: u64, length: u64, line: u64) -> io::Result<()> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let skipped = u32::try_from(line - self.rows)
            .map_err(|_| io::Error::other("the source has more than 4 billion blank lines"))?;
        let record = Row { offset, length, skipped }.to_bytes();
        self.rows += 1;
        self.hash.update(&record);
        self.file.write_all(&record)
    }

    /// The hash of all records, when they are written.
    fn finish(mut self) -> io::Result<u64> {
        self.file.flush()?;
        Ok(self.hash.digest())
    }
}

/// The lines of a compressed source, one after the other.
struct Lines<'a> {
    file: BufWriter<&'a File>,
    begin: u64,
    end: u64,
}

impl<'a> Lines<'a> {
    fn new(file: &'a File) -> Self {
        Self { file: BufWriter::with_capacity(BUFFER, file), begin: 0, end: 0 }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.end += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Ends a line and says where it began.
    fn end(&mut self) -> io::Result<u64> {
        self.write(b"\n")?;
        Ok(std::mem::replace(&mut self.begin, self.end))
    }
}
