//! One segment: appended to by the one who has it, read by all.
//!
//! An entry's bytes are written before the slot that tells of them, so a process that is killed in
//! between has written nothing. After a power cut the order may be another: whoever reads then finds
//! a checksum that does not hold, and takes the entry out.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::{Buf, Bytes, BytesMut};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::entry::{Entry, Header, Name, SLOT, Slot, Version};
use super::folder::Files;

/// Bytes that are read at once where only the first ones of an entry are kept.
const PIECE: usize = 256 << 10;

/// Writes to a segment.
#[derive(Debug)]
pub(super) struct Writer {
    files: Files,
    /// Bytes of the index.
    slots: u64,
    /// Bytes of the data.
    end: u64,
}

impl Writer {
    pub(super) fn new(files: Files) -> Self {
        Self { files, slots: SLOT, end: 0 }
    }

    pub(super) fn id(&self) -> u64 {
        self.files.id
    }

    pub(super) fn has_room(&self, length: u64) -> bool {
        self.slots + self.end + Entry::cost(length) <= self.files.header.capacity
    }

    /// Adds an entry that there is room for.
    pub(super) fn append(
        &mut self,
        name: Name,
        version: Version,
        bytes: &[u8],
    ) -> io::Result<Entry> {
        let (length, checksum) = (bytes.len() as u64, xxh3_64(bytes));
        let entry = Entry { name, version, offset: self.end, length, checksum };
        self.files.data.write_all_at(&entry.to_bytes(), self.end)?;
        self.files.data.write_all_at(bytes, self.end + SLOT)?;
        self.files.index.write_all_at(&entry.to_bytes(), self.slots)?;
        self.slots += SLOT;
        self.end += SLOT + length;
        Ok(entry)
    }

    /// Says that nothing is added any more. What an append that failed has left is cut off.
    pub(super) fn seal(self) -> io::Result<Files> {
        let Self { mut files, slots, end } = self;
        files.index.set_len(slots)?;
        files.data.set_len(end)?;
        files.header = Header { capacity: slots + end, sealed: true, ..files.header };
        files.index.write_all_at(&files.header.to_bytes(), 0)?;
        Ok(files)
    }
}

/// What came of reading an entry.
#[derive(Debug)]
pub(super) enum Found {
    /// All that was asked for, of an entry that is whole.
    Whole(Bytes),
    /// It was evicted.
    Gone,
    Damaged,
}

/// Reads the first `most` bytes of an entry, and checks all of it.
pub(super) fn read(
    data: &Path,
    (name, version): (Name, Option<Version>),
    (offset, length): (u64, u64),
    most: u64,
) -> io::Result<Found> {
    let file = match File::open(data) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Gone),
        Err(error) => return Err(error),
    };
    let (slot, bytes, checksum) = match read_checked(&file, offset, length, most) {
        Ok(read) => read,
        // Cut off.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Found::Damaged),
        Err(error) => return Err(error),
    };
    let Some(Slot::Entry(entry)) = Slot::from_bytes(&slot) else { return Ok(Found::Damaged) };
    // Two names with the same short form are as good as impossible.
    let is_it = (entry.name, entry.length, entry.offset) == (name, length, offset)
        && version.is_none_or(|version| version == entry.version);
    Ok(if is_it && checksum == entry.checksum { Found::Whole(bytes) } else { Found::Damaged })
}

/// The slot before an entry, the first bytes of it, and the hash of all of them.
fn read_checked(
    file: &File,
    offset: u64,
    length: u64,
    most: u64,
) -> io::Result<(Bytes, Bytes, u64)> {
    if length <= most {
        let mut bytes = BytesMut::zeroed((SLOT + length) as usize);
        file.read_exact_at(&mut bytes, offset)?;
        let mut bytes = bytes.freeze();
        let slot = bytes.slice(..SLOT as usize);
        bytes.advance(SLOT as usize);
        let checksum = xxh3_64(&bytes);
        return Ok((slot, bytes, checksum));
    }
    let mut slot = BytesMut::zeroed(SLOT as usize);
    file.read_exact_at(&mut slot, offset)?;
    let (mut kept, mut hash) = (BytesMut::with_capacity(most as usize), Xxh3::new());
    let mut piece = vec![0; PIECE];
    let (mut from, end) = (offset + SLOT, offset + SLOT + length);
    while from < end {
        let piece = &mut piece[..((end - from).min(PIECE as u64)) as usize];
        file.read_exact_at(piece, from)?;
        hash.update(piece);
        let missing = most as usize - kept.len();
        kept.extend_from_slice(&piece[..missing.min(piece.len())]);
        from += piece.len() as u64;
    }
    Ok((slot.freeze(), kept.freeze(), hash.digest()))
}

/// Takes a damaged entry out of an index, for all who read it from now on.
pub(super) fn remove(index: &Path, name: Name, offset: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(index)?;
    let mut place = SLOT;
    let mut slots = vec![0; 1024 * SLOT as usize];
    loop {
        let count = file.read_at(&mut slots, place)?;
        let whole = count - count % SLOT as usize;
        if whole == 0 {
            return Ok(());
        }
        for slot in slots[..whole].chunks_exact(SLOT as usize) {
            if let Some(Slot::Entry(entry)) = Slot::from_bytes(slot)
                && (entry.name, entry.offset) == (name, offset)
            {
                return file.write_all_at(&Slot::Removed(entry).to_bytes(), place);
            }
            place += SLOT;
        }
    }
}
