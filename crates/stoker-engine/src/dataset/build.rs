//! Builds the index of one shard: one pass, bounded memory, whole or not at all.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::budget::{Budget, Unpacked};
use super::mds::{self, Columns};
use super::packing::{
    Forward, HEAD, Mistake, Packing, Refusal, begin_text, mistake, mistaken_for_parquet, unpack,
};
use super::sidecar::{Header, Key, Kind, Place, Sidecar, places};
use super::writer::Writer;
use super::{Ranges, Store, failure, lines, parquet, scan, tar};
use crate::error::{Bytes, DatasetError, DatasetErrorKind, Error, Result};
use crate::fetch::ObjectInfo;
use crate::recipe::{Fields, Format};
use crate::sample::{Location, Scheme};

const CUT_OFF: &str = "the file is cut off or damaged: copy it again, or compress it again";
const MORE_COPIED: &str =
    "raise dataset.max-copied if they are meant to, and there is room where the index lies";
const CHANGED: &str = "wait until the source is complete, then start again";

/// Remote JSON lines up to this size are kept: a few gigabytes of disk for one request less a
/// sample. Larger ones are mostly images in base64.
const KEPT_LINES: u64 = 4 << 30;

/// What is indexed.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) location: Arc<Location>,
    pub(super) info: ObjectInfo,
    /// Bytes of all shards of the dataset.
    pub(super) total: u64,
    pub(super) rules: Arc<Rules>,
    /// What its rows are made of, where another file says so.
    pub(super) columns: Option<Arc<Columns>>,
}

/// What all shards of a dataset have in common.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) format: Format,
    pub(super) max_line: u64,
    /// Bytes of all shards up to which they are copied where rows can't be read at random.
    pub(super) max_copied: u64,
    pub(super) fields: Fields,
}

impl Source {
    pub(super) fn key(&self) -> Key {
        Key::new(&self.location, &self.info, self.rules.max_line, &self.more())
    }

    /// Where its index may lie.
    pub(super) fn places(&self, index_dir: Option<&str>) -> Result<Vec<Place>> {
        places(&self.location, index_dir, &self.more())
    }

    /// Which columns are taken out is up to the recipe; lines and members are indexed as they are.
    fn more(&self) -> String {
        match self.rules.format {
            Format::Parquet => format!("{:?}", self.rules.fields),
            Format::Mds => format!("{:?}", self.columns),
            Format::Jsonl | Format::WebDataset => String::new(),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.rules.format {
            Format::Jsonl => Kind::Lines,
            Format::WebDataset => Kind::Members,
            Format::Parquet => Kind::Rows,
            Format::Mds => Kind::Columns,
        }
    }

    /// Whether what is in it is copied to a file of its own.
    fn is_taken_out(&self, packing: Packing) -> Result<bool> {
        let (remote, total) = (self.location.scheme != Scheme::File, self.total);
        let limit = self.rules.max_copied;
        if packing == Packing::Plain && self.rules.format != Format::Parquet {
            let keep = self.rules.format == Format::Jsonl && remote;
            return Ok(keep && total <= KEPT_LINES.min(limit));
        }
        if total <= limit {
            return Ok(true);
        }
        let what = match self.rules.format {
            Format::Parquet => "rows of Parquet files can't be read at random".to_owned(),
            _ => format!("the shards are compressed with {}", packing.name()),
        };
        let reason = format!(
            "{what}, and all shards have {} together: up to {} are copied to the disk",
            Bytes(total),
            Bytes(limit)
        );
        let hint = "raise dataset.max-copied if there is room where the index lies, or store the \
                    data as plain tar archives";
        Err(failure(self.location.shown(), reason, Some(hint)))
    }
}

/// How far builders are, together, and whether they should give up.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: AtomicU64,
    pub(super) stopped: AtomicBool,
    pub(super) budget: Budget,
    unpacked: Unpacked,
}

/// What a builder found.
struct Built {
    rows: u64,
    fingerprint: u64,
    body: u64,
    notes: u16,
    /// Bytes of the source that were read, where all of them should be.
    read: Option<u64>,
}

/// Builds the index in the first place that can be written. An empty shard is an error unless
/// there are others.
pub(super) fn build(
    store: &impl Store,
    source: &Source,
    places: &[Place],
    progress: &Arc<Progress>,
    may_be_empty: bool,
) -> Result<(Sidecar, File)> {
    let Source { location, .. } = source;
    let uri = location.shown();
    let (mut writer, place) = Writer::claim(places)?;
    let before = store.stat(location)?;
    let built = match source.rules.format {
        Format::Parquet => fill_table(&mut writer, store, source, progress)?,
        _ => fill_stream(&mut writer, store, source, progress)?,
    };
    // What a listing says of versions is not always what an answer says; sizes are.
    let unread = built.read.is_some_and(|read| read != before.size);
    if before.size != source.info.size || unread || store.stat(location)? != before {
        let reason = "the source changed while it was read";
        return Err(failure(uri, reason, Some(CHANGED)));
    }
    let Built { rows, fingerprint, body, notes, .. } = built;
    if rows == 0 && !may_be_empty {
        return Err(no_samples(uri));
    }
    let (key, kind, lines) = (source.key(), source.kind(), None);
    writer.publish(Header { key, kind, notes, rows, fingerprint, lines, body }, place)
}

pub(super) fn no_samples(uri: String) -> Error {
    let reason = "the source has no samples: it is empty or holds blank lines alone";
    failure(uri, reason, Some("check dataset.source"))
}

/// Reads lines or an archive from front to back.
fn fill_stream(
    writer: &mut Writer,
    store: &impl Store,
    source: &Source,
    progress: &Progress,
) -> Result<Built> {
    let (uri, read) = (source.location.shown(), AtomicU64::new(0));
    let raw = Counted { inner: store.reader(&source.location)?, read: &read, progress };
    let mistaken = |Mistake { reason, hint }: Mistake| failure(&uri, reason, Some(hint));
    let unreadable = |packing, reached, error| unreadable(&uri, packing, reached, error);
    let mut unpacked = unpack(raw).map_err(|refusal| match refusal {
        Refusal::Mistake(mistake) => mistaken(mistake),
        Refusal::Unreadable(packing, error) => unreadable(packing, Reached::Line(0), error),
    })?;
    let (packing, max_line) = (unpacked.packing, source.rules.max_line);
    if source.is_taken_out(packing)? {
        writer.take_out()?;
    }
    if packing != Packing::Plain {
        let (so_far, most) = (&progress.unpacked, source.rules.max_copied);
        unpacked.reader = Box::new(Bounded { inner: unpacked.reader, so_far, most });
    }
    if source.rules.format == Format::Jsonl {
        let offset = begin_text(&mut unpacked).map_err(mistaken)?;
        let built = lines::build(unpacked, offset, max_line, writer.records(), writer.lines());
        let (totals, body) = built.map_err(|stop| match stop {
            scan::Stop::Read { error, line } => unreadable(packing, Reached::Line(line), error),
            scan::Stop::Write(error) => writer.unwritable(&error),
        })?;
        let scan::Totals { rows, fingerprint } = totals;
        let read = Some(read.load(Ordering::Relaxed));
        return Ok(Built { rows, fingerprint, body, notes: 0, read });
    }
    if let Some(mistake) = mistake(&unpacked.head, source.rules.format) {
        return Err(mistaken(mistake));
    }
    let files = tar::Files { entries: writer.records(), members: writer.lines() };
    let built = match &source.columns {
        None => tar::build(unpacked, source.info.size, max_line, &files),
        Some(columns) => mds::build(unpacked, source.info.size, columns, max_line, &files),
    };
    let tar::Built { rows, fingerprint, body, notes } = built.map_err(|stop| match stop {
        tar::Stop::Damaged { offset, reason, hint } => {
            failure(format!("{uri} at byte {offset}"), reason, hint)
        }
        tar::Stop::Read { offset, error } => unreadable(packing, Reached::Byte(offset), error),
        tar::Stop::Write(error) => writer.unwritable(&error),
    })?;
    Ok(Built { rows, fingerprint, body, notes, read: None })
}

/// Reads what is wanted of a Parquet file.
fn fill_table(
    writer: &mut Writer,
    store: &impl Store,
    source: &Source,
    progress: &Arc<Progress>,
) -> Result<Built> {
    let (uri, size) = (source.location.shown(), source.info.size);
    let head = store.ranges(&source.location)(0..size.min(HEAD))?;
    if let Some(mistake) = mistaken_for_parquet(&head) {
        return Err(failure(uri, mistake.reason, Some(mistake.hint)));
    }
    if source.is_taken_out(Packing::Plain)? {
        writer.take_out()?;
    }
    let lines = writer.lines().expect("rows of a table are always taken out");
    let read = Arc::new(AtomicU64::new(0));
    let ranges = counted(store.ranges(&source.location), Arc::clone(&read), Arc::clone(progress));
    let files = parquet::Files { entries: writer.records(), rows: lines };
    let Rules { max_line: max_text, max_copied: most_copied, .. } = *source.rules;
    let Progress { budget, unpacked, .. } = &**progress;
    let limits = parquet::Limits { budget, unpacked, most_copied, max_text };
    let built = parquet::build(ranges, size, &source.rules.fields, &files, &limits);
    let parquet::Built { rows, fingerprint, body } = built.map_err(|stop| match stop {
        parquet::Stop::File { reason, hint } => failure(&uri, reason, Some(hint)),
        parquet::Stop::Read(error) => error,
        parquet::Stop::Write(error) => writer.unwritable(&error),
    })?;
    // Columns that nobody wants are done with too.
    let left = size.saturating_sub(read.load(Ordering::Relaxed));
    progress.bytes.fetch_add(left, Ordering::Relaxed);
    Ok(Built { rows, fingerprint, body, notes: 0, read: None })
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

/// What comes out of compressed shards, all of them together, up to a limit: a few bytes may unpack
/// to any number.
struct Bounded<'a> {
    inner: Box<dyn Forward + 'a>,
    so_far: &'a Unpacked,
    most: u64,
}

impl Bounded<'_> {
    fn count(&self, bytes: u64) -> io::Result<()> {
        if self.so_far.add(bytes, self.most) {
            return Ok(());
        }
        let reason = format!("the shards unpack to more than {}", Bytes(self.most));
        Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count(count as u64)?;
        Ok(count)
    }
}

impl Forward for Bounded<'_> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.count(bytes)?;
        self.inner.skip(bytes)
    }
}

/// The same for bytes that are read at random.
fn counted(ranges: Ranges, read: Arc<AtomicU64>, progress: Arc<Progress>) -> Ranges {
    Box::new(move |range| {
        if progress.stopped.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let bytes = ranges(range)?;
        read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        progress.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    })
}

/// How far a source was read.
#[derive(Clone, Copy)]
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
        io::ErrorKind::FileTooLarge => (error.to_string(), Some(MORE_COPIED.to_owned())),
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
