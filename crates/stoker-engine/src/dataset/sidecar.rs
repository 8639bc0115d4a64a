//! The index of a shard as a file: row → where it lies.
//!
//! A header of 80 bytes, then a body: of lines, a record of 16 bytes per row (offset, length, and
//! how many blank lines came before it, so that its line number is known too); of all else, entries
//! of any length and where each begins ([`super::entries`]). Little-endian. Rows are read from the
//! file one by one and not mapped: 16 bytes cost less than a microsecond, the process does not
//! grow, and a file that is cut off under us is an error and not a signal.
//!
//! The index of a shard is found by its name, and believed only if it was made from that very
//! object (address, size, version) under the same limit, by this format, and if its checksums hold;
//! else it is built anew. It is written under a temporary name and renamed when it is whole, so two
//! processes that build at once do the work twice and no harm. What was taken out of a compressed
//! shard lies in a file that carries its fingerprint in its name, so it never changes under a
//! running job; nobody deletes old ones, for the same reason.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use super::failure;
use crate::error::Result;
use crate::fetch::ObjectInfo;
use crate::sample::{Location, Scheme};

const MAGIC: &[u8; 8] = b"STOKERIX";
pub(super) const HEADER: usize = 80;
const RECORD: usize = 16;
/// Longest line that the records can tell from a longer one, in bytes.
pub(super) const LONGEST_LINE: u64 = u32::MAX as u64 - 1;

/// What an index was made from: a hash, so that no address lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u128);

impl Key {
    /// `more` is empty for what is indexed whatever the recipe says.
    pub(super) fn new(source: &Location, info: &ObjectInfo, max_line: u64, more: &str) -> Self {
        let whole = format!("{source}\0{}\0{:?}\0{max_line}{more}", info.size, info.version);
        Self(xxh3_128(whole.as_bytes()))
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

/// What an index is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lines of text.
    Lines,
    /// Members of a tar archive.
    Members,
    /// Rows of a table.
    Rows,
    /// Columns of rows that lie side by side.
    Columns,
}

impl Kind {
    /// The version of the format and the number of the kind.
    fn numbers(self) -> (u32, u16) {
        match self {
            Self::Lines => (1, 0),
            Self::Members => (2, 1),
            Self::Rows => (2, 2),
            Self::Columns => (2, 3),
        }
    }
}

/// One row of lines.
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

    /// The row of that number.
    pub(super) fn read(file: &File, row: u64) -> io::Result<Self> {
        let offset = row
            .checked_mul(RECORD as u64)
            .and_then(|offset| offset.checked_add(HEADER as u64))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut bytes = [0; RECORD];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(Self::from_bytes(bytes))
    }
}

/// What stands before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key: Key,
    pub(super) kind: Kind,
    /// What the owner of the data should know; the kind says what the bits are.
    pub(super) notes: u16,
    pub(super) rows: u64,
    pub(super) fingerprint: u64,
    /// Bytes of the file with what was taken out of the shard.
    pub(super) lines: Option<u64>,
    /// Hash of the body.
    pub(super) body: u64,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let (format, kind) = self.kind.numbers();
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        bytes[12..14].copy_from_slice(&kind.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.notes.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.key.to_bytes());
        bytes[32..40].copy_from_slice(&self.rows.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.lines.unwrap_or(u64::MAX).to_le_bytes());
        bytes[56..64].copy_from_slice(&self.body.to_le_bytes());
        let hash = xxh3_64(&bytes[..HEADER - 8]);
        bytes[HEADER - 8..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER]) -> Option<Self> {
        let kind = u16::from_le_bytes(field(bytes, 12));
        let kinds = [Kind::Lines, Kind::Members, Kind::Rows, Kind::Columns];
        let kind = kinds.into_iter().find(|it| it.numbers().1 == kind)?;
        let lines = u64::from_le_bytes(field(bytes, 48));
        let header = Self {
            key: Key(u128::from_le_bytes(field(bytes, 16))),
            kind,
            notes: u16::from_le_bytes(field(bytes, 14)),
            rows: u64::from_le_bytes(field(bytes, 32)),
            fingerprint: u64::from_le_bytes(field(bytes, 40)),
            lines: (lines != u64::MAX).then_some(lines),
            body: u64::from_le_bytes(field(bytes, 56)),
        };
        // Writing it again checks magic, format, reserved bytes and hash in one go.
        (header.to_bytes() == *bytes).then_some(header)
    }

    fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Whether a body of so many bytes can be the right one.
    fn fits(&self, bytes: u64) -> bool {
        match self.kind {
            Kind::Lines => self.rows.checked_mul(RECORD as u64) == Some(bytes),
            _ => super::entries::table_bytes(self.rows).is_some_and(|it| it <= bytes),
        }
    }
}

fn field<const LENGTH: usize>(bytes: &[u8], start: usize) -> [u8; LENGTH] {
    bytes[start..start + LENGTH].try_into().expect("the slice has that length")
}

/// The index of one shard; the file itself is opened when it is needed.
#[derive(Clone, Debug)]
pub(super) struct Sidecar {
    pub(super) header: Header,
    pub(super) path: PathBuf,
    /// The file with what was taken out of the shard.
    pub(super) lines: Option<PathBuf>,
    /// Bytes of the body.
    pub(super) bytes: u64,
}

impl Sidecar {
    /// The index in one of the places, if there is one of that kind with that key, and its file. Its
    /// body is not looked at: see [`Self::is_sound`].
    pub(super) fn find(places: &[Place], kind: Kind, key: Key) -> Option<(Self, File)> {
        let right = |header: &Header| (header.kind, header.key) == (kind, key);
        places.iter().find_map(|place| {
            let file = File::open(place.index()).ok()?;
            let header = Header::read(&file).ok()?.filter(right)?;
            let sidecar = Self::at(place, header, &file).ok()?;
            let whole = header.fits(sidecar.bytes);
            let lines_are_there = match (header.lines, &sidecar.lines) {
                (Some(size), Some(path)) => {
                    fs::metadata(path).is_ok_and(|found| found.len() == size)
                }
                _ => true,
            };
            (whole && lines_are_there).then_some((sidecar, file))
        })
    }

    /// The index in a file at a place.
    pub(super) fn at(place: &Place, header: Header, file: &File) -> io::Result<Self> {
        let bytes = file.metadata()?.len().saturating_sub(HEADER as u64);
        let lines = header.lines.map(|_| place.lines(header.fingerprint, header.key));
        Ok(Self { header, path: place.index(), lines, bytes })
    }

    /// The file, if it is still the one that was found.
    pub(super) fn open(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        let same = Header::read(&file)? == Some(self.header)
            && file.metadata()?.len() == self.bytes + HEADER as u64;
        same.then_some(file).ok_or_else(|| invalid("the index was replaced while it was in use"))
    }

    /// Whether the body is what was written.
    pub(super) fn is_sound(&self, file: &File) -> io::Result<bool> {
        let mut hash = Xxh3::new();
        let mut buffer = vec![0; 256 << 10];
        let mut offset = HEADER as u64;
        loop {
            let count = file.read_at(&mut buffer, offset)?;
            if count == 0 {
                return Ok(hash.digest() == self.header.body);
            }
            hash.update(&buffer[..count]);
            offset += count as u64;
        }
    }

    /// The file, if its body is sound too.
    pub(super) fn open_sound(&self) -> io::Result<File> {
        let file = self.open()?;
        if self.is_sound(&file)? { Ok(file) } else { Err(invalid("the index is damaged")) }
    }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Where the index of a shard may lie.
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

/// The places to look for the index of a shard, in order: the folder that the recipe names, or
/// beside a local shard and then the user's cache. `more` is that of the [`Key`]: two datasets may
/// read one shard in different ways.
pub(super) fn places(source: &Location, index_dir: Option<&str>, more: &str) -> Result<Vec<Place>> {
    let uri = source.to_string();
    let mark = match more {
        "" => String::new(),
        _ => format!(".{:08x}", xxh3_64(more.as_bytes()) as u32),
    };
    let stem = format!("{:016x}{mark}", xxh3_64(uri.as_bytes()));
    let hashed = |folder| Place { folder, stem: stem.clone() };
    if let Some(folder) = index_dir {
        let folder = std::path::absolute(folder).map_err(|error| {
            failure(folder, format!("dataset.index-dir has no absolute path: {error}"), None)
        })?;
        return Ok(vec![hashed(folder)]);
    }
    let path = Path::new(&source.key);
    let beside = match (source.scheme, path.parent(), path.file_name()) {
        (Scheme::File, Some(folder), Some(name)) => {
            let stem = format!("{}{mark}", name.to_string_lossy());
            Some(Place { folder: folder.to_owned(), stem })
        }
        _ => None,
    };
    let cache = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let cache = cache.map(|home| hashed(home.join(".cache/stoker")));
    let places: Vec<Place> = beside.into_iter().chain(cache).collect();
    if places.is_empty() {
        let reason = "there is no home folder to keep the index in";
        return Err(failure(source.shown(), reason, Some("set dataset.index-dir")));
    }
    Ok(places)
}
