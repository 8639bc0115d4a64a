//! What was measured and what follows from it, for people and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use stoker_engine::error::Bytes;
use stoker_engine::metrics::{Cost, Forecast, Limit, Machine, Needs};

use super::measure::Measured;

/// Requests a second that S3 takes for one prefix before it asks for patience, by its documentation.
const OF_A_PREFIX: f64 = 5500.0;

/// All that is shown.
pub(super) struct Sizing<'a> {
    pub(super) measured: &'a Measured,
    pub(super) machine: &'a Machine,
    /// The job that was asked for, and larger ones.
    pub(super) forecasts: &'a [Forecast],
}

impl Sizing<'_> {
    fn job(&self) -> &Forecast {
        &self.forecasts[0]
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "measured": {
                "batches": self.measured.batches,
                "seconds": self.measured.seconds,
                "cost": self.measured.cost,
            },
            "machine": self.machine,
            "words": self.words(),
            "forecast": self.job(),
            "scale": self.forecasts,
        })
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_measured(out)?;
        writeln!(out, "\n{}", self.words())?;
        for note in self.notes() {
            writeln!(out, "! {note}")?;
        }
        writeln!(out)?;
        self.write_table(out)
    }

    fn write_measured(&self, out: &mut dyn Write) -> io::Result<()> {
        let Measured { cost, shares: [image, vision, rest], batches, seconds } = self.measured;
        let each = |amount: f64| amount / cost.samples.max(1.0);
        let bytes = |amount: f64| Bytes(amount as u64);
        let percent = |share: &f64| share * 100.0;
        writeln!(
            out,
            "measured in {seconds:.1} s, {batches} batches of {:.1} samples:",
            cost.samples
        )?;
        let mut line = |name: &str, value: String| writeln!(out, "  {name:<22} {value}");
        line(
            "a sample's work",
            format!(
                "{:.1} ms of a worker: {:.0} % decoding, {:.0} % resizing and patches, {:.0} % text and \
                 lines",
                each(cost.worker_seconds) * 1e3,
                percent(image),
                percent(vision),
                percent(rest)
            ),
        )?;
        line(
            "a sample's bytes",
            format!(
                "{} fetched by {:.2} requests of {:.0} ms, {} shipped ({:.1} times as many)",
                bytes(each(cost.fetched_bytes)),
                each(cost.requests),
                cost.request_seconds * 1e3,
                bytes(each(cost.shipped_bytes)),
                cost.shipped_bytes / cost.fetched_bytes.max(1.0)
            ),
        )?;
        line(
            "a batch",
            format!(
                "{} of memory; {:.0} ms by itself, one in {:.0} ms flat out, limited by {}",
                bytes(cost.shipped_bytes),
                cost.alone_seconds * 1e3,
                cost.flat_out.seconds * 1e3,
                called(cost.flat_out.limit)
            ),
        )
    }

    /// The forecast in a sentence.
    fn words(&self) -> String {
        let Forecast { gpus, nodes, wait, limit, .. } = self.job();
        let ranks = (*gpus).min(self.machine.ranks);
        let network = self
            .machine
            .network
            .map_or_else(String::new, |bits| format!(" and {} Gbit/s", short(bits / 1e9)));
        format!(
            "{} on {} with {} cores{network}{}: the trainer will wait {:.1} %; {}",
            counted(*gpus, "GPU"),
            counted(*nodes, "node"),
            short(self.machine.cores),
            if *nodes > 1 { format!(" each, {ranks} GPUs in a node") } else { String::new() },
            wait * 100.0,
            self.advice(*limit)
        )
    }

    fn advice(&self, limit: Limit) -> String {
        let (needs, cost) = (&self.job().needs, &self.measured.cost);
        match limit {
            Limit::Trainer => {
                let next = self.job().floors.iter().find(|(limit, _)| *limit != Limit::Trainer);
                let next = next.map_or_else(String::new, |(limit, seconds)| {
                    format!(
                        "; the first limit met by a faster one is {}, at {:.0} ms a step",
                        called(*limit),
                        seconds * 1e3
                    )
                });
                format!("it is the limit itself{next}")
            }
            // As measured it is never others: their share is left out.
            Limit::Cores | Limit::BusyMachine => {
                format!("cores are the limit: {}", Self::cores(needs, cost))
            }
            Limit::HandOver => {
                "the hand-over to the trainer's process is the limit: give that process a \
                                core of its own"
                    .to_owned()
            }
            Limit::Bandwidth | Limit::Network => format!(
                "the network is the limit: {} Gbit/s for each node end it; or smaller images, or a local \
                 cache (fetch.cache)",
                short(needs.network / 1e9)
            ),
            Limit::Requests => format!(
                "requests in flight are the limit: fetch.concurrency = {} ends it, or larger shards",
                short(needs.requests)
            ),
            Limit::Latency => format!(
                "the store's slow answers are the limit: engine.prefetch = {} ends it, with engine.memory = \
                 {}",
                short(needs.ahead),
                memory(needs)
            ),
            Limit::Memory => {
                format!("memory is the limit: engine.memory = {} ends it", memory(needs))
            }
            Limit::Throttling => {
                "the store's limit on requests is the limit: spread the objects over \
                                  more prefixes, or pack them into larger shards"
                    .to_owned()
            }
            Limit::LargeImage => "single large images are the limit: lower vision.max-pixels or \
                                  image.max-pixels, or put more samples into a batch"
                .to_owned(),
        }
    }

    fn cores(needs: &Needs, cost: &Cost) -> String {
        let ends = format!(
            "{} for the loaders of each node end it ({} workers for each rank)",
            counted(needs.cores as u64, "core"),
            short(needs.workers)
        );
        let elsewhere = match needs.data_nodes {
            Some(0) => String::new(),
            Some(nodes) => {
                format!(", or {} that only load beside each (stoker.ray)", counted(nodes, "node"))
            }
            None => format!(
                "; nodes that only load can't: {:.1} times as many bytes are shipped as are fetched, and \
                 they don't pass the card (vision.pixels = \"u8\" ships the fewest)",
                cost.shipped_bytes / cost.fetched_bytes.max(1.0)
            ),
        };
        ends + &elsewhere
    }

    /// What is not a limit of the pace, and yet in the way.
    fn notes(&self) -> Vec<String> {
        let (needs, memory_of) = (&self.job().needs, self.machine.memory);
        let mut notes = Vec::new();
        if needs.memory > memory_of && self.job().limit != Limit::Memory {
            notes.push(format!(
                "engine.memory of each rank is {}, and {} would do",
                Bytes(memory_of as u64),
                memory(needs)
            ));
        }
        let first = self.forecasts.iter().find(|it| it.needs.store_requests > OF_A_PREFIX);
        if let Some(first) = first {
            notes.push(format!(
                "{} ask the store {:.0} times a second; S3 takes {OF_A_PREFIX:.0} for each prefix, so \
                 spread the objects, or pack them into shards",
                counted(first.gpus, "GPU"),
                first.needs.store_requests
            ));
        }
        let Cost { worker_seconds, delayed_seconds, .. } = self.measured.cost;
        if delayed_seconds > 0.0 {
            notes.push(format!(
                "while this was measured, others had the workers' cores for {:.0} % of the time; it is \
                 left out, but what else was measured is slow: measure again where nothing else runs",
                100.0 * delayed_seconds / (worker_seconds + delayed_seconds)
            ));
        }
        let measured = self.measured.cost.flat_out.workers;
        if self.machine.cores > 4.0 * measured {
            notes.push(format!(
                "measured with {}: many more get in each other's way, and do a little less each",
                counted(measured as u64, "worker")
            ));
        }
        notes
    }

    fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let head = [
            "GPUs",
            "nodes",
            "wait",
            "limit",
            "cores needed",
            "data nodes",
            "network",
            "store",
            "requests",
        ];
        let rows = self.forecasts.iter().map(|forecast| {
            let Forecast { gpus, nodes, wait, limit, needs, .. } = forecast;
            [
                gpus.to_string(),
                nodes.to_string(),
                format!("{:.1} %", wait * 100.0),
                limit.word().to_owned(),
                short(needs.cores * *nodes as f64),
                needs.data_nodes.map_or("no use".to_owned(), |beside| (beside * nodes).to_string()),
                format!("{} Gbit/s each", short(needs.network / 1e9)),
                format!("{}/s", Bytes(needs.store_bytes as u64)),
                format!("{:.0}/s", needs.store_requests),
            ]
        });
        let table: Vec<[String; 9]> =
            std::iter::once(head.map(str::to_owned)).chain(rows).collect();
        let widths: Vec<usize> = (0..head.len())
            .map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &table {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A limit as people say it.
fn called(limit: Limit) -> &'static str {
    match limit {
        Limit::Trainer => "nothing",
        Limit::Cores => "cores",
        Limit::BusyMachine => "others, who had the cores",
        Limit::LargeImage => "single large images",
        Limit::Memory => "memory",
        Limit::Throttling => "the store's limit on requests",
        Limit::Requests => "requests in flight",
        Limit::HandOver => "the hand-over to the trainer",
        Limit::Bandwidth | Limit::Network => "the network",
        Limit::Latency => "the store's slow answers",
    }
}

/// As a recipe takes it.
fn memory(needs: &Needs) -> String {
    format!("\"{}MiB\"", (needs.memory / f64::from(1 << 20)).ceil().max(64.0))
}

fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Two digits of what is small, and all of what is large.
fn short(number: f64) -> String {
    match number {
        _ if number >= 10.0 || number.fract() == 0.0 => format!("{number:.0}"),
        _ if number >= 1.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests;
