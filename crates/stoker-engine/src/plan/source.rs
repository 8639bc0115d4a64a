//! What the plan knows of a dataset.

use crate::recipe::Share;

/// A dataset, as far as its order goes.
#[derive(Clone, Debug)]
pub struct Source {
    /// Number of rows; at least one.
    pub rows: u64,
    /// First row of each shard, ascending from 0.
    pub shards: Vec<u64>,
    /// How much of it is asked for.
    pub share: Share,
}
