//! Objects in memory: a sorted map for each bucket.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::{Meta, Object};
use crate::body::Source;

type Bucket = BTreeMap<String, (Meta, Bytes)>;

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<BTreeMap<String, Bucket>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn buckets(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn has_bucket(&self, bucket: &str) -> bool {
        self.lock().contains_key(bucket)
    }

    pub(super) fn create_bucket(&self, bucket: &str) {
        self.lock().entry(bucket.to_owned()).or_default();
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> Option<Object> {
        let buckets = self.lock();
        let (meta, bytes) = buckets.get(bucket)?.get(key)?;
        Some(Object { meta: meta.clone(), source: Source::Memory(bytes.clone()) })
    }

    pub(super) fn put(&self, bucket: &str, key: &str, bytes: Bytes) -> Meta {
        let etag = format!("{:032x}", xxh3_128(&bytes));
        let meta = Meta { size: bytes.len() as u64, etag, modified: now() };
        let mut buckets = self.lock();
        let objects = buckets.entry(bucket.to_owned()).or_default();
        objects.insert(key.to_owned(), (meta.clone(), bytes));
        meta
    }

    pub(super) fn delete(&self, bucket: &str, key: &str) {
        if let Some(objects) = self.lock().get_mut(bucket) {
            objects.remove(key);
        }
    }

    pub(super) fn list(
        &self,
        bucket: &str,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Vec<(String, Meta)> {
        let start = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let buckets = self.lock();
        let Some(objects) = buckets.get(bucket) else { return Vec::new() };
        objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit)
            .map(|(key, (meta, _))| (key.clone(), meta.clone()))
            .collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "Last-Modified is a wall-clock time by definition")]
fn now() -> SystemTime {
    SystemTime::now()
}
