//! Which samples exist, where they lie and what they mean.
//!
//! A dataset is an ordered list of shards (`shards`): JSON lines, tar archives or Parquet, on any
//! store. Each shard is read once, from front to back, and an index is left in a file beside it
//! (`sidecar`): row → where it lies. Opening it again costs one check of that file, and a row costs
//! one or two short reads from it, so that a billion rows take no memory (`index`). What can't be
//! read at random (compressed shards) or would cost a request a row (small remote JSON lines) is
//! kept in a second file by the same pass.
//!
//! A row becomes a record, and a record a [`Sample`] in `chat`; its image references become
//! addresses in `media`, which is also where data are kept from naming what they must not (local
//! files of the machine, private hosts). What is wrong with a shard as a whole is an [`Error`]; what
//! is wrong with one row is a [`Flaw`].

mod budget;
mod build;
mod chat;
mod content;
mod energon;
mod entries;
mod entry;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod index;
mod json;
mod lines;
mod location;
mod mds;
mod media;
mod packing;
mod parquet;
mod public_host;
mod scan;
mod shards;
mod sidecar;
mod stretch;
mod tar;
#[cfg(test)]
mod tests;
mod turn;
mod writer;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::error::{DatasetError, DatasetErrorKind, Error, Flaw, Problem, Result};
use crate::fetch::{Fetcher, ObjectInfo};
use crate::metrics::Room;
use crate::recipe::{self, Format};
use crate::sample::{Extent, Location, RawSample, Sample, Scheme};

use build::Source;
use chat::Record;
use index::{Index, Part};
use media::Media;
use packing::Forward;
use sidecar::Row;
use stretch::Rules;

/// An indexed dataset.
#[derive(Debug)]
pub struct Dataset {
    index: Index,
    rules: Arc<build::Rules>,
    media_root: Option<Location>,
    allow_http: bool,
    /// Samples of shards as another file tells it.
    told: HashMap<Location, u64>,
}

impl Dataset {
    /// Opens the indexes of all shards, and builds first what is missing or out of date. `progress`
    /// is told bytes read and bytes in all.
    pub fn open(
        config: &recipe::Dataset,
        fetcher: &Fetcher,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        Self::open_from(config, fetcher, progress)
    }

    fn open_from(
        config: &recipe::Dataset,
        store: &(impl Store + Sync),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let media_root = config.media_root.as_deref().map(Location::parse).transpose();
        let media_root = media_root.map_err(problem("dataset.media-root"))?;
        let shards::Shards { format, all: shards, told } = shards::find(config, store)?;
        let rules = Arc::new(build::Rules {
            format,
            max_line: config.max_line.min(sidecar::LONGEST_LINE),
            max_copied: config.max_copied,
            fields: config.fields.clone(),
        });
        if shards.is_empty() {
            let reason = "the source names no shards";
            return Err(failure(config.shown(), reason, Some("check dataset.source")));
        }
        let total = shards.iter().map(|shard| shard.info.size).sum();
        let sources = shards.into_iter().map(|shards::Shard { location, info, columns }| {
            let rules = Arc::clone(&rules);
            Source { location, info, total, rules, columns }
        });
        let index = Index::open(store, sources.collect(), config.index_dir.as_deref(), progress)?;
        Ok(Self { index, rules, media_root, allow_http: config.allow_http, told })
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.index.rows()
    }

    /// The first row of each shard that has any, ascending: rows of a shard lie side by side.
    pub fn shards(&self) -> Vec<u64> {
        let mut begins = self.index.begins().to_vec();
        begins.truncate(self.index.parts.len());
        begins.dedup();
        begins.retain(|begin| *begin < self.rows());
        begins
    }

    /// How many shards there are, with those that have no rows.
    pub fn shard_count(&self) -> usize {
        self.index.parts.len()
    }

    /// The file that the index is in; of several shards, the first one's.
    pub fn index_path(&self) -> &Path {
        &self.index.parts[0].sidecar.path
    }

    /// The files of the index for another host: with the same names in another index folder they
    /// are found there. None if `limit` bytes are less than what was copied beside the index, which is
    /// no use without; and none where it lies beside its shards, and has to be with them.
    pub fn index_files(&self, limit: u64) -> Vec<PathBuf> {
        let parts = &self.index.parts;
        let copied: u64 = parts.iter().filter_map(|part| part.sidecar.header.lines).sum();
        let is_beside = |part: &Part| {
            let folder = Path::new(&part.location.key).parent();
            part.location.scheme == Scheme::File && part.sidecar.path.parent() == folder
        };
        if copied > limit || parts.iter().any(is_beside) {
            return Vec::new();
        }
        let files = parts.iter().map(|part| &part.sidecar);
        files.flat_map(|it| std::iter::once(&it.path).chain(&it.lines)).cloned().collect()
    }

    /// Identity of the data: a hash of all rows. It changes when a row does, and not when the
    /// shards are moved or compressed.
    pub fn fingerprint(&self) -> u64 {
        if let [only] = self.index.parts.as_slice() {
            return only.sidecar.header.fingerprint;
        }
        let mut hash = Xxh3::new();
        for part in &self.index.parts {
            hash.update(&part.sidecar.header.rows.to_le_bytes());
            hash.update(&part.sidecar.header.fingerprint.to_le_bytes());
        }
        hash.digest()
    }

    /// What the owner of the data should know and is no error, one sentence a shard.
    pub fn notes(&self) -> Vec<String> {
        let noted = self.index.parts.iter().flat_map(|part| {
            let header = part.sidecar.header;
            let unmarked = header.notes & tar::NO_END_MARK != 0;
            let told = self.told.get(&*part.location).filter(|told| **told != header.rows);
            let notes = [
                (header.rows == 0).then(|| "the shard has no samples".to_owned()),
                unmarked.then(|| "the archive has no end mark: it may be cut off".to_owned()),
                told.map(|told| {
                    format!("Energon counted {told} samples, and there are {}", header.rows)
                }),
            ];
            let uri = part.location.shown();
            notes.into_iter().flatten().map(move |note| format!("{note}: {uri}"))
        });
        noted.collect()
    }

    /// Where a row lies; a flaw for a row that is known to be unusable.
    pub fn locate(&self, row: u64) -> Result<Extent, Flaw> {
        let (part, number, shard) = self.part(row)?;
        let range = match self.rules.format {
            Format::Jsonl => {
                let Row { offset, length, .. } = self.line(shard, number)?;
                if u64::from(length) > self.rules.max_line {
                    return Err(too_long_line(length.into(), self.rules.max_line));
                }
                offset..offset + u64::from(length)
            }
            _ => {
                stretch::locate(&self.entry(shard, number)?, self.parts(part), self.rules.max_line)?
            }
        };
        Ok(Extent { object: Arc::clone(&part.data), range: Some(range) })
    }

    /// Where a row stands, for people: file and line, or archive, key and byte.
    pub fn origin(&self, row: u64) -> String {
        let unknown = |uri: &str| format!("{uri} (row {row})");
        let Ok((part, number, shard)) = self.part(row) else {
            return unknown(&self.index.parts[0].location.shown());
        };
        let uri = part.location.shown();
        match self.rules.format {
            Format::Jsonl => match self.line(shard, number) {
                Ok(Row { skipped, .. }) => format!("{uri}:{}", number + u64::from(skipped) + 1),
                Err(_) => unknown(&uri),
            },
            _ => match self.entry(shard, number) {
                Ok(entry) => stretch::origin(&entry, &uri, self.parts(part)),
                Err(_) => unknown(&uri),
            },
        }
    }

    /// What a row means.
    pub fn parse(&self, raw: &RawSample) -> Result<Sample, Flaw> {
        let (part, number, shard) = self.part(raw.id.row)?;
        let media = Media::new(&part.location, self.media_root.as_ref(), self.allow_http);
        let record = if self.rules.format == Format::Jsonl {
            Record::from_json(&raw.bytes, chat::LINE)?
        } else {
            let entry = self.entry(shard, number)?;
            stretch::record(&entry, &raw.bytes, &part.data, self.parts(part))?
        };
        chat::sample(raw.id, record, &self.rules.fields, &media, &raw.origin)
    }

    /// The web servers that the recipe names: those of the shards, and of the media root.
    pub fn web_servers(&self) -> impl Iterator<Item = &str> {
        let shards = self.index.parts.iter().map(|part| &*part.location);
        shards.chain(&self.media_root).filter_map(Location::web_server)
    }

    /// How the parts of a row that is no line are told apart.
    fn parts<'a>(&'a self, part: &'a Part) -> Rules<'a> {
        match &part.columns {
            Some(columns) => Rules::Columns(columns),
            None if self.rules.format == Format::Parquet => Rules::Row,
            None => Rules::Members(&self.rules.fields),
        }
    }

    fn part(&self, row: u64) -> Result<(&Part, u64, usize), Flaw> {
        let place = self.index.place(row);
        let (shard, number) = place.ok_or_else(|| {
            flaw("index-unreadable", format!("row {row} is beyond the last of {}", self.rows()))
        })?;
        Ok((&self.index.parts[shard], number, shard))
    }

    fn line(&self, shard: usize, number: u64) -> Result<Row, Flaw> {
        let row = self.index.file(shard).and_then(|file| Row::read(&file, number));
        row.map_err(|error| unreadable(number, &error))
    }

    fn entry(&self, shard: usize, number: u64) -> Result<Vec<u8>, Flaw> {
        let sidecar = &self.index.parts[shard].sidecar;
        let (bytes, rows) = (sidecar.bytes, sidecar.header.rows);
        let file = self.index.file(shard);
        let entry = file.and_then(|file| entries::read(&file, bytes, rows, number));
        entry.map_err(|error| unreadable(number, &error))
    }
}

fn unreadable(number: u64, error: &std::io::Error) -> Flaw {
    let reason = format!("row {number} of the shard can't be read from its index: {error}");
    flaw("index-unreadable", reason).hint("delete the index, so that it is built anew")
}

fn too_long_line(length: u64, limit: u64) -> Flaw {
    let reason = format!("a line of {length} bytes is longer than the limit of {limit}");
    flaw("too-long-line", reason).hint("raise dataset.max-line, or look for a missing line break")
}

/// What the index is built from: the fetch room, or a double of it in the tests.
trait Store {
    fn stat(&self, object: &Location) -> Result<ObjectInfo>;
    fn stat_all(&self, objects: &[Arc<Location>]) -> Result<Vec<ObjectInfo>> {
        objects.iter().map(|object| self.stat(object)).collect()
    }
    /// All objects whose keys begin as that of `prefix` does.
    fn list(&self, prefix: &Location) -> Result<Vec<(Location, ObjectInfo)>>;
    fn reader(&self, object: &Arc<Location>) -> Result<Box<dyn Forward + Send>>;
    /// Reads any bytes of an object.
    fn ranges(&self, object: &Arc<Location>) -> Ranges;
}

/// Reads bytes of one object.
type Ranges = Box<dyn Fn(Range<u64>) -> Result<Bytes> + Send + Sync>;

impl Store for Fetcher {
    fn stat(&self, object: &Location) -> Result<ObjectInfo> {
        self.stat_blocking(object)
    }

    fn stat_all(&self, objects: &[Arc<Location>]) -> Result<Vec<ObjectInfo>> {
        self.stat_all_blocking(objects)
    }

    fn list(&self, prefix: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        self.list_blocking(prefix)
    }

    fn reader(&self, object: &Arc<Location>) -> Result<Box<dyn Forward + Send>> {
        Ok(Box::new(Self::reader(self, object)?))
    }

    fn ranges(&self, object: &Arc<Location>) -> Ranges {
        let (fetcher, object) = (self.clone(), Arc::clone(object));
        Box::new(move |range| {
            let object = Arc::clone(&object);
            fetcher.read_blocking(&Extent { object, range: Some(range) })
        })
    }
}

fn flaw(code: &'static str, reason: impl Into<String>) -> Flaw {
    Flaw::new(Room::Dataset, code, reason)
}

/// A word of the data in a message: only its beginning, as data may be hostile.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 120;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// An error of the source as a whole.
fn failure(uri: impl Into<String>, reason: impl Into<String>, hint: Option<&str>) -> Error {
    let (kind, hint) = (DatasetErrorKind::Data, hint.map(str::to_owned));
    Error::Dataset(DatasetError { kind, line: None, reason: reason.into(), hint, uri: uri.into() })
}

/// An address that the recipe got wrong.
fn problem(path: &str) -> impl FnOnce(Flaw) -> Error {
    move |flaw| {
        let hint = flaw.hint.map(str::to_owned);
        Error::Recipe(vec![Problem { path: path.to_owned(), reason: flaw.reason, hint }])
    }
}
