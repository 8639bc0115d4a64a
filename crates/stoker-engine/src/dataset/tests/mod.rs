//! What the tests of this room share: a store in memory, and eyes for rows.

mod bombs;
mod chat;
mod energon;
mod forms;
mod hazards;
mod location;
mod mds;
mod memory;
mod parquet;
mod references;
mod rows;
mod shards;
mod sidecar;
mod tar;
mod webdataset;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tempfile::TempDir;

use super::chat::Record;
use super::media::Media;
use super::packing::Forward;
use super::{Dataset, Ranges, Store};
use crate::error::{Error, FetchError, FetchErrorKind, Flaw, Result};
use crate::fetch::ObjectInfo;
use crate::recipe;
use crate::sample::{Extent, Location, RawSample, Sample, SampleId, Scheme};

pub(super) const URI: &str = "s3://bucket/data/train.jsonl";

/// One object, at whatever address.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    pub(super) version: u64,
    /// Whether the version changes after it was first asked for.
    pub(super) changes: bool,
    /// What `stat` says in place of the true size.
    pub(super) size: Option<u64>,
    pub(super) stats: AtomicU64,
    pub(super) reads: AtomicU64,
}

impl Memory {
    pub(super) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), ..Self::default() }
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }
}

impl Store for Memory {
    fn stat(&self, _: &Location) -> Result<ObjectInfo> {
        let stats = self.stats.fetch_add(1, Ordering::SeqCst);
        let version = if self.changes { self.version + stats } else { self.version };
        let size = self.size.unwrap_or(self.bytes.len() as u64);
        Ok(ObjectInfo { size, version: Some(version.to_string()) })
    }

    fn list(&self, _: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        panic!("one object is not listed")
    }

    fn reader(&self, _: &Arc<Location>) -> Result<Box<dyn Forward + Send>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Bytewise(Cursor::new(self.bytes.clone()))))
    }

    fn ranges(&self, _: &Arc<Location>) -> Ranges {
        slices(self.bytes.clone())
    }
}

pub(super) fn slices(bytes: Vec<u8>) -> Ranges {
    let bytes = Bytes::from(bytes);
    Box::new(move |range| Ok(bytes.slice(range.start as usize..range.end as usize)))
}

/// Makes a reader of bytes skip.
pub(super) struct Bytewise<R>(pub(super) R);

impl<R: Read> Read for Bytewise<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Forward for Bytewise<R> {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        std::io::copy(&mut (&mut self.0).take(bytes), &mut std::io::sink()).map(|_| ())
    }
}

/// Many objects of one bucket, by key.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) objects: BTreeMap<String, Vec<u8>>,
    /// What was asked for, in order.
    pub(super) log: Mutex<Vec<String>>,
}

impl Bucket {
    pub(super) fn new<K: Into<String>, V: Into<Vec<u8>>>(
        objects: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let objects = objects.into_iter().map(|(key, bytes)| (key.into(), bytes.into()));
        Self { objects: objects.collect(), log: Mutex::default() }
    }

    fn note(&self, what: &str, key: &str) {
        self.log.lock().unwrap().push(format!("{what} {key}"));
    }

    /// How often something was asked for.
    pub(super) fn asked(&self, what: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.starts_with(what)).count()
    }

    fn info(&self, key: &str) -> Option<ObjectInfo> {
        let bytes = self.objects.get(key)?;
        let version = Some(format!("{:x}", xxhash_rust::xxh3::xxh3_64(bytes)));
        Some(ObjectInfo { size: bytes.len() as u64, version })
    }
}

impl Store for Bucket {
    fn stat(&self, object: &Location) -> Result<ObjectInfo> {
        self.note("stat", &object.key);
        self.info(&object.key).ok_or_else(|| {
            Error::Fetch(Box::new(FetchError {
                kind: FetchErrorKind::NotFound,
                range: None,
                attempts: 1,
                status: Some(404),
                reason: "no such object".to_owned(),
                hint: None,
                request_id: None,
                uri: object.to_string(),
            }))
        })
    }

    fn list(&self, prefix: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        self.note("list", &prefix.key);
        let keys = self.objects.keys().filter(|key| key.starts_with(&prefix.key));
        let object = |key: &String| {
            let info = self.info(key).unwrap();
            (Location { key: key.clone(), ..prefix.clone() }, info)
        };
        Ok(keys.map(object).collect())
    }

    fn reader(&self, object: &Arc<Location>) -> Result<Box<dyn Forward + Send>> {
        self.note("read", &object.key);
        Ok(Box::new(Bytewise(Cursor::new(self.objects[&object.key].clone()))))
    }

    fn ranges(&self, object: &Arc<Location>) -> Ranges {
        self.note("read", &object.key);
        slices(self.objects[&object.key].clone())
    }
}

impl Bucket {
    /// What a row is read as: its bytes, and what they mean.
    pub(super) fn sample(&self, dataset: &Dataset, row: u64) -> Result<Sample, Flaw> {
        let Extent { object, range } = dataset.locate(row)?;
        let bytes = match object.scheme {
            Scheme::File => fs::read(&object.key).unwrap(),
            _ => self.objects[&object.key].clone(),
        };
        let range = range.unwrap();
        let bytes = Bytes::from(bytes).slice(range.start as usize..range.end as usize);
        let id = SampleId { dataset: 0, row };
        dataset.parse(&RawSample { id, bytes, origin: dataset.origin(row) })
    }
}

pub(super) fn config(folder: &TempDir) -> recipe::Dataset {
    recipe::Dataset {
        source: vec![URI.to_owned()],
        index_dir: Some(folder.path().to_str().unwrap().to_owned()),
        ..recipe::Dataset::default()
    }
}

pub(super) fn open(config: &recipe::Dataset, store: &(impl Store + Sync)) -> Result<Dataset> {
    Dataset::open_from(config, store, &mut |_, _| {})
}

/// A dataset of these bytes, with the folder that its index lies in.
pub(super) fn dataset(bytes: impl Into<Vec<u8>>) -> (Dataset, Memory, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Memory::new(bytes);
    let dataset = open(&config(&folder), &store).unwrap();
    (dataset, store, folder)
}

/// The error that these bytes are refused with, in words.
pub(super) fn refusal(bytes: impl Into<Vec<u8>>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let error = open(&config(&folder), &Memory::new(bytes)).unwrap_err();
    assert_eq!(files(&folder), [""; 0], "a failed build leaves no files");
    error.to_string()
}

pub(super) fn files(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// All rows as a trainer would read them: line number and bytes.
pub(super) fn rows(dataset: &Dataset, store: &Memory) -> Vec<(usize, Vec<u8>)> {
    let row = |row| {
        let Extent { object, range } = dataset.locate(row).unwrap();
        let range = range.unwrap();
        let range = range.start as usize..range.end as usize;
        let bytes = match object.scheme {
            Scheme::File => fs::read(&object.key).unwrap()[range].to_vec(),
            _ => store.bytes[range].to_vec(),
        };
        let origin = dataset.origin(row);
        let line = origin.strip_prefix(URI).unwrap().strip_prefix(':').unwrap();
        (line.parse().unwrap(), bytes)
    };
    (0..dataset.rows()).map(row).collect()
}

/// All rows of a bucket: origin and text.
pub(super) fn rows_of(dataset: &Dataset, store: &Bucket) -> Vec<String> {
    let row = |row| {
        let Extent { object, range } = dataset.locate(row).unwrap();
        let bytes = match object.scheme {
            Scheme::File => fs::read(&object.key).unwrap(),
            _ => store.objects[&object.key].clone(),
        };
        let range = range.unwrap();
        let bytes = bytes[range.start as usize..range.end as usize].to_vec();
        format!("{} {}", dataset.origin(row), String::from_utf8(bytes).unwrap())
    };
    (0..dataset.rows()).map(row).collect()
}

/// The rows of a text by a naive splitter.
pub(super) fn naive_rows(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').enumerate().map(|(number, line)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        (number + 1, line.trim_ascii_start().to_vec())
    });
    lines.filter(|(_, line)| !line.is_empty()).collect()
}

/// That many rows.
pub(super) fn numbered(rows: u32) -> String {
    let rows: Vec<String> = (0..rows).map(|row| format!("{{\"row\": {row}}}\n")).collect();
    rows.concat()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// What a line means to a dataset with these settings (`source`, `media_root`, `allow_http`).
pub(super) fn parse_with(
    config: &recipe::Dataset,
    line: impl Into<Vec<u8>>,
) -> Result<Sample, Flaw> {
    let source = Location::parse_object(&config.shown()).unwrap();
    let root = config.media_root.as_ref().map(|root| Location::parse(root).unwrap());
    let media = Media::new(&source, root.as_ref(), config.allow_http);
    let record = Record::from_json(&line.into(), "the line")?;
    let id = SampleId { dataset: 0, row: 6 };
    let origin = format!("{}:7", config.shown());
    super::chat::sample(id, record, &config.fields, &media, &origin)
}

pub(super) fn parse(line: impl Into<Vec<u8>>) -> Result<Sample, Flaw> {
    parse_with(
        &recipe::Dataset { source: vec![URI.to_owned()], ..recipe::Dataset::default() },
        line,
    )
}
