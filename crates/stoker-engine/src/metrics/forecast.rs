//! What a loader will make of a trainer and a machine that it does not run on yet: a function of what
//! batches cost, as it was measured, and of what there is.
//!
//! Each resource sets a *floor*: no batch can come in less time, however long everything else has. The
//! loader works ahead, so the resources work at the same time, on different batches, and the pace is the
//! largest floor alone. The trainer is one of the resources: what it takes for a step is the floor that
//! one wants to be the largest, and the wait is what another is above it.
//!
//! | floor | seconds a batch |
//! |---|---|
//! | trainer | its step |
//! | cores | worker seconds ÷ (workers × the share of their time that they can work), or all processor time ÷ cores of the node, shared by its ranks |
//! | bandwidth | bytes fetched × ranks of the node ÷ what its card brings |
//! | requests | requests × seconds of one, its bytes included ÷ requests that may be in flight |
//! | latency | (a batch by itself, its bytes included + the trainer's step) ÷ (batches brought in ahead + 1) |
//! | memory | the same, where it is memory that allows no more ahead |
//! | as measured | what a loader without a trainer took for a batch, by what limited it |
//!
//! *Latency*: batch `n + ahead` is begun when the trainer asks for batch `n`. It is ready after the time
//! of a batch by itself, in which the trainer goes through `ahead + 1` rounds of asking, less the one step
//! before it asks: `ahead × pace + wait = alone`, with `pace = step + wait`. A loader that chooses how
//! far to work ahead brings in what a trainer takes in [`Ahead::lead`], so there the floor is
//! `alone + step − lead` at most.
//!
//! What it does not know: that costs vary from batch to batch (the pace near a tie of two floors is a few
//! percent slower), that more workers get in each other's way, and that stores have worse days.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Limit;
use super::advice::{BUSY, WAIT};

/// Share of their time that workers can work, where it was not measured: the rest goes between tasks.
const WORKING: f64 = 0.95;

/// Share of a network card's bits that arrive as bytes of objects: the rest is headers.
const PAYLOAD: f64 = 0.94;

/// Batches in memory at once, besides those that are being filled: the trainer's, and the next one.
const HELD: f64 = 2.0;

/// What a batch costs, as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Samples of a batch.
    pub samples: f64,
    /// Seconds of workers, added up.
    pub worker_seconds: f64,
    /// Seconds of workers in which others had the cores; they are left out of those above where they are
    /// many, and 0 else.
    pub delayed_seconds: f64,
    /// Processor seconds besides: requests, encryption.
    pub other_seconds: f64,
    /// Bytes that come from the store.
    pub fetched_bytes: f64,
    /// Bytes of the finished batch.
    pub shipped_bytes: f64,
    /// Requests.
    pub requests: f64,
    /// Seconds of one request, while few are in flight or may be.
    pub request_seconds: f64,
    /// Seconds from asking for a batch to having it, while no other is made.
    pub alone_seconds: f64,
    /// What a loader without a trainer did.
    pub flat_out: FlatOut,
}

/// What a loader does whose batches are taken as soon as they are ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlatOut {
    /// Seconds a batch; of its own bytes, or requests that a store refused, where others were brought in too.
    pub seconds: f64,
    /// What limited it.
    pub limit: Limit,
    /// Worker threads it had.
    pub workers: f64,
    /// Share of their time that they worked.
    pub busy: f64,
}

/// How far a rank's loader works ahead.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    /// Batches brought in beyond the one that is asked for, at least.
    pub batches: f64,
    /// How long those that are brought in last, where the loader chooses their number by it.
    pub lead: Option<Duration>,
    /// Batches filled at once.
    pub filled: f64,
}

/// What there is, in a node and for each of its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Ranks on a node, one for each GPU, at most.
    pub ranks: u64,
    /// Cores of a node.
    pub cores: f64,
    /// Worker threads of each rank, where the recipe says it; else the node's cores are shared.
    pub workers: Option<f64>,
    /// Bits that a node's card brings in a second, where it is known.
    pub network: Option<f64>,
    /// Requests that a rank may have in flight.
    pub requests: f64,
    /// How far a rank works ahead.
    pub ahead: Ahead,
    /// `engine.memory` of each rank, in bytes.
    pub memory: f64,
}

/// What is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// GPUs, each with a rank.
    pub gpus: u64,
    /// Seconds that the trainer takes for a batch of one rank.
    pub step_seconds: f64,
}

/// What is to be expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// GPUs.
    pub gpus: u64,
    /// Nodes that they are in.
    pub nodes: u64,
    /// Seconds from one batch of a rank to the next.
    pub seconds: f64,
    /// Share of the time that the trainer waits.
    pub wait: f64,
    /// What sets the pace.
    pub limit: Limit,
    /// Each floor, the largest first.
    pub floors: Vec<(Limit, f64)>,
    /// What would end the wait.
    pub needs: Needs,
}

/// What it takes for a trainer not to wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// Cores of each node with GPUs, for its loaders.
    pub cores: f64,
    /// Worker threads of each rank.
    pub workers: f64,
    /// Nodes that only load, beside each node with GPUs and like it; 0 where that loads all by itself, and
    /// nothing where no number of them is enough, since its own card is too narrow.
    pub data_nodes: Option<u64>,
    /// Bits a second that reach each node with GPUs, where it loads for itself.
    pub network: f64,
    /// Requests of each rank in flight.
    pub requests: f64,
    /// Batches of each rank brought in ahead.
    pub ahead: f64,
    /// `engine.memory` of each rank, in bytes.
    pub memory: f64,
    /// Bytes a second that all ranks together have from the store.
    pub store_bytes: f64,
    /// Requests a second that all ranks together send it.
    pub store_requests: f64,
}

impl Machine {
    /// Ranks on a node, of a job of that size.
    fn here(&self, gpus: u64) -> f64 {
        gpus.min(self.ranks).max(1) as f64
    }

    fn workers_of(&self, ranks: f64) -> f64 {
        self.workers.unwrap_or_else(|| (self.cores / ranks).floor().max(1.0))
    }

    /// Bytes of objects that a node's card brings in a second.
    fn payload(&self) -> Option<f64> {
        self.network.map(|bits| bits * PAYLOAD / 8.0)
    }
}

impl Cost {
    /// Share of their time that workers can work.
    fn working(&self) -> f64 {
        if self.flat_out.limit == Limit::Cores {
            self.flat_out.busy.clamp(BUSY, 1.0)
        } else {
            WORKING
        }
    }

    /// All processor seconds.
    fn processor(&self) -> f64 {
        self.worker_seconds + self.other_seconds
    }
}

impl Forecast {
    /// What is to be expected of a job on nodes of that kind, as many as its GPUs take.
    pub fn of(cost: &Cost, machine: &Machine, job: Job) -> Self {
        let mut floors = floors(cost, machine, job);
        floors.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (slowest, seconds) = floors[0];
        let wait = if seconds > 0.0 { 1.0 - job.step_seconds.min(seconds) / seconds } else { 0.0 };
        Self {
            gpus: job.gpus,
            nodes: job.gpus.div_ceil(machine.ranks.max(1)),
            seconds,
            wait,
            limit: if wait < WAIT { Limit::Trainer } else { slowest },
            floors,
            needs: Needs::of(cost, machine, job),
        }
    }
}

fn floors(cost: &Cost, machine: &Machine, job: Job) -> Vec<(Limit, f64)> {
    let ranks = machine.here(job.gpus);
    let threads = cost.worker_seconds / (machine.workers_of(ranks) * cost.working());
    let cores = threads.max(ranks * cost.processor() / machine.cores);
    // A request is in flight until its bytes have come.
    let in_flight = cost.requests * cost.request_seconds + bodies(cost, machine);
    let in_flight = in_flight / machine.requests.max(1.0);
    let mut floors = vec![
        (Limit::Trainer, job.step_seconds),
        (Limit::Cores, cores),
        (Limit::Requests, in_flight),
        ahead(cost, machine, job),
    ];
    if let Some(bytes) = machine.payload() {
        floors.push((Limit::Bandwidth, ranks * cost.fetched_bytes / bytes));
    }
    floors.extend(as_measured(cost, machine, job));
    floors
}

/// Seconds in which the bytes of a batch pass a card that is narrower than the one here.
fn bodies(cost: &Cost, machine: &Machine) -> f64 {
    machine.payload().map_or(0.0, |bytes| cost.fetched_bytes / bytes)
}

/// A batch by itself. Its bytes pass the card while workers are at those that came, so either may be what
/// takes long.
fn alone(cost: &Cost, machine: &Machine) -> f64 {
    let (bodies, samples) = (bodies(cost, machine), cost.samples.max(1.0));
    let passing = cost.request_seconds + bodies + cost.worker_seconds / samples;
    passing.max(cost.alone_seconds + bodies / samples)
}

/// Of working ahead: latency, or the memory for it.
fn ahead(cost: &Cost, machine: &Machine, job: Job) -> (Limit, f64) {
    let Ahead { batches, lead, .. } = machine.ahead;
    let alone = alone(cost, machine);
    let floor = |batches: f64| (alone + job.step_seconds) / (batches + 1.0);
    let asked = match lead {
        Some(lead) => floor(batches).min(alone + job.step_seconds - lead.as_secs_f64()).max(0.0),
        None => floor(batches),
    };
    // A quarter of the memory is for what is brought in.
    let fitting = floor((machine.memory / 4.0 / cost.fetched_bytes.max(1.0) - 1.0).max(0.0));
    if fitting > asked { (Limit::Memory, fitting) } else { (Limit::Latency, asked) }
}

/// What was seen of a loader without a trainer holds for one with a trainer too: for each rank by itself,
/// or for all that share what was short.
fn as_measured(cost: &Cost, machine: &Machine, job: Job) -> Option<(Limit, f64)> {
    let FlatOut { seconds, limit, .. } = cost.flat_out;
    let sharing = match limit {
        // Computed from what was measured, for any number of cores and of requests in flight; and what a card
        // brings, where it is said, whatever the one here does.
        Limit::Cores | Limit::BusyMachine | Limit::Trainer | Limit::Requests => return None,
        Limit::Bandwidth if machine.network.is_some() => return None,
        Limit::Bandwidth | Limit::Network => machine.here(job.gpus),
        Limit::Throttling => job.gpus as f64,
        Limit::HandOver | Limit::LargeImage | Limit::Memory | Limit::Latency => 1.0,
    };
    Some((limit, seconds * sharing))
}

/// The next whole number, but for what sums leave over.
fn up(number: f64) -> f64 {
    (number - 1e-9).ceil()
}

impl Needs {
    fn of(cost: &Cost, machine: &Machine, job: Job) -> Self {
        let (step, ranks) = (job.step_seconds, machine.here(job.gpus));
        let each = |amount: f64| amount / step;
        let brought_in = up(each(alone(cost, machine)));
        let batches = (machine.ahead.filled + HELD) * cost.shipped_bytes;
        let compressed = (brought_in + 1.0) * cost.fetched_bytes;
        Self {
            cores: up(ranks * each(cost.worker_seconds / cost.working() + cost.other_seconds)),
            workers: up(each(cost.worker_seconds / cost.working())),
            data_nodes: data_nodes(cost, machine, job),
            network: ranks * each(cost.fetched_bytes) * 8.0 / PAYLOAD,
            requests: up(each(cost.requests * cost.request_seconds)),
            ahead: brought_in,
            memory: (4.0 * compressed).max(batches * 4.0 / 3.0),
            store_bytes: job.gpus as f64 * each(cost.fetched_bytes),
            store_requests: job.gpus as f64 * each(cost.requests),
        }
    }
}

/// Nodes that only load, beside each node with GPUs. A batch that is made there costs this node's card
/// what is shipped, and one that is made here what is fetched; so as many are made here as its cores
/// and its card allow.
fn data_nodes(cost: &Cost, machine: &Machine, job: Job) -> Option<u64> {
    let demand = machine.here(job.gpus) / job.step_seconds;
    let card = machine.payload().unwrap_or(f64::INFINITY);
    let (fetched, shipped) = (cost.fetched_bytes, cost.shipped_bytes);
    let by_cores = machine.cores * cost.working() / cost.processor().max(f64::MIN_POSITIVE);
    // Batches a second that a node that only loads makes.
    let elsewhere = by_cores.min(card / fetched.max(f64::MIN_POSITIVE));
    let here = by_cores.min(demand).min(card / fetched.max(f64::MIN_POSITIVE));
    if here >= demand {
        return Some(0);
    }
    let crosses = |here: f64| here * fetched + (demand - here) * shipped;
    let here = if crosses(here) <= card {
        here
    } else if shipped < fetched {
        // Fewer here, so that there is room for what comes from elsewhere.
        (card - demand * shipped) / (fetched - shipped)
    } else {
        return None;
    };
    (here >= 0.0).then(|| up((demand - here) / elsewhere) as u64)
}

#[cfg(test)]
mod tests;
