//! `shuffle = "block"`: shards are read nearly from front to back.
//!
//! A block is a run of at most [`LARGEST`] neighbouring rows of one shard. In each epoch the blocks
//! are put in a new order, that order is cut into windows of as many blocks each, and the rows of a
//! window are mixed with one another. So at any time the rows come from one window: at most that
//! many shards are open, and a block is read whole before it is let go.
//!
//! Blocks differ in size, so where one begins in an epoch is known only by adding up those before
//! it. The sums of an epoch (12 bytes a block) are kept for the last few epochs that were asked for:
//! a matter of speed only, as they are a function of the plan.

use std::sync::{Arc, Mutex, PoisonError};

use super::permutation::mix;
use super::rows::{Keys, Use};
use super::source::Source;

/// Most rows of a block. With samples of 100 kB that is one read of 100 MB.
const LARGEST: u64 = 1024;

/// Epochs whose sums are kept: reading ahead goes over the edge of one.
const KEPT: usize = 2;

/// The blocks of a dataset.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// First rows of the blocks, and the number of rows.
    starts: Arc<[u64]>,
    window: usize,
    recent: Arc<Mutex<Vec<Arc<Epoch>>>>,
}

/// The blocks in the order of an epoch.
#[derive(Debug)]
struct Epoch {
    number: u64,
    order: Vec<u32>,
    /// Rows before each of them, and the number of rows.
    before: Vec<u64>,
}

impl Blocks {
    /// Cuts each shard into blocks as equal as can be.
    pub(super) fn new(source: &Source, window: u32) -> Self {
        let mut starts = Vec::new();
        for (index, &first) in source.shards.iter().enumerate() {
            let end = source.shards.get(index + 1).copied().unwrap_or(source.rows);
            let (rows, count) = (end - first, (end - first).div_ceil(LARGEST));
            // The first ones have one row more where it does not come out even.
            let start = |block: u64| first + block * (rows / count) + block.min(rows % count);
            starts.extend((0..count).map(start));
        }
        starts.push(source.rows);
        Self { starts: starts.into(), window: window as usize, recent: Arc::default() }
    }

    /// The row at a place of an epoch.
    pub(super) fn row_at(&self, keys: Keys, epoch: u64, index: u64) -> u64 {
        let epoch = self.epoch(keys, epoch);
        let window = epoch.block_at(0, epoch.order.len(), index) / self.window;
        let first = window * self.window;
        let end = (first + self.window).min(epoch.order.len());
        let (begin, rows) = (epoch.before[first], epoch.before[end] - epoch.before[first]);
        let turn = mix(epoch.number ^ mix(window as u64));
        let mixed = begin + keys.permutation(rows, Use::Window, turn).apply(index - begin);
        let block = epoch.block_at(first, end, mixed);
        self.starts[epoch.order[block] as usize] + (mixed - epoch.before[block])
    }

    /// A hash of where the blocks begin.
    pub(super) fn borders(&self) -> u64 {
        let bytes: Vec<u8> = self.starts.iter().flat_map(|start| start.to_le_bytes()).collect();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }

    fn epoch(&self, keys: Keys, number: u64) -> Arc<Epoch> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(epoch) = recent.iter().find(|epoch| epoch.number == number) {
            return Arc::clone(epoch);
        }
        let epoch = Arc::new(Epoch::new(keys, number, &self.starts));
        if recent.len() == KEPT {
            recent.remove(0);
        }
        recent.push(Arc::clone(&epoch));
        epoch
    }
}

impl Epoch {
    fn new(keys: Keys, number: u64, starts: &[u64]) -> Self {
        let blocks = starts.len() as u64 - 1;
        let permutation = keys.permutation(blocks, Use::Blocks, number);
        let order: Vec<u32> = (0..blocks).map(|index| permutation.apply(index) as u32).collect();
        let mut before = Vec::with_capacity(starts.len());
        let mut sum = 0;
        for &block in &order {
            before.push(sum);
            sum += starts[block as usize + 1] - starts[block as usize];
        }
        before.push(sum);
        Self { number, order, before }
    }

    /// Which of some blocks, in the order of the epoch, an index of it falls in.
    fn block_at(&self, first: usize, end: usize, index: u64) -> usize {
        first + self.before[first..end].partition_point(|before| *before <= index) - 1
    }
}
