//! `[fetch.cache]`: a folder on a local disk that keeps what was read from the store.

use serde_json::{Value, json};

use super::read;
use super::reader::Reader;
use super::units::write_size;

/// Smallest cache.
const SMALLEST: u64 = 1 << 20;
/// Largest cache.
const LARGEST: u64 = 1 << 50;

/// `[fetch.cache]`: the local cache; both keys have to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Folder on a local disk. Ranks, runs and containers on one machine may share it.
    pub path: String,
    /// Most bytes that it holds, of all who share it together.
    pub size: u64,
}

impl Cache {
    /// The keys, in order.
    pub(super) const KEYS: [&str; 2] = ["path", "size"];

    pub(super) fn read(fetch: &mut Reader<'_>) -> Option<Self> {
        if !fetch.has("cache") {
            // A null that is written out is as good as none.
            return fetch.table("cache").and(None);
        }
        fetch.inner("cache", "fetch.cache", |section| {
            let missing = Self::KEYS.map(|key| !section.has(key));
            if missing[0] {
                let hint = "name a folder on a local disk, or leave fetch.cache out";
                section.problem("path", "is missing", Some(hint));
            }
            if missing[1] {
                let hint = "say how much of the disk it may take, such as \"500GiB\"";
                section.problem("size", "is missing", Some(hint));
            }
            let path = read::local_path(section, "path");
            let size = section.size("size", SMALLEST..=LARGEST);
            Some(Self { path: path?, size: size? })
        })
    }

    pub(super) fn write(&self) -> Value {
        json!({"path": self.path, "size": write_size(self.size)})
    }
}
