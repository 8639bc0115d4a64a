//! Finds the rows of a text in one pass, with memory for one buffer.
//!
//! A line ends at a line feed or at the end of the text; one carriage return before it belongs to
//! the break. Lines of white space alone are no rows. A row begins at the first byte of its line
//! that is not white space, and is never held as a whole, so its length has no limit here.
//!
//! The fingerprint is a hash over the bytes of all rows, each followed by a line feed: it does not
//! change with compression, blank lines, kind of line break or place.

use std::io::{self, Read};

use xxhash_rust::xxh3::Xxh3;

/// What is found, in order.
pub(super) enum Event<'a> {
    /// The next piece of the current row; no more come once the row is over the limit.
    Bytes(&'a [u8]),
    /// The row is over: where it began in the text, its length, and its line counted from 0.
    Row { offset: u64, length: u64, line: u64 },
}

/// What a whole text was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) rows: u64,
    pub(super) fingerprint: u64,
}

/// Why a scan ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The text can't be read beyond this line (counted from 0).
    Read { error: io::Error, line: u64 },
    /// What was found can't be stored.
    Write(io::Error),
}

/// Changes with the definition of the fingerprint.
const FINGERPRINT_SEED: u64 = 1;
const BUFFER: usize = 256 << 10;

/// Reads a text that begins at `offset` to its end. Rows longer than `max_line` are reported, with
/// their bytes only in part.
pub(super) fn scan(
    reader: &mut dyn Read,
    offset: u64,
    max_line: u64,
    visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> Result<Totals, Stop> {
    let mut scanner = Scanner {
        offset,
        line: 0,
        row: None,
        carriage_return: false,
        rows: 0,
        max_line,
        hash: Xxh3::with_seed(FINGERPRINT_SEED),
        visit,
    };
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Stop::Read { error, line: scanner.line }),
        };
        scanner.feed(&buffer[..count]).map_err(Stop::Write)?;
    }
    scanner.end_line().map_err(Stop::Write)?;
    Ok(Totals { rows: scanner.rows, fingerprint: scanner.hash.digest() })
}

struct Scanner<'a> {
    /// Place in the text.
    offset: u64,
    line: u64,
    /// Where the current row began and how long it is so far; `None` in white space.
    row: Option<(u64, u64)>,
    /// A carriage return that may turn out to belong to the line break.
    carriage_return: bool,
    rows: u64,
    max_line: u64,
    hash: Xxh3,
    visit: &'a mut dyn FnMut(Event<'_>) -> io::Result<()>,
}

impl Scanner<'_> {
    fn feed(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some(end) = find_line_feed(bytes) {
            self.piece(&bytes[..end])?;
            self.end_line()?;
            self.offset += 1;
            self.line += 1;
            bytes = &bytes[end + 1..];
        }
        self.piece(bytes)
    }

    /// Some bytes of one line.
    fn piece(&mut self, mut piece: &[u8]) -> io::Result<()> {
        if self.row.is_none() {
            let text = piece.trim_ascii_start();
            self.offset += (piece.len() - text.len()) as u64;
            piece = text;
        }
        if piece.is_empty() {
            return Ok(());
        }
        self.row.get_or_insert((self.offset, 0));
        self.offset += piece.len() as u64;
        if std::mem::take(&mut self.carriage_return) {
            self.emit(b"\r")?;
        }
        if let [rest @ .., b'\r'] = piece {
            self.carriage_return = true;
            piece = rest;
        }
        self.emit(piece)
    }

    fn emit(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (_, length) = self.row.as_mut().expect("bytes are emitted within a row");
        *length += bytes.len() as u64;
        self.hash.update(bytes);
        if *length <= self.max_line { (self.visit)(Event::Bytes(bytes)) } else { Ok(()) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.carriage_return = false;
        let Some((offset, length)) = self.row.take() else { return Ok(()) };
        self.hash.update(b"\n");
        self.rows += 1;
        (self.visit)(Event::Row { offset, length, line: self.line })
    }
}

/// Whole blocks are tested at once, which the compiler turns into vector instructions.
fn find_line_feed(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 64;
    let is_line_feed = |byte: &u8| *byte == b'\n';
    let block = bytes
        .chunks(BLOCK)
        .position(|block| block.iter().fold(false, |found, byte| found | is_line_feed(byte)))?;
    let start = block * BLOCK;
    bytes[start..].iter().position(is_line_feed).map(|place| start + place)
}
