//! In which order: a pure function of the recipe and the data, and nothing else.
//!
//! The stream of samples is endless; a [`Position`] in it names one sample ([`Plan::sample_at`]) in
//! constant time, with no table and no state. So any worker on any machine can make any batch, and
//! resuming is arithmetic: a [`Cursor`] holds the number of batches delivered, and the [`Identity`]
//! of the plan that it belongs to.
//!
//! Batch number `g` of the global sequence holds positions `g * batch_size ..` and belongs to lane
//! `g % lanes`. Rank `r` of `W` takes batches `start + r`, `start + r + W`, …; `W` divides the
//! number of lanes, so a lane is always served by one rank, and the global sequence does not depend
//! on `W`. `docs/rooms/plan.md` says it in full, for those who check it from outside.

mod cursor;
mod permutation;

use crate::error::{Error, Problem, Result};
use crate::recipe::{self, Shuffle};
use crate::sample::{BatchName, Position, Rank, SampleId};

pub use cursor::{Cursor, Identity};

use permutation::{Permutation, mix};

/// The order of samples and batches.
#[derive(Clone, Debug)]
pub struct Plan {
    order: RowOrder,
    lanes: u32,
    batch_size: u32,
    epochs: Option<u64>,
    identity: Identity,
}

/// The order of one dataset's rows in its own endless stream, epoch after epoch.
#[derive(Clone, Debug)]
struct RowOrder {
    seed: u64,
    dataset: u32,
    rows: u64,
    shuffle: Shuffle,
}

/// What a permutation is for; part of its key, so that no two are alike.
#[derive(Clone, Copy)]
enum Use {
    Epoch = 0,
    Spare = 1,
}

impl RowOrder {
    fn row_at(&self, place: u64) -> u64 {
        let (epoch, index) = (place / self.rows, place % self.rows);
        match self.shuffle {
            Shuffle::None => index,
            Shuffle::Full => self.permutation(Use::Epoch, epoch).apply(index),
        }
    }

    fn spare_row(&self, place: u64, attempt: u32) -> u64 {
        let epoch = place / self.rows;
        let turn = mix(epoch ^ mix(u64::from(attempt)));
        self.permutation(Use::Spare, turn).apply(place % self.rows)
    }

    fn permutation(&self, purpose: Use, turn: u64) -> Permutation {
        let key = [self.seed, u64::from(self.dataset), purpose as u64, turn];
        Permutation::new(self.rows, key)
    }
}

impl Plan {
    /// The plan over one dataset of `rows` rows. `identity` names everything else that decides
    /// what batches hold.
    pub fn new(
        config: &recipe::Plan,
        batch_size: u32,
        rows: u64,
        mut identity: Identity,
    ) -> Result<Self> {
        if rows == 0 {
            return Err(Error::Bug("a plan over no rows".into()));
        }
        identity.add("plan.seed", config.seed);
        identity.add("plan.shuffle", if config.shuffle == Shuffle::Full { "full" } else { "none" });
        identity.add("plan.lanes", config.lanes);
        identity.add("pack.batch-size", batch_size);
        identity.add("dataset.rows", rows);
        let order = RowOrder { seed: config.seed, dataset: 0, rows, shuffle: config.shuffle };
        let (lanes, epochs) = (config.lanes, config.epochs);
        Ok(Self { order, lanes, batch_size, epochs, identity })
    }

    /// The sample at a position.
    pub fn sample_at(&self, position: Position) -> SampleId {
        SampleId { dataset: 0, row: self.order.row_at(position.0) }
    }

    /// The sample that stands in where the one at a position is bad, and so are the spares of all
    /// earlier attempts. Attempts count from 1.
    pub fn spare(&self, position: Position, attempt: u32) -> SampleId {
        SampleId { dataset: 0, row: self.order.spare_row(position.0, attempt) }
    }

    /// The name of a batch of the global sequence.
    pub fn batch(&self, sequence: u64) -> BatchName {
        let lanes = u64::from(self.lanes);
        BatchName { lane: (sequence % lanes) as u32, number: sequence / lanes }
    }

    /// The positions of a batch's samples, in order.
    pub fn positions(&self, batch: BatchName) -> impl Iterator<Item = Position> + use<> {
        let sequence = batch.number * u64::from(self.lanes) + u64::from(batch.lane);
        let size = u64::from(self.batch_size);
        (sequence * size..(sequence + 1) * size).map(Position)
    }

    /// Length of the global sequence of batches: all epochs, with the last batch filled up from the
    /// epoch after. `None` if it is endless.
    pub fn batches(&self) -> Option<u64> {
        let samples = self.epochs?.saturating_mul(self.order.rows);
        Some(samples.div_ceil(u64::from(self.batch_size)))
    }

    /// How many batches each rank gets from a place in the global sequence to its end. The same for
    /// every rank: the last round is filled up from the epoch after.
    pub fn batches_per_rank(&self, start: u64, rank: Rank) -> Option<u64> {
        Some(self.batches()?.saturating_sub(start).div_ceil(u64::from(rank.of)))
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
        cursor.check(&self.identity)
    }
}

#[cfg(test)]
mod tests;
