//! What lies in the files of a cache, byte for byte.
//!
//! A segment is two files. Its index is a row of slots of 64 bytes, each with a checksum of its own:
//! the first says what the segment is, each of the others where an entry lies in the data file and
//! what it is. There the same slot stands once more before the entry's bytes, so that a read learns
//! from one piece of the file whether it is the right entry, and whole. Little-endian.

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use crate::sample::Extent;

/// Bytes of a slot.
pub(super) const SLOT: u64 = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"STOKERC1");
const ENTRY: u64 = u64::from_le_bytes(*b"entry\0\0\0");
const REMOVED: u64 = u64::from_le_bytes(*b"removed\0");

/// What an entry is of: a hash, so that nothing of the data becomes part of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(u128);

impl Name {
    /// `store` is the address of the bucket, as the same names mean other objects elsewhere; `version`
    /// the only one that is served, where one is known.
    pub(super) fn new(store: &str, extent: &Extent, version: Option<Version>) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&version.unwrap_or_default().0.to_le_bytes());
        for part in [store, &extent.object.key] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        if let Some(range) = &extent.range {
            hash.update(&range.start.to_le_bytes());
            hash.update(&range.end.to_le_bytes());
        }
        Self(hash.digest128())
    }

    /// What it is found by.
    pub(super) fn short(self) -> u64 {
        self.0 as u64
    }
}

/// The version of an object: a hash of what its store calls it, or 0 where that is not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Version(pub(super) u64);

impl Version {
    pub(super) fn of(told: Option<&str>) -> Self {
        Self(told.map_or(0, |told| (xxh3_128(told.as_bytes()) as u64).max(1)))
    }
}

/// The first slot of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The data that it was written for.
    pub(super) scope: u64,
    /// Bytes that both files may grow to together; once it is sealed, those that they have.
    pub(super) capacity: u64,
    /// Whether nothing is added any more.
    pub(super) sealed: bool,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) version: Version,
    /// Where the slot before its bytes begins in the data file.
    pub(super) offset: u64,
    /// Its bytes, without that slot.
    pub(super) length: u64,
    /// Hash of its bytes.
    pub(super) checksum: u64,
}

/// A slot of an index behind the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Entry(Entry),
    /// An entry that was found damaged.
    Removed(Entry),
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; SLOT as usize] {
        pack([MAGIC, self.scope, self.capacity, self.sealed.into(), 0, 0, 0])
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [magic, scope, capacity, sealed, ..] = unpack(bytes)?;
        (magic == MAGIC).then_some(Self { scope, capacity, sealed: sealed != 0 })
    }
}

impl Entry {
    /// Bytes that it takes in both files.
    pub(super) fn cost(length: u64) -> u64 {
        2 * SLOT + length
    }

    /// The slot that stands before its bytes.
    pub(super) fn to_bytes(self) -> [u8; SLOT as usize] {
        Slot::Entry(self).to_bytes()
    }
}

impl Slot {
    pub(super) fn to_bytes(self) -> [u8; SLOT as usize] {
        let (kind, entry) = match self {
            Self::Entry(entry) => (ENTRY, entry),
            Self::Removed(entry) => (REMOVED, entry),
        };
        let Entry { name: Name(name), version: Version(version), offset, length, checksum } = entry;
        pack([kind, name as u64, (name >> 64) as u64, version, offset, length, checksum])
    }

    /// `None` if its checksum does not hold.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [kind, low, high, version, offset, length, checksum] = unpack(bytes)?;
        let name = Name(u128::from(low) | u128::from(high) << 64);
        let entry = Entry { name, version: Version(version), offset, length, checksum };
        match kind {
            ENTRY => Some(Self::Entry(entry)),
            REMOVED => Some(Self::Removed(entry)),
            _ => None,
        }
    }
}

fn pack(words: [u64; 7]) -> [u8; SLOT as usize] {
    let mut bytes = [0; SLOT as usize];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let checksum = xxh3_64(&bytes[..56]);
    bytes[56..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn unpack(bytes: &[u8]) -> Option<[u64; 7]> {
    let mut words = [0; 8];
    for (word, place) in words.iter_mut().zip(bytes.get(..SLOT as usize)?.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().ok()?);
    }
    let [all @ .., checksum] = words;
    (xxh3_64(&bytes[..56]) == checksum).then_some(all)
}
