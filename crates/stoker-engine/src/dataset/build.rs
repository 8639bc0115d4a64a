//! Builds the index of a source: one pass, bounded memory, whole or not at all.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::packing::{Mistake, Packing, Refusal, Text, unpack};
use super::scan::{Event, Stop, Totals, scan};
use super::sidecar::{HEADER, Header, Index, Key, Place, Row};
use super::{Store, failure, public_uri};
use crate::error::{DatasetError, DatasetErrorKind, Error, Result};
use crate::fetch::ObjectInfo;
use crate::sample::{Location, Scheme};

const BUFFER: usize = 256 << 10;
const NO_SPACE: &str = "free some space, or set dataset.index-dir to a folder with more of it";
const NO_PLACE: &str = "set dataset.index-dir to a folder that can be written";
const CUT_OFF: &str = "the file is cut off or damaged: copy it again, or compress it again";
const CHANGED: &str = "wait until the source is complete, then start again";

/// What is indexed.
pub(super) struct Source {
    pub(super) location: Arc<Location>,
    pub(super) info: ObjectInfo,
    pub(super) max_line: u64,
}

/// Remote sources up to this size have their lines kept: a few gigabytes of disk for one request
/// less a sample. Larger ones are mostly images in base64.
const KEPT_LINES: u64 = 4 << 30;

impl Source {
    /// Whether the lines are written to a file of their own.
    fn keeps_lines(&self, packing: Packing) -> bool {
        let remote = self.location.scheme != Scheme::File;
        packing != Packing::Plain || (remote && self.info.size <= KEPT_LINES)
    }

    pub(super) fn key(&self) -> Key {
        Key::new(&self.location, &self.info, self.max_line)
    }
}

/// Builds the index in the first place that can be written.
pub(super) fn build<'a>(
    store: &impl Store,
    source: &Source,
    places: &'a [Place],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Index, &'a Place)> {
    let Source { location, info, max_line } = source;
    let uri = public_uri(location);
    let (mut writer, place) = Writer::claim(places)?;
    let read = Cell::new(0);
    let raw = Counted { inner: store.reader(location)?, read: &read, size: info.size, progress };
    let text = unpack(raw).map_err(|refusal| match refusal {
        Refusal::Mistake(Mistake { reason, hint }) => failure(&uri, reason, Some(hint)),
        Refusal::Unreadable(packing, error) => unreadable(&uri, packing, 0, error),
    })?;
    if source.keeps_lines(text.packing) {
        writer.keep_lines()?;
    }
    let totals = writer.fill(text, *max_line, &uri)?;
    if read.get() != info.size || store.stat(location)? != *info {
        let reason = "the source changed while it was read";
        return Err(failure(uri, reason, Some(CHANGED)));
    }
    if totals.rows == 0 {
        let reason = "the source has no samples: it is empty or holds blank lines alone";
        return Err(failure(uri, reason, Some("check dataset.source")));
    }
    let at = writer.records.path.clone();
    let index =
        writer.publish(source.key(), totals, place).map_err(|error| unwritable(&at, &error))?;
    Ok((index, place))
}

/// The files that are written.
struct Writer {
    records: Temporary,
    folder: PathBuf,
    lines: Option<Temporary>,
    records_hash: u64,
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
                    return Ok((Self { records, folder, lines: None, records_hash: 0 }, place));
                }
                Err(error) => last = Some(unwritable(&place.index(), &error)),
            }
        }
        Err(last.expect("there is at least one place"))
    }

    fn keep_lines(&mut self) -> Result<()> {
        let lines = Temporary::create(&self.folder);
        self.lines = Some(lines.map_err(|error| unwritable(&self.records.path, &error))?);
        Ok(())
    }

    /// Reads the text to its end and writes records, and lines where they are kept.
    fn fill(&mut self, mut text: Text<'_>, max_line: u64, uri: &str) -> Result<Totals> {
        let path = self.records.path.clone();
        let written = |error: io::Error| unwritable(&path, &error);
        let mut lines = self.lines.as_ref().map(|lines| Lines::new(&lines.file));
        let mut records = Records::new(&self.records.file).map_err(written)?;
        let mut visit = |event: Event<'_>| match event {
            Event::Bytes(bytes) => lines.as_mut().map_or(Ok(()), |lines| lines.write(bytes)),
            Event::Row { offset, length, line } => {
                let offset = lines.as_mut().map_or(Ok(offset), Lines::end)?;
                records.write(offset, length, line)
            }
        };
        let totals = scan(&mut text.reader, text.offset, max_line, &mut visit);
        let totals = totals.map_err(|stop| match stop {
            Stop::Read { error, line } => unreadable(uri, text.packing, line, error),
            Stop::Write(error) => written(error),
        })?;
        self.records_hash = records.finish().map_err(written)?;
        lines.map_or(Ok(()), |mut lines| lines.file.flush()).map_err(written)?;
        Ok(totals)
    }

    /// Lines first: an index is never seen without them.
    fn publish(mut self, key: Key, totals: Totals, place: &Place) -> io::Result<Index> {
        let Totals { rows, fingerprint } = totals;
        let lines = match self.lines.take() {
            Some(lines) => {
                let size = lines.file.metadata()?.len();
                lines.publish(&place.lines(fingerprint, key))?;
                Some(size)
            }
            None => None,
        };
        let header = Header { key, rows, fingerprint, lines, records: self.records_hash };
        self.records.file.seek(SeekFrom::Start(0))?;
        self.records.file.write_all(&header.to_bytes())?;
        Index::fresh(self.records.publish(&place.index())?, header)
    }
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

/// Counts compressed bytes and tells the progress.
struct Counted<'a, R> {
    inner: R,
    read: &'a Cell<u64>,
    size: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        (self.progress)(self.read.get(), self.size);
        Ok(count)
    }
}

/// The source can't be read on: an error of the fetch room is passed on as it is.
fn unreadable(uri: &str, packing: Packing, line: u64, error: io::Error) -> Error {
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
    let (kind, line, uri) = (DatasetErrorKind::Data, Some(line + 1), uri.to_owned());
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
