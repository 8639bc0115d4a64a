//! The versions of objects, as they were told when the data were opened: those that the cache serves.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::entry::Version;
use crate::fetch::ObjectInfo;
use crate::sample::{Location, Scheme};

/// Versions by object, both as hashes.
#[derive(Debug, Default)]
pub(in crate::fetch) struct Pins(Mutex<HashMap<u64, Version>>);

impl Pins {
    pub(in crate::fetch) fn learn(&self, object: &Location, info: &ObjectInfo) {
        if object.scheme != Scheme::File {
            let mut pins = self.lock();
            pins.insert(Self::key(object), Version::of(info.version.as_deref()));
        }
    }

    /// The version that an object is to have; `None` where nobody told it.
    pub(super) fn of(&self, object: &Location) -> Option<Version> {
        self.lock().get(&Self::key(object)).copied().filter(|version| version.0 > 0)
    }

    /// What `data` means at these versions.
    pub(super) fn scope(&self, data: u64) -> u64 {
        let pair = |(key, version): (&u64, &Version)| {
            let words = [key.to_le_bytes(), version.0.to_le_bytes()];
            xxh3_64(words.as_flattened())
        };
        self.lock().iter().map(pair).fold(data, |all, one| all ^ one)
    }

    fn key(object: &Location) -> u64 {
        xxh3_64(object.to_string().as_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Version>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
