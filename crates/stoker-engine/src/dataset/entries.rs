//! Entries of any length in the body of an index, found by their number.
//!
//! All entries, one after the other, then a table of where each begins and where the last one ends:
//! 8 bytes for each. An entry costs two short reads. Numbers within an entry are written 7 bits at a
//! time, the lowest first (LEB128), so that small ones take one byte.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::Xxh3;

use super::sidecar::HEADER;

const BUFFER: usize = 256 << 10;
/// Longest entry that is believed: a sample of thousands of members is far below.
const LONGEST: u64 = 4 << 20;
/// Most entries of one shard. While it is indexed 8 bytes of each are in memory, and of an archive's
/// samples some 40: shards of millions of samples there are, and a few bytes that unpack to many more.
pub(super) const MOST: u64 = 1 << 23;

/// Bytes of the table of so many entries.
pub(super) fn table_bytes(entries: u64) -> Option<u64> {
    entries.checked_add(1)?.checked_mul(8)
}

/// Reads an entry; `body` are the bytes of the whole body, and `entries` their number.
pub(super) fn read(file: &File, body: u64, entries: u64, number: u64) -> io::Result<Vec<u8>> {
    let table = table_bytes(entries).and_then(|table| body.checked_sub(table));
    let table = table.filter(|_| number < entries).ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut ends = [0; 16];
    file.read_exact_at(&mut ends, HEADER as u64 + table + number * 8)?;
    let end_of = |at: usize| u64::from_le_bytes(ends[at..at + 8].try_into().expect("8 bytes"));
    let (begin, end) = (end_of(0), end_of(8));
    if begin > end || end > table || end - begin > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut entry = vec![0; (end - begin) as usize];
    file.read_exact_at(&mut entry, HEADER as u64 + begin)?;
    Ok(entry)
}

/// Writes entries behind the place of the header.
pub(super) struct Writer<'a> {
    file: BufWriter<&'a File>,
    hash: Xxh3,
    /// Where each begins; of a shard, not of a dataset.
    begins: Vec<u64>,
    end: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(file: &'a File) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(BUFFER, file);
        file.write_all(&[0; HEADER])?;
        Ok(Self { file, hash: Xxh3::new(), begins: Vec::new(), end: 0 })
    }

    pub(super) fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        self.begins.push(self.end);
        self.end += entry.len() as u64;
        self.put(entry)
    }

    pub(super) fn count(&self) -> u64 {
        self.begins.len() as u64
    }

    /// Writes the table; the hash of the body.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        let begins = std::mem::take(&mut self.begins);
        for begin in begins.into_iter().chain([self.end]) {
            self.put(&begin.to_le_bytes())?;
        }
        self.file.flush()?;
        Ok(self.hash.digest())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }
}

/// Appends a number.
pub(super) fn put_number(entry: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        entry.push(number as u8 | 0x80);
        number >>= 7;
    }
    entry.push(number as u8);
}

/// Appends bytes and their number before them.
pub(super) fn put_bytes(entry: &mut Vec<u8>, bytes: &[u8]) {
    put_number(entry, bytes.len() as u64);
    entry.extend_from_slice(bytes);
}

/// Takes a number off the front.
pub(super) fn take_number(entry: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = entry.split_first()?;
        *entry = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes bytes off the front.
pub(super) fn take_bytes<'a>(entry: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = usize::try_from(take_number(entry)?).ok()?;
    let (bytes, rest) = entry.split_at_checked(count)?;
    *entry = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_taken(numbers in prop::collection::vec(any::<u64>(), 0..9), text in ".{0,9}") {
            let mut entry = Vec::new();
            for number in &numbers {
                put_number(&mut entry, *number);
            }
            put_bytes(&mut entry, text.as_bytes());
            let mut rest = entry.as_slice();
            for number in &numbers {
                prop_assert_eq!(take_number(&mut rest), Some(*number));
            }
            prop_assert_eq!(take_bytes(&mut rest), Some(text.as_bytes()));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn nothing_that_is_taken_panics(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut rest = bytes.as_slice();
            while take_number(&mut rest).is_some() {}
            let mut rest = bytes.as_slice();
            while take_bytes(&mut rest).is_some() {}
        }
    }

    #[test]
    fn entries_are_found_by_number_and_none_beyond_the_last() {
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(&file).unwrap();
        let entries = [b"one".as_slice(), b"", b"three"];
        for entry in entries {
            writer.write(entry).unwrap();
        }
        assert_eq!(writer.count(), 3);
        writer.finish().unwrap();
        let body = file.metadata().unwrap().len() - HEADER as u64;
        assert_eq!(body, 8 + table_bytes(3).unwrap());
        for (number, entry) in entries.iter().enumerate() {
            assert_eq!(read(&file, body, 3, number as u64).unwrap(), *entry);
        }
        assert!(read(&file, body, 3, 3).is_err());
        assert!(read(&file, body, u64::MAX, 0).is_err());
    }
}
