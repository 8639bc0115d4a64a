//! Which samples exist, where they lie and what they mean: a JSONL of chats (`chat-jsonl`).
//!
//! The source is read once, from front to back, and an index is left in a file beside it
//! (`sidecar`): row → offset, length and line number. Opening it again costs one check of that
//! file, and a row costs one read of 16 bytes from it, so that ten million rows take no memory. A
//! compressed source can't be read at random, and reading rows of a remote one would cost a request
//! each, so the same pass leaves their lines in a second file.
//!
//! A line becomes a [`Sample`] in `chat`; its image references become addresses in `media`,
//! which is also where data are kept from naming what they must not (local files of the machine,
//! private hosts). What is wrong with the source as a whole is an [`Error`]; what is wrong with one
//! line is a [`Flaw`].

mod build;
mod chat;
mod content;
mod location;
mod media;
mod packing;
mod public_host;
mod scan;
mod sidecar;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{DatasetError, DatasetErrorKind, Error, Flaw, Problem, Result};
use crate::fetch::{Fetcher, ObjectInfo};
use crate::metrics::Room;
use crate::recipe;
use crate::sample::{Extent, Location, RawSample, Sample, Scheme};

use build::{Source, build};
use media::Media;
use sidecar::{Index, Row};

/// An indexed dataset.
#[derive(Debug)]
pub struct Dataset {
    uri: String,
    /// What rows are read from: the source, or the lines that were taken out of a compressed one.
    lines: Arc<Location>,
    index: Index,
    index_path: PathBuf,
    max_line: u64,
    media: Media,
}

impl Dataset {
    /// Opens the index, and builds it first where there is none or it is out of date. `progress` is
    /// told bytes read and the source's size.
    pub fn open(
        config: &recipe::Dataset,
        fetcher: &Fetcher,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        Self::open_from(config, fetcher, progress)
    }

    fn open_from(
        config: &recipe::Dataset,
        store: &impl Store,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let location =
            Location::parse_object(&config.shown()).map_err(problem("dataset.source"))?;
        let media = Media::new(&location, config).map_err(problem("dataset.media-root"))?;
        let info = store.stat(&location)?;
        let max_line = config.max_line.min(sidecar::LONGEST_LINE);
        let source = Source { location: Arc::new(location), info, max_line };
        let key = source.key();
        let places = sidecar::places(&source.location, config.index_dir.as_deref())?;
        let (index, place) = match places.iter().find_map(|place| Index::open(place, key)) {
            Some(found) => found,
            None => build(store, &source, &places, progress)?,
        };
        let lines = match index.lines_file(place) {
            Some(path) => Arc::new(Location::of_file(&path)),
            None => Arc::clone(&source.location),
        };
        let (uri, index_path) = (public_uri(&source.location), place.index());
        Ok(Self { uri, lines, index, index_path, max_line, media })
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.index.rows()
    }

    /// The file that the index is in.
    pub fn index_path(&self) -> &Path {
        &self.index_path
    }

    /// Identity of the data: a hash of all rows. It changes when a row does, and not when the
    /// source is moved or compressed.
    pub fn fingerprint(&self) -> u64 {
        self.index.fingerprint()
    }

    /// Where a row's line lies; a flaw for a row that is known to be unusable (too long).
    pub fn locate(&self, row: u64) -> Result<Extent, Flaw> {
        let Row { offset, length, .. } = self.index.row(row).map_err(|error| {
            flaw("index-unreadable", format!("row {row} can't be read from the index: {error}"))
        })?;
        if u64::from(length) > self.max_line {
            let limit = self.max_line;
            let reason = format!("a line of {length} bytes is longer than the limit of {limit}");
            return Err(flaw("too-long-line", reason)
                .hint("raise dataset.max-line, or look for a missing line break"));
        }
        let range = offset..offset + u64::from(length);
        Ok(Extent { object: Arc::clone(&self.lines), range: Some(range) })
    }

    /// `file:line` of a row, for people.
    pub fn origin(&self, row: u64) -> String {
        match self.index.row(row) {
            Ok(Row { skipped, .. }) => format!("{}:{}", self.uri, row + u64::from(skipped) + 1),
            Err(_) => format!("{} (row {row})", self.uri),
        }
    }

    /// What a line means.
    pub fn parse(&self, raw: &RawSample) -> Result<Sample, Flaw> {
        chat::parse(raw, &self.media)
    }
}

/// What the index is built from: the fetch room, or a double of it in the tests.
trait Store {
    fn stat(&self, object: &Location) -> Result<ObjectInfo>;
    fn reader(&self, object: &Arc<Location>) -> Result<Box<dyn Read + Send>>;
}

impl Store for Fetcher {
    fn stat(&self, object: &Location) -> Result<ObjectInfo> {
        self.stat_blocking(object)
    }

    fn reader(&self, object: &Arc<Location>) -> Result<Box<dyn Read + Send>> {
        Ok(Box::new(Self::reader(self, object)?))
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

/// The address without its query, which may hold a signature.
fn public_uri(location: &Location) -> String {
    let uri = location.to_string();
    match (location.scheme, uri.split_once('?')) {
        (Scheme::Http | Scheme::Https, Some((address, _))) => address.to_owned(),
        _ => uri,
    }
}
