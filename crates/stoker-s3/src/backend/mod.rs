//! Where objects lie: in memory, or in a folder whose subfolders are the buckets.
//!
//! Both keep what an S3 client relies on: ETags that change with the content and only then, keys
//! listed in the order of their UTF-8 bytes.

mod folder;
mod memory;

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use bytes::Bytes;

use crate::body::Source;
use folder::Folder;
use memory::Memory;

/// Where objects lie.
#[derive(Debug)]
pub struct Backend(Kind);

#[derive(Debug)]
enum Kind {
    Memory(Memory),
    Folder(Folder),
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) size: u64,
    /// Without quotes.
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
}

/// An object that is being read.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) meta: Meta,
    pub(crate) source: Source,
}

impl Backend {
    /// Objects in memory.
    pub fn memory() -> Self {
        Self(Kind::Memory(Memory::default()))
    }

    /// Objects in a folder: `root/bucket/key`. Keys that are no plain relative path (empty, `.` or
    /// `..` segments) can't be stored there and don't exist there.
    pub fn folder(root: impl Into<PathBuf>) -> Self {
        Self(Kind::Folder(Folder::new(root.into())))
    }

    pub(crate) fn buckets(&self) -> io::Result<Vec<String>> {
        match &self.0 {
            Kind::Memory(memory) => Ok(memory.buckets()),
            Kind::Folder(folder) => folder.buckets(),
        }
    }

    pub(crate) fn has_bucket(&self, bucket: &str) -> bool {
        match &self.0 {
            Kind::Memory(memory) => memory.has_bucket(bucket),
            Kind::Folder(folder) => folder.has_bucket(bucket),
        }
    }

    pub(crate) fn create_bucket(&self, bucket: &str) -> io::Result<()> {
        match &self.0 {
            Kind::Memory(memory) => {
                memory.create_bucket(bucket);
                Ok(())
            }
            Kind::Folder(folder) => folder.create_bucket(bucket),
        }
    }

    pub(crate) fn get(&self, bucket: &str, key: &str) -> io::Result<Option<Object>> {
        match &self.0 {
            Kind::Memory(memory) => Ok(memory.get(bucket, key)),
            Kind::Folder(folder) => folder.get(bucket, key),
        }
    }

    /// Stores an object in a bucket that exists.
    pub(crate) fn put(&self, bucket: &str, key: &str, bytes: Bytes) -> io::Result<Meta> {
        match &self.0 {
            Kind::Memory(memory) => Ok(memory.put(bucket, key, bytes)),
            Kind::Folder(folder) => folder.put(bucket, key, &bytes),
        }
    }

    pub(crate) fn delete(&self, bucket: &str, key: &str) -> io::Result<()> {
        match &self.0 {
            Kind::Memory(memory) => {
                memory.delete(bucket, key);
                Ok(())
            }
            Kind::Folder(folder) => folder.delete(bucket, key),
        }
    }

    /// Up to `limit` objects whose keys start with `prefix` and come after `after`, in order.
    pub(crate) fn list(
        &self,
        bucket: &str,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> io::Result<Vec<(String, Meta)>> {
        match &self.0 {
            Kind::Memory(memory) => Ok(memory.list(bucket, prefix, after, limit)),
            Kind::Folder(folder) => folder.list(bucket, prefix, after, limit),
        }
    }
}
