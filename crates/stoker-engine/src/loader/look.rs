//! Looking at data without training on it: one sample as the model sees it, the indexes, and what
//! a run will see.

use std::path::PathBuf;

use crate::engine::Rooms;
use crate::engine::reference::Reference;
use crate::error::Result;
use crate::plan::{Identity, Plan};
use crate::recipe::{self, Recipe, Share};
use crate::sample::Position;

pub use crate::engine::Peek;

/// What the index of a dataset holds.
#[derive(Debug)]
pub struct IndexSummary {
    /// The dataset.
    pub name: String,
    /// Samples.
    pub rows: u64,
    /// Identity of the data.
    pub fingerprint: String,
    /// The file that the index is in; of several shards, the first one's.
    pub path: PathBuf,
    /// Its shards.
    pub shards: usize,
    /// What the owner of the data should know and is no error, a sentence each.
    pub notes: Vec<String>,
}

/// Looks at the sample at a position of the plan. A bad sample is an error here, not replaced.
pub fn peek(recipe: Recipe, position: Position) -> Result<Peek> {
    let rooms = Rooms::open(recipe, &mut |_, _| {})?;
    Reference::new(rooms.into()).peek(position)
}

/// What a run will see of a dataset.
#[derive(Debug)]
pub struct Outlook {
    /// The dataset.
    pub name: String,
    /// How much of it the recipe asks for.
    pub asked: Share,
    /// Its rows.
    pub rows: u64,
    /// Its samples in the run.
    pub samples: u64,
}

/// Builds the indexes that are missing, and says what they hold. `progress` is told bytes read and
/// bytes in all.
pub fn index(recipe: &Recipe, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<IndexSummary>> {
    let catalog = Rooms::open_catalog(recipe, progress)?;
    let both = catalog.datasets().iter().zip(&recipe.datasets);
    Ok(both
        .map(|(dataset, component)| IndexSummary {
            name: component.name.clone(),
            rows: dataset.rows(),
            fingerprint: format!("{:016x}", dataset.fingerprint()),
            path: dataset.index_path().to_owned(),
            shards: dataset.shard_count(),
            notes: dataset.notes(),
        })
        .collect())
}

/// What will be seen of each dataset in a run of so many samples; without a number, in all that the
/// recipe asks for, or in one epoch if that is endless. Needs no model. `progress` is told bytes
/// read and bytes in all while indexes are built.
pub fn outlook(
    recipe: &Recipe,
    samples: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Outlook>> {
    let catalog = Rooms::open_catalog(recipe, progress)?;
    let config = recipe::Plan { epochs: recipe.plan.epochs.or(Some(1)), ..recipe.plan.clone() };
    let sources = catalog.sources(recipe);
    let plan = Plan::new(&config, recipe.pack.batch_size, &sources, Identity::default())?;
    let samples = samples.or(plan.samples()).unwrap_or_default();
    let counts = plan.counts(Position(samples));
    let both = sources.iter().zip(&recipe.datasets).zip(counts);
    Ok(both
        .map(|((source, component), samples)| Outlook {
            name: component.name.clone(),
            asked: component.share,
            rows: source.rows,
            samples,
        })
        .collect())
}
