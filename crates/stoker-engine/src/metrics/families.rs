//! A report as metric families, by the conventions of Prometheus: base units in the names, `_total` at
//! the end of what only grows, labels of few values (`room`, `kind`). One table for all who take
//! metrics: the text endpoint ([`super::prometheus`]), and OpenTelemetry in Python.
//!
//! A family is always there, with nothing in it while its value is not known.

use serde::Serialize;

use super::{CacheReport, FetchReport, HistogramReport, Limit, Report, Room};
use crate::error::Outcome;
use crate::sample::Rank;

/// How numbers of a family are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It only grows, from 0 at the opening of the loader.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations by step.
    Histogram,
}

/// A metric with all its labels.
#[derive(Clone, Debug, Serialize)]
pub struct Family {
    /// Its whole name, such as `stoker_wait_seconds_total`.
    pub name: &'static str,
    /// How to read it.
    pub kind: Kind,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Its values.
    pub points: Vec<Point>,
}

/// A value with its labels; the rank is a label of all, and not among them.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// What it is.
    pub value: Value,
}

/// What a point has.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A counter's or a gauge's.
    Number(f64),
    /// A histogram's.
    Histogram(HistogramReport),
}

/// All families of a report, always the same ones in the same order.
pub fn families(report: &Report, rank: Rank) -> Vec<Family> {
    let mut table = Table(Vec::new());
    table.about(rank);
    table.delivered(report);
    table.wait(report);
    table.advice(report);
    table.rooms(report);
    table.requests(&report.fetch, &report.first_byte_histogram);
    table.cache(&report.fetch.cache);
    table.memory(report);
    table.bad_samples(report);
    table.0
}

struct Table(Vec<Family>);

impl Table {
    fn add(
        &mut self,
        kind: Kind,
        name: &'static str,
        help: &'static str,
        points: impl IntoIterator<Item = Point>,
    ) {
        self.0.push(Family { name, kind, help, points: points.into_iter().collect() });
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.add(Kind::Counter, name, help, [point([], value)]);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Into<Option<f64>>) {
        self.add(Kind::Gauge, name, help, value.into().map(|value| point([], value)));
    }

    fn kinds<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        kinds: [(&str, u64); N],
    ) {
        let points = kinds.map(|(kind, count)| point([("kind", kind)], count as f64));
        self.add(Kind::Counter, name, help, points);
    }

    fn histogram(&mut self, name: &'static str, help: &'static str, report: &HistogramReport) {
        let value = Value::Histogram(report.clone());
        self.add(Kind::Histogram, name, help, [Point { labels: Vec::new(), value }]);
    }

    fn about(&mut self, rank: Rank) {
        let (version, of) = (env!("CARGO_PKG_VERSION"), rank.of.to_string());
        let labels = [("version", version), ("world_size", of.as_str())];
        let help = "A loader; always 1.";
        self.add(Kind::Gauge, "stoker_info", help, [point(labels, 1.0)]);
    }

    fn delivered(&mut self, report: &Report) {
        let first = u64::from(report.wait.first_batch_seconds.is_some());
        let batches = report.wait.batches + first;
        self.counter("stoker_batches_total", "Batches delivered.", batches as f64);
        self.counter("stoker_samples_total", "Samples delivered.", report.samples as f64);
        self.counter("stoker_images_total", "Images delivered.", report.images as f64);
        let help = "Tokens delivered, padding not counted.";
        self.counter("stoker_tokens_total", help, report.tokens as f64);
        let help = "Tokens of padding and of neutral images in delivered batches.";
        self.counter("stoker_padding_tokens_total", help, report.padding as f64);
        let help = "Neutral images delivered, for want of others.";
        self.counter("stoker_neutral_images_total", help, report.neutral_images as f64);
        let help = "Share of pack.max-tokens that tokens fill.";
        self.gauge("stoker_packing_ratio", help, report.packing);
    }

    fn wait(&mut self, report: &Report) {
        let wait = &report.wait;
        let help = "Time the trainer was blocked for batches, the first one apart.";
        self.counter("stoker_wait_seconds_total", help, wait.blocked_seconds);
        let help = "Time from batch to batch, waits included, the first one apart.";
        self.counter("stoker_step_seconds_total", help, wait.wall_seconds);
        let help = "Time the trainer was blocked for one batch, the first one apart.";
        self.histogram("stoker_batch_wait_seconds", help, &report.wait_histogram);
        let help = "Time the trainer was blocked for the first batch.";
        self.gauge("stoker_first_batch_wait_seconds", help, wait.first_batch_seconds);
        let help = "Share of the time the trainer was blocked in the latest 1024 batches.";
        self.gauge("stoker_wait_ratio", help, wait.window_ratio);
    }

    fn advice(&mut self, report: &Report) {
        let advice = report.advice.as_ref();
        let points = advice.into_iter().flat_map(|advice| {
            Limit::ALL.into_iter().map(|limit| {
                let is_it = f64::from(u8::from(limit == advice.limit));
                point([("kind", limit.word())], is_it)
            })
        });
        let help = "What limits the pace: 1 for the kind that does, 0 for the others.";
        self.add(Kind::Gauge, "stoker_limit", help, points);
        let help = "Share of the workers' time in which they worked, in the latest 1024 batches.";
        self.gauge("stoker_workers_busy_ratio", help, advice.map(|advice| advice.workers_busy));
        self.gauge("stoker_workers", "Worker threads.", report.workers as f64);
        let help = "Time that workers had work and no core.";
        self.counter("stoker_worker_delay_seconds_total", help, report.worker_delay_seconds);
    }

    fn rooms(&mut self, report: &Report) {
        let rooms = |of: fn(&super::RoomReport) -> f64| {
            Room::ALL.map(|room| {
                let found = report.rooms.iter().find(|one| one.room == room);
                point([("room", room.as_str())], found.map_or(0.0, of))
            })
        };
        let help = "Time that threads (in fetch: requests) spent in a room, added up.";
        let busy = rooms(|room| room.busy_seconds);
        self.add(Kind::Counter, "stoker_room_busy_seconds_total", help, busy);
        let help = "Things done in a room: images decoded, texts encoded, requests answered.";
        let items = rooms(|room| room.items as f64);
        self.add(Kind::Counter, "stoker_room_items_total", help, items);
        let bytes = rooms(|room| room.bytes as f64);
        let help = "Bytes that came out of a room; out of fetch those of the store.";
        self.add(Kind::Counter, "stoker_room_bytes_total", help, bytes);
    }

    fn requests(&mut self, fetch: &FetchReport, first_byte: &HistogramReport) {
        let help = "Requests sent, retries included.";
        self.counter("stoker_requests_total", help, fetch.requests as f64);
        let help = "Requests that repeated a failed one.";
        self.counter("stoker_request_retries_total", help, fetch.retries as f64);
        let help = "Time from a request to the headers of its good answer.";
        self.histogram("stoker_request_first_byte_seconds", help, first_byte);
        let help = "Requests that may be in flight now.";
        self.gauge("stoker_request_limit", help, fetch.limit as f64);
        let help = "Most requests in flight at once.";
        self.gauge("stoker_requests_in_flight_peak", help, fetch.peak_in_flight as f64);
        let help = "Time that requests waited until they might be sent, added up.";
        self.counter("stoker_request_queue_seconds_total", help, fetch.queued_seconds);
        let troubles = [
            ("throttled", fetch.throttled),
            ("stalled", fetch.stalls),
            ("postponed", fetch.postponed),
        ];
        let help = "Answers that asked for patience or fell silent, and retries held back.";
        self.kinds("stoker_request_troubles_total", help, troubles);
        let hedges =
            [("sent", fetch.hedges), ("won", fetch.hedges_won), ("denied", fetch.hedges_denied)];
        let help =
            "Late requests: sent twice, of these answered sooner by the second, or not sent twice.";
        self.kinds("stoker_hedges_total", help, hedges);
        let help = "Parts that large reads were split into.";
        self.counter("stoker_split_parts_total", help, fetch.split_parts as f64);
        let help = "Reads that brought several rows or images side by side.";
        self.counter("stoker_joint_reads_total", help, fetch.joint_reads as f64);
        let help = "Bytes between those that were read and thrown away.";
        self.counter("stoker_thrown_away_bytes_total", help, fetch.thrown_away as f64);
        let checksums = [
            ("right", fetch.checksums_right),
            ("wrong", fetch.checksums_wrong),
            ("lacking", fetch.checksums_lacking),
        ];
        let help = "Reads with fetch.checksum, by what the store's checksum said.";
        self.kinds("stoker_checksums_total", help, checksums);
    }

    fn cache(&mut self, cache: &CacheReport) {
        let help = "Reads that the local cache answered, or might have.";
        let reads = [("hit", cache.hits), ("miss", cache.misses)];
        self.kinds("stoker_cache_reads_total", help, reads);
        let help = "Bytes that came from the local cache.";
        self.counter("stoker_cache_hit_bytes_total", help, cache.hit_bytes as f64);
        let help = "Bytes that were written to the local cache.";
        self.counter("stoker_cache_admitted_bytes_total", help, cache.admitted_bytes as f64);
        let entries = [
            ("admitted", cache.admitted),
            ("refused", cache.refused),
            ("dropped", cache.dropped),
            ("damaged", cache.damaged),
            ("evicted", cache.evicted),
        ];
        let help = "Entries of the local cache, by what became of them.";
        self.kinds("stoker_cache_entries_total", help, entries);
        let help = "Reads and writes that the local cache's disk failed.";
        self.counter("stoker_cache_failures_total", help, cache.failed as f64);
    }

    fn memory(&mut self, report: &Report) {
        let memory = &report.memory;
        let help = "Compressed bytes held now.";
        self.gauge("stoker_compressed_bytes", help, memory.compressed_bytes as f64);
        let help = "Most compressed bytes held.";
        self.gauge("stoker_compressed_peak_bytes", help, memory.peak_compressed_bytes as f64);
        let help = "Bytes of arenas mapped now.";
        self.gauge("stoker_arena_bytes", help, memory.arena_bytes as f64);
        let help = "Most bytes of arenas mapped.";
        self.gauge("stoker_arena_peak_bytes", help, memory.peak_arena_bytes as f64);
        let help = "Bytes of arenas that hold a batch now.";
        self.gauge("stoker_leased_bytes", help, memory.leased_bytes as f64);
    }

    fn bad_samples(&mut self, report: &Report) {
        // What was wrong has a code of its own in the report; here are as many series as ever.
        let places = Room::ALL.into_iter().flat_map(|room| {
            Outcome::ALL.map(|outcome| {
                let here = report.flaws.iter();
                let here = here.filter(|flaw| (flaw.room, flaw.outcome) == (room, outcome));
                let count = here.map(|flaw| flaw.samples).sum::<u64>();
                (room, outcome, count)
            })
        });
        let points = places.filter(|(.., count)| *count > 0).map(|(room, outcome, count)| {
            point([("room", room.as_str()), ("kind", outcome.as_str())], count as f64)
        });
        let help = "Bad samples, by the room that found it out and what became of them.";
        self.add(Kind::Counter, "stoker_bad_samples_total", help, points);
    }
}

fn point<const N: usize>(labels: [(&'static str, &str); N], value: f64) -> Point {
    let labels = labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    Point { labels, value: Value::Number(value) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn names_follow_the_conventions_and_are_there_from_the_beginning() {
        let report = Metrics::default().report();
        let families = families(&report, Rank { index: 0, of: 1 });
        let names: BTreeSet<_> = families.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), families.len());
        for Family { name, kind, help, points } in families {
            let word =
                |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
            assert!(name.starts_with("stoker_") && name.split('_').all(word), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
            assert!(help.ends_with('.'), "{name}: {help}");
            assert!(kind == Kind::Gauge || !points.is_empty() || name.contains("bad"), "{name}");
            for (label, _) in points.iter().flat_map(|point| &point.labels) {
                let few = ["room", "kind"].contains(label) || name == "stoker_info";
                assert!(few, "{name} has the label {label}");
            }
        }
    }
}
