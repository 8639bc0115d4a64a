//! What the local cache counts.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Counter, Gauge};
use crate::error::Bytes;

/// What a loader's local cache did; all zero without one.
#[derive(Debug, Default)]
pub struct CacheMeter {
    /// Reads that it answered.
    pub hits: Counter,
    /// Bytes that they brought.
    pub hit_bytes: Counter,
    /// Reads that it might have answered and did not: they went to the store.
    pub misses: Counter,
    /// Entries that were written.
    pub admitted: Counter,
    /// Bytes of them.
    pub admitted_bytes: Counter,
    /// Entries that were not taken, as there is no room that may be had for them.
    pub refused: Counter,
    /// Entries that were not taken, as the disk was behind or the loader was closing.
    pub dropped: Counter,
    /// Entries that were found damaged, and taken out.
    pub damaged: Counter,
    /// Entries that had to go for others.
    pub evicted: Counter,
    /// Reads and writes that the disk failed.
    pub failed: Counter,
    /// Bytes that wait to be written.
    pub queued_bytes: Gauge,
}

/// What a loader's local cache did; all zero without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheReport {
    /// Reads that it answered.
    #[serde(rename = "cache_hits")]
    pub hits: u64,
    /// Bytes that they brought.
    #[serde(rename = "cache_hit_bytes")]
    pub hit_bytes: u64,
    /// Reads that it might have answered and did not: they went to the store.
    #[serde(rename = "cache_misses")]
    pub misses: u64,
    /// Entries that were written.
    #[serde(rename = "cache_admitted")]
    pub admitted: u64,
    /// Bytes of them.
    #[serde(rename = "cache_admitted_bytes")]
    pub admitted_bytes: u64,
    /// Entries that were not taken, as there is no room that may be had for them.
    #[serde(rename = "cache_refused")]
    pub refused: u64,
    /// Entries that were not taken, as the disk was behind or the loader was closing.
    #[serde(rename = "cache_dropped")]
    pub dropped: u64,
    /// Entries that were found damaged, and taken out.
    #[serde(rename = "cache_damaged")]
    pub damaged: u64,
    /// Entries that had to go for others.
    #[serde(rename = "cache_evicted")]
    pub evicted: u64,
    /// Reads and writes that the disk failed.
    #[serde(rename = "cache_failed")]
    pub failed: u64,
}

impl CacheReport {
    pub(super) fn of(meter: &CacheMeter) -> Self {
        Self {
            hits: meter.hits.get(),
            hit_bytes: meter.hit_bytes.get(),
            misses: meter.misses.get(),
            admitted: meter.admitted.get(),
            admitted_bytes: meter.admitted_bytes.get(),
            refused: meter.refused.get(),
            dropped: meter.dropped.get(),
            damaged: meter.damaged.get(),
            evicted: meter.evicted.get(),
            failed: meter.failed.get(),
        }
    }
}

impl fmt::Display for CacheReport {
    /// A line; nothing where there is no cache.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        write!(
            f,
            "cache: {} hits ({}), {} misses, {} entries written ({})",
            self.hits,
            Bytes(self.hit_bytes),
            self.misses,
            self.admitted,
            Bytes(self.admitted_bytes),
        )?;
        for (count, what) in [
            (self.refused, "refused for want of room"),
            (self.dropped, "dropped as the disk was behind"),
            (self.damaged, "found damaged"),
            (self.evicted, "evicted"),
            (self.failed, "reads and writes failed"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        writeln!(f)
    }
}
