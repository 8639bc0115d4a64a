//! The index as a file: row → where its line lies.
//!
//! A header of 80 bytes, then one record of 16 bytes per row: offset, length, and how many blank
//! lines came before it (so that its line number is known too). Little-endian. Rows are read from
//! the file one by one and not mapped: 16 bytes cost less than a microsecond, the process does not
//! grow, and a file that is cut off under us is an error and not a signal.
//!
//! The index of a source is found by its name, and believed only if it was made from that very
//! source (address, size, version) under the same limit, by this format, and if its checksums hold;
//! else it is built anew. It is written under a temporary name and renamed when it is whole, so two
//! processes that build at once do the work twice and no harm. The lines of a compressed source lie
//! in a file that carries their fingerprint in its name, so it never changes under a running job;
//! nobody deletes old ones, for the same reason.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use super::failure;
use crate::error::Result;
use crate::fetch::ObjectInfo;
use crate::sample::{Location, Scheme};

const MAGIC: &[u8; 8] = b"STOKERIX";
const FORMAT: u32 = 1;
pub(super) const HEADER: usize = 80;
const RECORD: usize = 16;
/// Longest line that the records can tell from a longer one, in bytes.
pub(super) const LONGEST_LINE: u64 = u32::MAX as u64 - 1;

/// What an index was made from: a hash, so that no address lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u128);

impl Key {
    pub(super) fn new(source: &Location, info: &ObjectInfo, max_line: u64) -> Self {
        let whole = format!("{source}\0{}\0{:?}\0{max_line}", info.size, info.version);
        Self(xxh3_128(whole.as_bytes()))
    }
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) offset: u64,
    /// In bytes; `u32::MAX` is that or more.
    pub(super) length: u32,
    /// Blank lines before it.
    pub(super) skipped: u32,
}

impl Row {
    pub(super) fn to_bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(&self.skipped.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; RECORD]) -> Self {
        Self {
            offset: u64::from_le_bytes(field(&bytes, 0)),
            length: u32::from_le_bytes(field(&bytes, 8)),
            skipped: u32::from_le_bytes(field(&bytes, 12)),
        }
    }
}

/// What stands before the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key: Key,
    pub(super) rows: u64,
    pub(super) fingerprint: u64,
    /// Bytes of the file with the lines of a compressed source.
    pub(super) lines: Option<u64>,
    /// Hash of the records.
    pub(super) records: u64,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.rows.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.lines.unwrap_or(u64::MAX).to_le_bytes());
        bytes[56..64].copy_from_slice(&self.records.to_le_bytes());
        let hash = xxh3_64(&bytes[..HEADER - 8]);
        bytes[HEADER - 8..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER]) -> Option<Self> {
        let lines = u64::from_le_bytes(field(bytes, 48));
        let header = Self {
            key: Key(u128::from_le_bytes(field(bytes, 16))),
            rows: u64::from_le_bytes(field(bytes, 32)),
            fingerprint: u64::from_le_bytes(field(bytes, 40)),
            lines: (lines != u64::MAX).then_some(lines),
            records: u64::from_le_bytes(field(bytes, 56)),
        };
        // Writing it again checks magic, format, reserved bytes and hash in one go.
        (header.to_bytes() == *bytes).then_some(header)
    }
}

fn field<const LENGTH: usize>(bytes: &[u8], start: usize) -> [u8; LENGTH] {
    bytes[start..start + LENGTH].try_into().expect("the slice has that length")
}

/// An index that is open.
#[derive(Debug)]
pub(super) struct Index {
    file: File,
    header: Header,
}

impl Index {
    /// The index at that place, if there is a sound one with that key.
    pub(super) fn open(place: &Place, key: Key) -> Option<(Self, &Place)> {
        let index = Self::from_file(File::open(place.index()).ok()?, key).ok()??;
        let lines_are_there = match (index.header.lines, index.lines_file(place)) {
            (Some(size), Some(path)) => fs::metadata(path).is_ok_and(|found| found.len() == size),
            _ => true,
        };
        lines_are_there.then_some((index, place))
    }

    fn from_file(mut file: File, key: Key) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER];
        file.read_exact(&mut bytes)?;
        let Some(header) = Header::from_bytes(&bytes).filter(|header| header.key == key) else {
            return Ok(None);
        };
        let mut hash = Xxh3::new();
        let mut length = 0;
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            hash.update(&buffer[..count]);
            length += count as u64;
        }
        let whole = header.rows.checked_mul(RECORD as u64) == Some(length);
        Ok((whole && hash.digest() == header.records).then_some(Self { file, header }))
    }

    /// The index in a file that was just written.
    pub(super) fn fresh(mut file: File, header: Header) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        Ok(Self { file, header })
    }

    pub(super) fn rows(&self) -> u64 {
        self.header.rows
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.header.fingerprint
    }

    /// The file with the lines of a compressed source.
    pub(super) fn lines_file(&self, place: &Place) -> Option<PathBuf> {
        self.header.lines.map(|_| place.lines(self.header.fingerprint, self.header.key))
    }

    pub(super) fn row(&self, row: u64) -> io::Result<Row> {
        let offset = row
            .checked_mul(RECORD as u64)
            .and_then(|offset| offset.checked_add(HEADER as u64))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut bytes = [0; RECORD];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(Row::from_bytes(bytes))
    }
}

/// Where the index of a source may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    stem: String,
}

impl Place {
    pub(super) fn index(&self) -> PathBuf {
        self.folder.join(format!("{}.stoker-index", self.stem))
    }

    pub(super) fn lines(&self, fingerprint: u64, key: Key) -> PathBuf {
        // The key is part of the name because the limit on lines decides what the file holds.
        let name = xxh3_64(&[fingerprint.to_le_bytes(), (key.0 as u64).to_le_bytes()].concat());
        self.folder.join(format!("{}.{name:016x}.stoker-lines", self.stem))
    }
}

/// The places to look for the index of a source, in order: the folder that the recipe names, or
/// beside a local source and then the user's cache.
pub(super) fn places(source: &Location, index_dir: Option<&str>) -> Result<Vec<Place>> {
    let uri = source.to_string();
    let hashed = |folder| Place { folder, stem: format!("{:016x}", xxh3_64(uri.as_bytes())) };
    if let Some(folder) = index_dir {
        let folder = std::path::absolute(folder).map_err(|error| {
            failure(folder, format!("dataset.index-dir has no absolute path: {error}"), None)
        })?;
        return Ok(vec![hashed(folder)]);
    }
    let path = Path::new(&source.key);
    let beside = match (source.scheme, path.parent(), path.file_name()) {
        (Scheme::File, Some(folder), Some(name)) => {
            let stem = name.to_string_lossy().into_owned();
            Some(Place { folder: folder.to_owned(), stem })
        }
        _ => None,
    };
    let cache = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let cache = cache.map(|home| hashed(home.join(".cache/stoker")));
    let places: Vec<Place> = beside.into_iter().chain(cache).collect();
    if places.is_empty() {
        let reason = "there is no home folder to keep the index in";
        return Err(failure(super::public_uri(source), reason, Some("set dataset.index-dir")));
    }
    Ok(places)
}
