//! Builds the index of a tar shard: one pass, bounded memory.
//!
//! Of a plain archive only headers and text are read; long stretches in between are not even asked
//! for. A compressed one has to be unpacked: its members are taken out into a file beside the index.
//!
//! The fingerprint is a hash of keys, extensions and sizes, and of the content of all members but
//! images (they are known by their size, as the images that a JSONL refers to are by their name).

use std::fs::File;
use std::io::{BufWriter, Write};

use xxhash_rust::xxh3::Xxh3;

use super::group::{Again, Grouping, MOST_MEMBERS};
use super::names;
use super::walk::{Member, Stop, Walker};
use crate::dataset::entries;
use crate::dataset::entry::{Entry, Part};
use crate::dataset::packing::{Forward, Packing, Unpacked};

const BUFFER: usize = 256 << 10;
/// Changes with the definition of the fingerprint.
const FINGERPRINT_SEED: u64 = 2;

/// Note of an archive without its end mark: it may be cut off between two members.
pub(in crate::dataset) const NO_END_MARK: u16 = 1;

/// What was built.
#[derive(Clone, Copy, Debug)]
pub(in crate::dataset) struct Built {
    pub(in crate::dataset) rows: u64,
    pub(in crate::dataset) fingerprint: u64,
    pub(in crate::dataset) body: u64,
    pub(in crate::dataset) notes: u16,
}

/// Where things are written.
pub(in crate::dataset) struct Files<'a> {
    pub(in crate::dataset) entries: &'a File,
    /// For the members of a compressed archive.
    pub(in crate::dataset) members: Option<&'a File>,
}

/// Reads an archive of `size` bytes (as it is stored). Content of members other than images is
/// looked at up to `max_text`.
pub(in crate::dataset) fn build(
    unpacked: Unpacked<'_>,
    size: u64,
    max_text: u64,
    files: &Files<'_>,
) -> Result<Built, Stop> {
    let total = (unpacked.packing == Packing::Plain).then_some(size);
    let mut builder = Builder {
        walker: Walker::new(unpacked.reader, total),
        entries: entries::Writer::new(files.entries).map_err(Stop::Write)?,
        members: files.members.map(|file| BufWriter::with_capacity(BUFFER, file)),
        taken: 0,
        grouping: Grouping::default(),
        hash: Xxh3::with_seed(FINGERPRINT_SEED),
        max_text,
    };
    while let Some(member) = builder.walker.next()? {
        builder.member(&member)?;
    }
    builder.finish()
}

struct Builder<'a, R> {
    walker: Walker<R>,
    entries: entries::Writer<'a>,
    members: Option<BufWriter<&'a File>>,
    /// Bytes that were taken out.
    taken: u64,
    grouping: Grouping,
    hash: Xxh3,
    max_text: u64,
}

impl<R: Forward> Builder<'_, R> {
    fn member(&mut self, member: &Member) -> Result<(), Stop> {
        let Some((key, extension)) = names::split(&member.name) else { return Ok(()) };
        let over = self.grouping.enter(key, member.header);
        let over = over.map_err(|Again(before)| apart(key, before, member.header))?;
        self.write(over)?;
        if self.entries.count() >= entries::MOST {
            return Err(too_many_samples(member.header));
        }
        let extension = String::from_utf8_lossy(&extension).into_owned();
        self.hash.update(key);
        self.hash.update(&[0]);
        self.hash.update(extension.as_bytes());
        self.hash.update(&[0]);
        self.hash.update(&member.size.to_le_bytes());
        let is_hashed = !names::is_image(&extension) && member.size <= self.max_text;
        let begin = if self.members.is_some() { self.taken } else { member.data };
        if is_hashed || self.members.is_some() {
            let (hash, members) = (&mut self.hash, &mut self.members);
            self.walker.content(&mut |bytes| {
                if is_hashed {
                    hash.update(bytes);
                }
                members.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
            })?;
            self.taken += member.size;
        }
        if !self.grouping.add(Part { name: extension, begin, size: member.size }) {
            return Err(too_many(key, member.header));
        }
        Ok(())
    }

    fn write(&mut self, sample: Option<Entry>) -> Result<(), Stop> {
        sample.map_or(Ok(()), |sample| self.entries.write(&sample.to_bytes())).map_err(Stop::Write)
    }

    fn finish(mut self) -> Result<Built, Stop> {
        let last = self.grouping.end();
        self.write(last)?;
        let flushed = self.members.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(Stop::Write)?;
        Ok(Built {
            rows: self.entries.count(),
            fingerprint: self.hash.digest(),
            body: self.entries.finish().map_err(Stop::Write)?,
            notes: if self.walker.marked { 0 } else { NO_END_MARK },
        })
    }
}

fn apart(key: &[u8], before: u64, offset: u64) -> Stop {
    let key = super::shown(key);
    Stop::Damaged {
        offset,
        reason: format!(
            "the members of sample {key} don't stand together: it was at byte {before} before"
        ),
        hint: Some("write the archive in the order of the names, as `tar --sort=name` does"),
    }
}

fn too_many_samples(offset: u64) -> Stop {
    let reason = format!("the archive has more than {} samples", entries::MOST);
    Stop::Damaged { offset, reason, hint: Some("write several archives") }
}

fn too_many(key: &[u8], offset: u64) -> Stop {
    let key = super::shown(key);
    Stop::Damaged {
        offset,
        reason: format!(
            "sample {key} has more than {MOST_MEMBERS} members, or a megabyte of names"
        ),
        hint: Some("a key ends at the first dot of a file name: give each sample one of its own"),
    }
}
