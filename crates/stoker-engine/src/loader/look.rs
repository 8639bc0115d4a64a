//! Looking at data without training on it: one sample as the model sees it, and the index.

use std::path::PathBuf;

use crate::engine::Rooms;
use crate::engine::reference::Reference;
use crate::error::Result;
use crate::recipe::Recipe;
use crate::sample::Position;

pub use crate::engine::Peek;

/// What an index holds.
#[derive(Debug)]
pub struct IndexSummary {
    /// Samples.
    pub rows: u64,
    /// Identity of the data.
    pub fingerprint: String,
    /// The file that the index is in.
    pub path: PathBuf,
}

/// Looks at the sample at a position of the plan. A bad sample is an error here, not replaced.
pub fn peek(recipe: Recipe, position: Position) -> Result<Peek> {
    let rooms = Rooms::open(recipe, &mut |_, _| {})?;
    Reference::new(rooms.into()).peek(position)
}

/// Builds the index if there is none, and says what it holds. `progress` is told bytes read and
/// bytes in all.
pub fn index(recipe: &Recipe, progress: &mut dyn FnMut(u64, u64)) -> Result<IndexSummary> {
    let dataset = Rooms::open_dataset(recipe, progress)?;
    Ok(IndexSummary {
        rows: dataset.rows(),
        fingerprint: format!("{:016x}", dataset.fingerprint()),
        path: dataset.index_path().to_owned(),
    })
}
