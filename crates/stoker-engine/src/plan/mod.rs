//! In which order: a pure function of the recipe and the data, and nothing else.
//!
//! The stream of samples is endless; a [`Position`] in it names one sample ([`Plan::sample_at`])
//! without running over those before. So any worker on any machine can make any batch, and resuming
//! is arithmetic: a [`Cursor`] holds the number of batches delivered, and the [`Identity`] of the
//! plan that it belongs to.
//!
//! Two questions make a sample: whose turn is it (`mixture`: which dataset, and the how-manieth of
//! its samples), and which row is that (`rows`: the order of one dataset, epoch after epoch).
//!
//! Batch number `g` of the global sequence holds positions `g * batch_size ..` and belongs to lane
//! `g % lanes`. Rank `r` of `W` takes batches `start + r`, `start + r + W`, …; `W` divides the
//! number of lanes, so a lane is always served by one rank, and the global sequence does not depend
//! on `W`. `docs/rooms/plan.md` says it in full, for those who check it from outside.

mod blocks;
mod cursor;
mod cycle;
mod mixture;
mod permutation;
mod rows;
mod shares;
mod source;
mod tree;

use crate::error::{Error, Problem, Result};
use crate::recipe::{self, Remainder, Shuffle};
use crate::sample::{BatchName, Position, Rank, SampleId};

pub use cursor::{Cursor, Identity};
pub use source::Source;

use mixture::{Mixture, Weights};
use rows::RowOrder;

/// The order of samples and batches.
#[derive(Clone, Debug)]
pub struct Plan {
    mixture: Mixture,
    orders: Vec<RowOrder>,
    lanes: u32,
    /// Nothing where as many samples share a batch as go into it.
    batch_size: Option<u32>,
    /// Samples of all epochs together.
    samples: Option<u64>,
    remainder: Remainder,
    identity: Identity,
}

impl Plan {
    /// The plan over datasets, in the order of the recipe. Without a batch size, which samples share
    /// a batch is not for the plan to say. `identity` names everything else that decides what
    /// batches hold.
    pub fn new(
        config: &recipe::Plan,
        batch_size: impl Into<Option<u32>>,
        sources: &[Source],
        mut identity: Identity,
    ) -> Result<Self> {
        if sources.is_empty() || sources.iter().any(|source| source.rows == 0) {
            return Err(Error::Bug("a plan over no rows".into()));
        }
        let stages = shares::stages(config, sources)?;
        let epoch = shares::epoch(sources)?;
        let orders: Vec<RowOrder> = (0..)
            .zip(sources)
            .map(|(dataset, source)| RowOrder::new(config, dataset, source))
            .collect();
        identity.add("plan.seed", config.seed);
        identity.add("plan.shuffle", config.shuffle.as_str());
        identity.add("plan.lanes", config.lanes);
        let batch_size = batch_size.into();
        if let Some(batch_size) = batch_size {
            identity.add("pack.batch-size", batch_size);
        }
        if config.shuffle == Shuffle::Block {
            identity.add("plan.window", config.window.unwrap_or(rows::WINDOW));
            identity.add("plan.blocks", borders(&orders));
        }
        if sources.len() > 1 {
            identity.add("plan.weights", hash_of(&stages));
        }
        if let Some(epochs) = config.epochs {
            // What the last batches hold goes by where the end is; else a run may be made longer.
            if config.remainder == Remainder::Pad || batch_size.is_none() {
                identity.add("plan.epochs", epochs);
            }
            if config.remainder == Remainder::Pad {
                // No row stands in for another.
                identity.add("plan.remainder", "pad");
            }
        }
        Ok(Self {
            mixture: Mixture::new(stages),
            orders,
            lanes: config.lanes,
            batch_size,
            samples: config.epochs.map(|epochs| epochs.saturating_mul(epoch)),
            remainder: config.remainder,
            identity,
        })
    }

    /// The sample at a position.
    pub fn sample_at(&self, position: Position) -> SampleId {
        let (dataset, place) = self.mixture.place_at(position.0);
        SampleId { dataset, row: self.orders[dataset as usize].row_at(place) }
    }

    /// The sample that stands in where the one at a position is bad, and so are the spares of all
    /// earlier attempts: another row of the same dataset. Attempts count from 1.
    pub fn spare(&self, position: Position, attempt: u32) -> SampleId {
        let (dataset, place) = self.mixture.place_at(position.0);
        SampleId { dataset, row: self.orders[dataset as usize].spare_row(place, attempt) }
    }

    /// How many samples of each dataset come before a position.
    pub fn counts(&self, position: Position) -> Vec<u64> {
        self.mixture.counts(position.0)
    }

    /// Samples in the whole run; `None` if it is endless.
    pub fn samples(&self) -> Option<u64> {
        self.samples
    }

    /// The name of a batch of the global sequence.
    pub fn batch(&self, sequence: u64) -> BatchName {
        let lanes = u64::from(self.lanes);
        BatchName { lane: (sequence % lanes) as u32, number: sequence / lanes }
    }

    /// The positions of a batch's samples, in order; `None` where batches have no size.
    pub fn positions(&self, batch: BatchName) -> Option<impl Iterator<Item = Position> + use<>> {
        let sequence = batch.number * u64::from(self.lanes) + u64::from(batch.lane);
        let size = u64::from(self.batch_size?);
        Some((sequence * size..(sequence + 1) * size).map(Position))
    }

    /// Whether each row keeps its place in the order: no other stands in for a bad one.
    pub fn keeps_rows(&self) -> bool {
        self.remainder == Remainder::Pad
    }

    /// Whether a position lies behind the end, and only pads the last round of batches.
    pub fn is_padding(&self, position: Position) -> bool {
        self.keeps_rows() && self.samples.is_some_and(|samples| position.0 >= samples)
    }

    /// Length of the global sequence of batches: all epochs, and a last batch that is filled up, or
    /// padded, or left out. `None` if it is endless, or batches have no size.
    pub fn batches(&self) -> Option<u64> {
        Some(self.rounded(self.samples?, u64::from(self.batch_size?)))
    }

    /// How many batches each rank gets from a place in the global sequence to its end. The same for
    /// every rank: so is the last round. `None` if the run is endless, or batches have no size.
    pub fn batches_per_rank(&self, start: u64, rank: Rank) -> Option<u64> {
        Some(self.rounds(self.batches()?, start, rank))
    }

    /// The same, where the global sequence is so many batches long.
    pub fn rounds(&self, batches: u64, start: u64, rank: Rank) -> u64 {
        self.rounded(batches.saturating_sub(start), u64::from(rank.of))
    }

    /// Whether the last round of batches is filled up or padded, and so is a whole one.
    pub fn fills_rounds(&self) -> bool {
        self.remainder != Remainder::Drop
    }

    /// How many wholes are made of parts, by what becomes of the rest.
    fn rounded(&self, parts: u64, whole: u64) -> u64 {
        match self.remainder {
            Remainder::Fill | Remainder::Pad => parts.div_ceil(whole),
            Remainder::Drop => parts / whole,
        }
    }

    /// Refuses a group of ranks whose size does not divide the number of lanes.
    pub fn check_rank(&self, rank: Rank) -> Result<()> {
        let problem = |reason: String, hint: &str| {
            let hint = Some(hint.to_owned());
            Err(Error::Recipe(vec![Problem { path: "plan.lanes".into(), reason, hint }]))
        };
        if rank.index >= rank.of {
            return problem(
                format!("rank {} of {} does not exist", rank.index, rank.of),
                "ranks count from 0 to world_size - 1",
            );
        }
        if !self.lanes.is_multiple_of(rank.of) {
            return problem(
                format!("{} ranks do not divide {} lanes", rank.of, self.lanes),
                "set plan.lanes to a multiple of every number of ranks that you will use; it is \
                 part of the order, so set it before the first run",
            );
        }
        Ok(())
    }

    /// The cursor after a number of batches of the global sequence; `samples` and `bad_samples` are
    /// what this rank had and met so far.
    pub fn cursor(&self, batches: u64, samples: u64, bad_samples: u64) -> Cursor {
        Cursor::new(self.identity.clone(), batches, samples, bad_samples)
    }

    /// Refuses a cursor of another plan, by the name of what differs.
    pub fn check_cursor(&self, cursor: &Cursor) -> Result<()> {
        cursor.check(&self.identity, self.batch_size.is_none())
    }
}

/// A hash of where all blocks begin.
fn borders(orders: &[RowOrder]) -> String {
    hash(orders.iter().filter_map(RowOrder::borders).flat_map(u64::to_le_bytes))
}

/// A hash of all weights and the positions that they are from.
fn hash_of(stages: &[Weights]) -> String {
    let numbers = stages.iter().flat_map(|stage| {
        let weights = stage.weights.iter().copied();
        [stage.from, stage.weights.len() as u64].into_iter().chain(weights)
    });
    hash(numbers.flat_map(u64::to_le_bytes))
}

fn hash(bytes: impl Iterator<Item = u8>) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests;
