//! Why requests were repeated.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Counter, FetchMeter};

/// Why a request was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection could be had: nothing was sent.
    Unreachable,
    /// The connection broke.
    Connection,
    /// Nothing came for too long, or too little.
    Stalled,
    /// The store told us to slow down (429, 503).
    Busy,
    /// The store failed (500 and the like).
    Failed,
    /// The answer was another one than was asked for: its range, its length, its kind.
    Wrong,
    /// The bytes were not those of the store's checksum.
    Checksum,
    /// The store did not take the credentials any longer.
    Credentials,
    /// The bucket or the object was elsewhere.
    Redirected,
}

/// Requests that were repeated, by [`Cause`].
#[derive(Debug, Default)]
pub struct Causes([Counter; 9]);

impl FetchMeter {
    /// Counts a request that repeats another one.
    pub fn retried(&self, cause: Cause) {
        self.retries.add(1);
        self.causes.0[cause as usize].add(1);
    }
}

/// Requests that were repeated, by why they were; together they are all retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetriesReport {
    /// No connection could be had: nothing was sent.
    #[serde(rename = "retries_unreachable")]
    pub unreachable: u64,
    /// The connection broke.
    #[serde(rename = "retries_connection")]
    pub connection: u64,
    /// Nothing came for too long, or too little.
    #[serde(rename = "retries_stalled")]
    pub stalled: u64,
    /// The store told us to slow down (429, 503).
    #[serde(rename = "retries_busy")]
    pub busy: u64,
    /// The store failed (500 and the like).
    #[serde(rename = "retries_failed")]
    pub failed: u64,
    /// The answer was another one than was asked for: its range, its length, its kind.
    #[serde(rename = "retries_wrong")]
    pub wrong: u64,
    /// The bytes were not those of the store's checksum.
    #[serde(rename = "retries_checksum")]
    pub checksum: u64,
    /// The store did not take the credentials any longer, or their source gave none.
    #[serde(rename = "retries_credentials")]
    pub credentials: u64,
    /// The bucket or the object was elsewhere.
    #[serde(rename = "retries_redirected")]
    pub redirected: u64,
}

impl RetriesReport {
    pub(super) fn of(causes: &Causes) -> Self {
        let of = |cause| causes.0[cause as usize].get();
        Self {
            unreachable: of(Cause::Unreachable),
            connection: of(Cause::Connection),
            stalled: of(Cause::Stalled),
            busy: of(Cause::Busy),
            failed: of(Cause::Failed),
            wrong: of(Cause::Wrong),
            checksum: of(Cause::Checksum),
            credentials: of(Cause::Credentials),
            redirected: of(Cause::Redirected),
        }
    }
}

impl fmt::Display for RetriesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = [
            (self.unreachable, "not reached"),
            (self.connection, "connection broke"),
            (self.stalled, "stalled"),
            (self.busy, "busy"),
            (self.failed, "store failed"),
            (self.wrong, "wrong answer"),
            (self.checksum, "wrong checksum"),
            (self.credentials, "credentials ended"),
            (self.redirected, "redirected"),
        ];
        let told = causes.iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> = told.map(|(count, words)| format!("{words} {count}")).collect();
        if told.is_empty() { Ok(()) } else { writeln!(f, "retries: {}", told.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_retry_has_one_cause_and_the_words_name_those_there_were() {
        let meter = FetchMeter::default();
        assert_eq!(RetriesReport::of(&meter.causes).to_string(), "");
        for cause in [Cause::Busy, Cause::Redirected, Cause::Busy] {
            meter.retried(cause);
        }
        let report = RetriesReport::of(&meter.causes);
        assert_eq!(meter.retries.get(), 3);
        assert_eq!(report, RetriesReport { busy: 2, redirected: 1, ..RetriesReport::default() });
        assert_eq!(report.to_string(), "retries: busy 2, redirected 1\n");
    }
}
