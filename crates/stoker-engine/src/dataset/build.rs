//! Builds the index of one shard: one pass, bounded memory, whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::packing::{Forward, Mistake, Packing, Refusal, begin_text, mistake, unpack};
use super::sidecar::{Header, Key, Kind, Place, Sidecar};
use super::tar::Stop as TarStop;
use super::{Store, failure, lines, public_uri, scan, tar};
use crate::error::{Bytes, DatasetError, DatasetErrorKind, Error, Result};
use crate::fetch::ObjectInfo;
use crate::recipe::Format;
use crate::sample::{Location, Scheme};

const NO_SPACE: &str = "free some space, or set dataset.index-dir to a folder with more of it";
const NO_PLACE: &str = "set dataset.index-dir to a folder that can be written";
const CUT_OFF: &str = "the file is cut off or damaged: copy it again, or compress it again";
const CHANGED: &str = "wait until the source is complete, then start again";

/// Remote datasets up to this size have their lines kept: a few gigabytes of disk for one request
/// less a sample. Larger ones are mostly images in base64.
const KEPT_LINES: u64 = 4 << 30;
/// Compressed archives up to this size, all shards together, are taken out to the disk.
const KEPT_MEMBERS: u64 = 64 << 30;

/// What is indexed.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) location: Arc<Location>,
    pub(super) info: ObjectInfo,
    pub(super) format: Format,
    pub(super) max_line: u64,
    /// Bytes of all shards of the dataset.
    pub(super) total: u64,
}

impl Source {
    pub(super) fn key(&self) -> Key {
        Key::new(&self.location, &self.info, self.max_line)
    }

    pub(super) fn kind(&self) -> Kind {
        match self.format {
            Format::Jsonl => Kind::Lines,
            Format::WebDataset | Format::Parquet => Kind::Members,
        }
    }

    /// Whether what is in it is written to a file of its own.
    fn is_taken_out(&self, packing: Packing) -> Result<bool> {
        let remote = self.location.scheme != Scheme::File;
        match self.format {
            Format::Jsonl => Ok(packing != Packing::Plain || (remote && self.total <= KEPT_LINES)),
            _ if packing == Packing::Plain => Ok(false),
            _ if self.total <= KEPT_MEMBERS => Ok(true),
            _ => {
                let reason = format!(
                    "the archives are compressed with {} and have {} in all; up to {} are \
                     unpacked to the disk",
                    packing.name(),
                    Bytes(self.total),
                    Bytes(KEPT_MEMBERS)
                );
                let hint = "store them uncompressed: images don't get smaller";
                Err(failure(public_uri(&self.location), reason, Some(hint)))
            }
        }
    }
}

/// How far builders are, together, and whether they should give up.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: AtomicU64,
    pub(super) stopped: AtomicBool,
}

/// What a builder found.
struct Built {
    rows: u64,
    fingerprint: u64,
    body: u64,
    notes: u16,
}

/// Builds the index in the first place that can be written. An empty shard is an error unless
/// there are others.
pub(super) fn build(
    store: &impl Store,
    source: &Source,
    places: &[Place],
    progress: &Progress,
    may_be_empty: bool,
) -> Result<(Sidecar, File)> {
    let Source { location, .. } = source;
    let uri = public_uri(location);
    let (mut writer, place) = Writer::claim(places)?;
    let before = store.stat(location)?;
    let read = AtomicU64::new(0);
    let raw = Counted { inner: store.reader(location)?, read: &read, progress };
    let built = writer.fill(source, raw, &uri)?;
    // What a listing says of versions is not always what an answer says; sizes are.
    let changed = before.size != source.info.size || store.stat(location)? != before;
    let unread = source.format == Format::Jsonl && read.load(Ordering::Relaxed) != before.size;
    if changed || unread {
        let reason = "the source changed while it was read";
        return Err(failure(uri, reason, Some(CHANGED)));
    }
    if built.rows == 0 && !may_be_empty {
        return Err(no_samples(uri));
    }
    let at = writer.records.path.clone();
    writer.publish(source, &built, place).map_err(|error| unwritable(&at, &error))
}

pub(super) fn no_samples(uri: String) -> Error {
    let reason = "the source has no samples: it is empty or holds blank lines alone";
    failure(uri, reason, Some("check dataset.source"))
}

/// The files that are written.
struct Writer {
    records: Temporary,
    folder: PathBuf,
    lines: Option<Temporary>,
}

impl Writer {
    fn claim(places: &[Place]) -> Result<(Self, &Place)> {
        let mut last = None;
        for place in places {
            let claimed =
                fs::create_dir_all(&place.folder).and_then(|()| Temporary::create(&place.folder));
            match claimed {
                Ok(records) => {
                    let folder = place.folder.clone();
                    return Ok((Self { records, folder, lines: None }, place));
                }
                Err(error) => last = Some(unwritable(&place.index(), &error)),
            }
        }
        Err(last.expect("there is at least one place"))
    }

    /// Reads the source to its end.
    fn fill(&mut self, source: &Source, raw: impl Forward, uri: &str) -> Result<Built> {
        let mistaken = |Mistake { reason, hint }: Mistake| failure(uri, reason, Some(hint));
        let mut unpacked = unpack(raw).map_err(|refusal| match refusal {
            Refusal::Mistake(mistake) => mistaken(mistake),
            Refusal::Unreadable(packing, error) => {
                unreadable(uri, packing, Reached::Line(0), error)
            }
        })?;
        let packing = unpacked.packing;
        if source.is_taken_out(packing)? {
            let lines = Temporary::create(&self.folder);
            self.lines = Some(lines.map_err(|error| unwritable(&self.records.path, &error))?);
        }
        let lines = self.lines.as_ref().map(|lines| &lines.file);
        let written = |error: io::Error| unwritable(&self.records.path, &error);
        if source.format == Format::Jsonl {
            let offset = begin_text(&mut unpacked).map_err(mistaken)?;
            let records = &self.records.file;
            let built = lines::build(&mut unpacked, offset, source.max_line, records, lines);
            let (totals, body) = built.map_err(|stop| match stop {
                scan::Stop::Read { error, line } => {
                    unreadable(uri, packing, Reached::Line(line), error)
                }
                scan::Stop::Write(error) => written(error),
            })?;
            let scan::Totals { rows, fingerprint } = totals;
            return Ok(Built { rows, fingerprint, body, notes: 0 });
        }
        if let Some(mistake) = mistake(&unpacked.head, source.format) {
            return Err(mistaken(mistake));
        }
        let files = tar::Files { entries: &self.records.file, members: lines };
        let built = tar::build(unpacked, source.info.size, source.max_line, &files);
        let tar::Built { rows, fingerprint, body, notes } = built.map_err(|stop| match stop {
            TarStop::Damaged { offset, reason, hint } => {
                failure(format!("{uri} at byte {offset}"), reason, hint)
            }
            TarStop::Read { offset, error } => {
                unreadable(uri, packing, Reached::Byte(offset), error)
            }
            TarStop::Write(error) => written(error),
        })?;
        Ok(Built { rows, fingerprint, body, notes })
    }

    /// Lines first: an index is never seen without them.
    fn publish(
        mut self,
        source: &Source,
        built: &Built,
        place: &Place,
    ) -> io::Result<(Sidecar, File)> {
        let Built { rows, fingerprint, body, notes } = *built;
        let key = source.key();
        let lines = match self.lines.take() {
            Some(lines) => {
                let size = lines.file.metadata()?.len();
                lines.publish(&place.lines(fingerprint, key))?;
                Some(size)
            }
            None => None,
        };
        let header = Header { key, kind: source.kind(), notes, rows, fingerprint, lines, body };
        self.records.file.seek(SeekFrom::Start(0))?;
        self.records.file.write_all(&header.to_bytes())?;
        let file = self.records.publish(&place.index())?;
        Ok((Sidecar::at(place, header, &file)?, file))
    }
}

/// A file that vanishes unless it is published.
struct Temporary {
    file: File,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    /// A new file with a name that nobody else has, in this process or another.
    fn create(folder: &Path) -> io::Result<Self> {
        let process = std::process::id();
        let mut number = 0;
        loop {
            let path = folder.join(format!(".stoker-{process}-{number}.tmp"));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { file, path, published: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives it its name, when all of it is safely stored.
    fn publish(mut self, name: &Path) -> io::Result<File> {
        self.file.sync_all()?;
        fs::rename(&self.path, name)?;
        self.published = true;
        if let Some(folder) = name.parent() {
            // Some file systems can't sync folders; the index is then rebuilt after a power cut.
            File::open(folder).and_then(|folder| folder.sync_all()).ok();
        }
        self.file.try_clone()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // A file that can't be removed does no harm: its name is never read.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Counts bytes as they are stored, those that are skipped too; ends where others gave up.
struct Counted<'a, R> {
    inner: R,
    read: &'a AtomicU64,
    progress: &'a Progress,
}

impl<R> Counted<'_, R> {
    fn count(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other(Error::Stopped));
        }
        let count = self.inner.read(buffer)?;
        self.count(count as u64);
        Ok(count)
    }
}

impl<R: Forward> Forward for Counted<'_, R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.count(bytes);
        self.inner.skip(bytes)
    }
}

/// How far a source was read.
enum Reached {
    /// A line, counted from 0.
    Line(u64),
    /// A byte of the unpacked archive.
    Byte(u64),
}

/// The source can't be read on: an error of the fetch room is passed on as it is.
fn unreadable(uri: &str, packing: Packing, reached: Reached, error: io::Error) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(error) => return error,
        Err(error) => error,
    };
    let (reason, hint) = match error.kind() {
        _ if packing == Packing::Plain || error.raw_os_error().is_some() => {
            (format!("the source can't be read: {error}"), None)
        }
        io::ErrorKind::UnexpectedEof => {
            (format!("the {} data end in the middle", packing.name()), Some(CUT_OFF.to_owned()))
        }
        _ => {
            (format!("the {} data are damaged: {error}", packing.name()), Some(CUT_OFF.to_owned()))
        }
    };
    let (line, uri) = match reached {
        Reached::Line(line) => (Some(line + 1), uri.to_owned()),
        Reached::Byte(byte) => (None, format!("{uri} at byte {byte}")),
    };
    let kind = DatasetErrorKind::Data;
    Error::Dataset(DatasetError { kind, line, reason, hint, uri })
}

pub(super) fn unwritable(path: &Path, error: &io::Error) -> Error {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind());
    let hint = if full { NO_SPACE } else { NO_PLACE };
    Error::Dataset(DatasetError {
        kind: DatasetErrorKind::Disk,
        line: None,
        reason: format!("the index can't be written: {error}"),
        hint: Some(hint.to_owned()),
        uri: path.display().to_string(),
    })
}
