//! What the fetch room counts, and what a report says of it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CacheMeter, CacheReport, Causes, Counter, Gauge, Histogram, RetriesReport, Spread};
use crate::error::Bytes;

/// What the fetch room counts beyond its meter.
#[derive(Debug, Default)]
pub struct FetchMeter {
    /// Requests sent, retries included; reads of local files are none.
    pub requests: Counter,
    /// Requests that repeated a failed one.
    pub retries: Counter,
    /// Why they did.
    pub causes: Causes,
    /// Times that credentials were had anew, and were others.
    pub credential_renewals: Counter,
    /// Requests in flight.
    pub in_flight: Gauge,
    /// The local cache.
    pub cache: CacheMeter,
    /// Parts that large reads were split into.
    pub split_parts: Counter,
    /// Reads that brought several rows or images which lie side by side.
    pub joint_reads: Counter,
    /// Rows and images that they brought.
    pub joined: Counter,
    /// Bytes between those that were read and thrown away.
    pub thrown_away: Counter,
    /// With `fetch.checksum`: reads whose bytes had the checksum that the store tells.
    pub checksums_right: Counter,
    /// With `fetch.checksum`: reads whose bytes had another, and were read again.
    pub checksums_wrong: Counter,
    /// With `fetch.checksum`: reads of a store which tells none of their bytes.
    pub checksums_lacking: Counter,
    /// Requests that wait until they may be sent.
    pub queued: Gauge,
    /// Nanoseconds that they waited, added up.
    pub queued_nanos: Counter,
    /// Requests that may be in flight, added up over the stores in use.
    pub limit: Gauge,
    /// Microseconds from a request to the headers of its good answer.
    pub first_byte: Spread,
    /// The same by fixed steps of time.
    pub first_bytes: Histogram,
    /// Answers that told us to slow down.
    pub throttled: Counter,
    /// Answers that fell silent or only dripped, and were given up.
    pub stalls: Counter,
    /// Second requests for what was late.
    pub hedges: Counter,
    /// Those of them that were answered first.
    pub hedges_won: Counter,
    /// Late requests that got no second one: too many were late.
    pub hedges_denied: Counter,
    /// Retries that had to wait longer, since too many requests fail.
    pub postponed: Counter,
}

/// Requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FetchReport {
    /// Requests sent, retries included; reads of local files are none.
    pub requests: u64,
    /// Requests that repeated a failed one.
    pub retries: u64,
    /// Why they did.
    #[serde(flatten)]
    pub causes: RetriesReport,
    /// Times that credentials were had anew, and were others.
    #[serde(default)]
    pub credential_renewals: u64,
    /// Most requests in flight at once.
    pub peak_in_flight: u64,
    /// Requests that may be in flight now, added up over the stores in use.
    #[serde(default)]
    pub limit: u64,
    /// Seconds that requests waited until they might be sent, added up.
    #[serde(default)]
    pub queued_seconds: f64,
    /// Answers that told us to slow down.
    #[serde(default)]
    pub throttled: u64,
    /// Answers that fell silent or only dripped, and were given up.
    #[serde(default)]
    pub stalls: u64,
    /// Second requests for what was late.
    #[serde(default)]
    pub hedges: u64,
    /// Those of them that were answered first.
    #[serde(default)]
    pub hedges_won: u64,
    /// Late requests that got no second one: too many were late.
    #[serde(default)]
    pub hedges_denied: u64,
    /// Retries that had to wait longer, since too many requests failed.
    #[serde(default)]
    pub postponed: u64,
    /// Median time to first byte, in seconds; nothing where none came.
    #[serde(default)]
    pub first_byte_p50_seconds: Option<f64>,
    /// 95th percentile of it.
    #[serde(default)]
    pub first_byte_p95_seconds: Option<f64>,
    /// 99th percentile of it.
    #[serde(default)]
    pub first_byte_p99_seconds: Option<f64>,
    /// The local cache.
    #[serde(flatten)]
    pub cache: CacheReport,
    /// Parts that large reads were split into.
    #[serde(default)]
    pub split_parts: u64,
    /// Reads that brought several rows or images which lie side by side.
    #[serde(default)]
    pub joint_reads: u64,
    /// Rows and images that they brought.
    #[serde(default)]
    pub joined: u64,
    /// Bytes between those that were read and thrown away.
    #[serde(default)]
    pub thrown_away: u64,
    /// With `fetch.checksum`: reads whose bytes had the checksum that the store tells.
    #[serde(default)]
    pub checksums_right: u64,
    /// With `fetch.checksum`: reads whose bytes had another, and were read again.
    #[serde(default)]
    pub checksums_wrong: u64,
    /// With `fetch.checksum`: reads of a store which tells none of their bytes.
    #[serde(default)]
    pub checksums_lacking: u64,
}

impl FetchReport {
    pub(super) fn of(meter: &FetchMeter) -> Self {
        let first_byte = |share| meter.first_byte.quantile(share).map(|micros| micros / 1e6);
        Self {
            requests: meter.requests.get(),
            retries: meter.retries.get(),
            causes: RetriesReport::of(&meter.causes),
            credential_renewals: meter.credential_renewals.get(),
            peak_in_flight: meter.in_flight.peak(),
            limit: meter.limit.get(),
            queued_seconds: Duration::from_nanos(meter.queued_nanos.get()).as_secs_f64(),
            throttled: meter.throttled.get(),
            stalls: meter.stalls.get(),
            hedges: meter.hedges.get(),
            hedges_won: meter.hedges_won.get(),
            hedges_denied: meter.hedges_denied.get(),
            postponed: meter.postponed.get(),
            first_byte_p50_seconds: first_byte(0.50),
            first_byte_p95_seconds: first_byte(0.95),
            first_byte_p99_seconds: first_byte(0.99),
            cache: CacheReport::of(&meter.cache),
            split_parts: meter.split_parts.get(),
            joint_reads: meter.joint_reads.get(),
            joined: meter.joined.get(),
            thrown_away: meter.thrown_away.get(),
            checksums_right: meter.checksums_right.get(),
            checksums_wrong: meter.checksums_wrong.get(),
            checksums_lacking: meter.checksums_lacking.get(),
        }
    }

    fn write_shapes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.split_parts > 0 {
            writeln!(f, "large reads: {} parts", self.split_parts)?;
        }
        if self.joint_reads > 0 {
            let thrown_away = Bytes(self.thrown_away);
            let (reads, joined) = (self.joint_reads, self.joined);
            writeln!(f, "joint reads: {reads} for {joined} rows, {thrown_away} thrown away")?;
        }
        let (right, wrong) = (self.checksums_right, self.checksums_wrong);
        match right + wrong + self.checksums_lacking {
            0 => Ok(()),
            _ => writeln!(
                f,
                "checksums: {right} right, {wrong} wrong, {} reads without one",
                self.checksums_lacking
            ),
        }
    }
}

impl fmt::Display for FetchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, retries, peak_in_flight, .. } = self;
        writeln!(f, "requests: {requests} ({retries} retries), at most {peak_in_flight} at once")?;
        write!(f, "{}", self.causes)?;
        if self.credential_renewals > 0 {
            writeln!(f, "credentials: had anew {} times", self.credential_renewals)?;
        }
        if let (Some(p50), Some(p95), Some(p99)) =
            (self.first_byte_p50_seconds, self.first_byte_p95_seconds, self.first_byte_p99_seconds)
        {
            let (p50, p95, p99) = (p50 * 1e3, p95 * 1e3, p99 * 1e3);
            writeln!(f, "first byte: p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms")?;
        }
        if self.hedges + self.hedges_denied > 0 {
            let Self { hedges, hedges_won, hedges_denied, .. } = self;
            write!(f, "late requests: {hedges} sent twice ({hedges_won} gained by it)")?;
            writeln!(f, ", {hedges_denied} not, since too many were late")?;
        }
        if self.throttled + self.stalls + self.postponed > 0 {
            let Self { throttled, stalls, postponed, limit, .. } = self;
            write!(
                f,
                "store: busy {throttled} times, stalled {stalls} times, {postponed} retries "
            )?;
            writeln!(f, "held back; {limit} requests at once now")?;
        }
        write!(f, "{}", self.cache)?;
        self.write_shapes(f)
    }
}
