//! Looking at data without training on it: one sample as the model sees it, the indexes, and what
//! a run will see.

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::reference::Reference;
use crate::engine::{Flow, Rooms};
use crate::error::Result;
use crate::plan::{Identity, Plan};
use crate::recipe::{self, Component, Recipe, Remainder, Share};
use crate::sample::{Position, Rank};

pub use crate::engine::Peek;

/// From which share of measured rows on their mean speaks for all.
const NEARLY_ALL: f64 = 0.95;

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
    /// Their tokens, by the mean of its rows, where nearly all of these were measured.
    pub tokens: Option<u64>,
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

/// What is known of the sizes of a dataset's samples.
#[derive(Debug)]
pub struct SizesSummary {
    /// The dataset.
    pub name: String,
    /// Samples that are measured.
    pub measured: u64,
    /// Their tokens, image tokens included.
    pub tokens: u64,
    /// Samples that can't be used.
    pub bad: u64,
    /// The file that the sizes are in.
    pub path: PathBuf,
}

/// Measures all samples that were not measured before, with the recipe's model and limits, so that
/// packing has nothing to fetch. `progress` is told samples done and samples in all.
pub fn measure(recipe: Recipe, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<SizesSummary>> {
    let rooms = Arc::new(Rooms::open(recipe, &mut |_, _| {})?);
    let flow = Flow::start(Arc::clone(&rooms))?;
    let bad = flow.measure(progress)?;
    let summary = |(dataset, (bad, component)): (usize, (u64, &Component))| {
        let (measured, tokens) = rooms.sizes.tokens(dataset);
        let path = rooms.sizes.path(dataset).to_owned();
        SizesSummary { name: component.name.clone(), measured, tokens, bad, path }
    };
    Ok(bad.into_iter().zip(&rooms.recipe.datasets).enumerate().map(summary).collect())
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Its samples, on all ranks together.
    pub samples: u64,
    /// Batches of each rank; not known before their samples are measured where they go by tokens.
    pub batches: Option<u64>,
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
    let sizes = Rooms::known_sizes(recipe, &catalog);
    let tokens = |dataset: usize, rows: u64, samples: u64| {
        let (measured, tokens) = sizes.as_ref()?.tokens(dataset);
        // Some are bad, and never measured.
        let known = measured as f64 >= NEARLY_ALL * rows as f64;
        known.then(|| (tokens as f64 / measured as f64 * samples as f64).round() as u64)
    };
    let both = sources.iter().zip(&recipe.datasets).zip(counts).enumerate();
    let outlooks = both.map(|(dataset, ((source, component), samples))| Outlook {
        name: component.name.clone(),
        asked: component.share,
        rows: source.rows,
        samples,
        tokens: tokens(dataset, source.rows, samples),
    });
    Ok((outlooks.collect(), length))
}

fn length(plan: &Plan, ranks: u32, recipe: &Recipe, batches: Option<u64>) -> Length {
    let asked = plan.samples().unwrap_or_default();
    let Some(size) = recipe.pack.batch_size else {
        return Length { samples: asked, batches: None, remainder: 0 };
    };
    let step = u64::from(size).saturating_mul(u64::from(ranks));
    let places = |batches: u64| batches.saturating_mul(step);
    let whole = plan.batches_per_rank(0, Rank { index: 0, of: ranks }).unwrap_or_default();
    let (samples, batches, remainder) = match (batches, recipe.plan.remainder) {
        (None, Remainder::Fill) => (asked, whole, places(whole).saturating_sub(asked)),
        // A pass may be cut short, and does not go on behind its end.
        (batches, Remainder::Pad) => {
            let batches = batches.map_or(whole, |batches| batches.min(whole));
            let places = places(batches);
            (places.min(asked), batches, places.saturating_sub(asked))
        }
        (None, Remainder::Drop) => (places(whole), whole, asked - places(whole)),
        (Some(batches), Remainder::Fill | Remainder::Drop) => (places(batches), batches, 0),
    };
    Length { samples, batches: Some(batches), remainder }
}
