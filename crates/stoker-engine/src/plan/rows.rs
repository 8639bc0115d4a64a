//! The order of one dataset's rows in its own endless stream, epoch after epoch.

use super::blocks::Blocks;
use super::permutation::{Permutation, mix};
use super::source::Source;
use crate::recipe::{self, Shuffle};

/// Blocks that are mixed with one another, where the recipe does not say: with blocks of 1,024 rows,
/// neighbours in the source come apart by some 10,000 samples, and at most 16 shards are open.
pub(super) const WINDOW: u32 = 16;

/// Which row is at which place of the stream.
#[derive(Clone, Debug)]
pub(super) struct RowOrder {
    rows: u64,
    keys: Keys,
    shuffle: Shuffled,
}

#[derive(Clone, Debug)]
enum Shuffled {
    Full,
    Block(Blocks),
    None,
}

/// What makes a permutation one of this plan and this dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    seed: u64,
    dataset: u32,
}

/// What a permutation is for; part of its key, so that no two are alike.
#[derive(Clone, Copy)]
pub(super) enum Use {
    Epoch = 0,
    Spare = 1,
    Blocks = 2,
    Window = 3,
}

impl Keys {
    pub(super) fn permutation(self, size: u64, purpose: Use, turn: u64) -> Permutation {
        Permutation::new(size, [self.seed, u64::from(self.dataset), purpose as u64, turn])
    }
}

impl RowOrder {
    /// The order of the rows of a dataset, by its number.
    pub(super) fn new(config: &recipe::Plan, dataset: u32, source: &Source) -> Self {
        let shuffle = match config.shuffle {
            Shuffle::Full => Shuffled::Full,
            Shuffle::Block => Shuffled::Block(Blocks::new(source, config.window.unwrap_or(WINDOW))),
            Shuffle::None => Shuffled::None,
        };
        Self { rows: source.rows, keys: Keys { seed: config.seed, dataset }, shuffle }
    }

    /// The row at a place.
    pub(super) fn row_at(&self, place: u64) -> u64 {
        let (epoch, index) = (place / self.rows, place % self.rows);
        match &self.shuffle {
            Shuffled::None => index,
            Shuffled::Full => self.keys.permutation(self.rows, Use::Epoch, epoch).apply(index),
            Shuffled::Block(blocks) => blocks.row_at(self.keys, epoch, index),
        }
    }

    /// The row that stands in at a place, at an attempt from 1 on.
    pub(super) fn spare_row(&self, place: u64, attempt: u32) -> u64 {
        let epoch = place / self.rows;
        let turn = mix(epoch ^ mix(u64::from(attempt)));
        self.keys.permutation(self.rows, Use::Spare, turn).apply(place % self.rows)
    }

    /// A hash of the borders of the blocks, where there are any: they are part of the order.
    pub(super) fn borders(&self) -> Option<u64> {
        match &self.shuffle {
            Shuffled::Block(blocks) => Some(blocks.borders()),
            Shuffled::Full | Shuffled::None => None,
        }
    }
}
