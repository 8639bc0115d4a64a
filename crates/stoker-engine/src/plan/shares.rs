//! From what the recipe asks of each dataset to whole-numbered weights.
//!
//! Weights of the recipe are decimals and taken as they stand. Epochs are samples: epochs times
//! rows. Without either, a dataset has as many samples as rows; a temperature evens that out.

use super::mixture::Weights;
use super::source::Source;
use crate::error::{Error, Problem, Result};
use crate::recipe::{self, Decimal, Share};

/// Sums of weights and of rows stay below this, so that they can be reckoned with.
const MOST: u64 = 1 << 62;

/// What the weights of a temperature sum up to, about.
const SCALE: f64 = (1_u64 << 32) as f64;

/// The stages of a mixture.
pub(super) fn stages(config: &recipe::Plan, sources: &[Source]) -> Result<Vec<Weights>> {
    let first = match config.temperature {
        Some(temperature) if temperature != Decimal::ONE => tempered(temperature, sources),
        _ => sources.iter().map(wanted).collect(),
    };
    let mut stages = vec![Weights { from: 0, weights: first }];
    for stage in &config.stages {
        let weights = stage.weights.iter().map(|weight| weight.billionths()).collect();
        stages.push(Weights { from: stage.from, weights });
    }
    for stage in &stages {
        sum(&stage.weights)?;
    }
    Ok(stages)
}

/// Samples of one epoch of a mixture: all that datasets with epochs ask for, else as many as there
/// are rows.
pub(super) fn epoch(sources: &[Source]) -> Result<u64> {
    let samples: Vec<u64> = sources
        .iter()
        .map(|source| match source.share {
            Share::Epochs(_) => wanted(source),
            Share::Rows | Share::Weight(_) => source.rows,
        })
        .collect();
    sum(&samples)
}

fn wanted(source: &Source) -> u64 {
    match source.share {
        Share::Rows => source.rows,
        Share::Weight(weight) => weight.billionths(),
        Share::Epochs(epochs) => epochs.times(source.rows).max(1),
    }
}

/// Weights in proportion to rows^(1 / temperature).
fn tempered(temperature: Decimal, sources: &[Source]) -> Vec<u64> {
    let exponent = 1.0 / temperature.to_f64();
    let sizes: Vec<f64> =
        sources.iter().map(|source| (source.rows as f64).powf(exponent)).collect();
    let whole: f64 = sizes.iter().sum();
    sizes.iter().map(|size| ((size / whole * SCALE).round() as u64).max(1)).collect()
}

fn sum(numbers: &[u64]) -> Result<u64> {
    let sum = numbers.iter().try_fold(0_u64, |sum, number| sum.checked_add(*number));
    sum.filter(|sum| *sum < MOST).ok_or_else(|| {
        Error::Recipe(vec![Problem {
            path: "datasets".into(),
            reason: format!("weights or samples sum up to more than {MOST}"),
            hint: Some("give smaller weights or fewer epochs; only their ratio counts".into()),
        }])
    })
}
