//! Looking at data without training on it: one sample as the model sees it, the indexes, and what
//! a run will see.

use std::path::PathBuf;

use crate::engine::Rooms;
use crate::engine::reference::Reference;
use crate::error::Result;
use crate::plan::{Identity, Plan};
use crate::recipe::{self, Recipe, Remainder, Share};
use crate::sample::{Position, Rank};

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

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Its samples, on all ranks together.
    pub samples: u64,
    /// Batches of each rank.
    pub batches: u64,
    /// Samples of the last epoch that make no whole round of batches and are left out, or places of
    /// the last round that are filled up or padded: by `plan.remainder`.
    pub remainder: u64,
}

/// What will be seen of each dataset in a run on so many ranks, and how long it is; without a number
/// of batches (of each rank), all that the recipe asks for, or one epoch if that is endless. Needs no
/// model. `progress` is told bytes read and bytes in all while indexes are built.
pub fn outlook(
    recipe: &Recipe,
    ranks: u32,
    batches: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Vec<Outlook>, Length)> {
    let catalog = Rooms::open_catalog(recipe, progress)?;
    let config = recipe::Plan { epochs: recipe.plan.epochs.or(Some(1)), ..recipe.plan.clone() };
    let sources = catalog.sources(recipe);
    let plan = Plan::new(&config, recipe.pack.batch_size, &sources, Identity::default())?;
    let length = length(&plan, ranks, recipe, batches);
    let counts = plan.counts(Position(length.samples));
    let both = sources.iter().zip(&recipe.datasets).zip(counts);
    let outlooks = both.map(|((source, component), samples)| Outlook {
        name: component.name.clone(),
        asked: component.share,
        rows: source.rows,
        samples,
    });
    Ok((outlooks.collect(), length))
}

fn length(plan: &Plan, ranks: u32, recipe: &Recipe, batches: Option<u64>) -> Length {
    let step = u64::from(recipe.pack.batch_size).saturating_mul(u64::from(ranks));
    let places = |batches: u64| batches.saturating_mul(step);
    let asked = plan.samples().unwrap_or_default();
    let whole = plan.batches_per_rank(0, Rank { index: 0, of: ranks }).unwrap_or_default();
    match (batches, recipe.plan.remainder) {
        (None, Remainder::Fill) => Length {
            samples: asked,
            batches: whole,
            remainder: places(whole).saturating_sub(asked),
        },
        // A pass may be cut short, and does not go on behind its end.
        (batches, Remainder::Pad) => {
            let batches = batches.map_or(whole, |batches| batches.min(whole));
            let places = places(batches);
            Length { samples: places.min(asked), batches, remainder: places.saturating_sub(asked) }
        }
        (None, Remainder::Drop) => {
            Length { samples: places(whole), batches: whole, remainder: asked - places(whole) }
        }
        (Some(batches), Remainder::Fill | Remainder::Drop) => {
            Length { samples: places(batches), batches, remainder: 0 }
        }
    }
}
