//! Which dataset a position belongs to, and the how-manieth sample of that dataset it is.
//!
//! A [`Mixture`] is a list of stages, each with its own weights from a stated position on. Within a
//! stage the draw is a pure function of whole-numbered weights with random access: a table of one
//! period where the weights are small numbers ([`super::cycle`]), else a tree of two-way splits
//! ([`super::tree`]). Both keep every prefix of the stage near the weights by a proven bound, and
//! after a whole period both are exact. A dataset's own stream goes on over the stages where it was.

use super::cycle::Cycle;
use super::tree::Tree;

/// Datasets that share positions.
#[derive(Clone, Debug)]
pub(super) struct Mixture {
    pub(super) stages: Vec<Stage>,
}

#[derive(Clone, Debug)]
pub(super) struct Stage {
    from: u64,
    /// Samples of each dataset before the stage.
    before: Vec<u64>,
    pub(super) draw: Draw,
}

#[derive(Clone, Debug)]
pub(super) enum Draw {
    Cycle(Cycle),
    Tree(Tree),
}

/// Weights from a position on; a dataset with weight 0 is not drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    pub(super) from: u64,
    pub(super) weights: Vec<u64>,
}

impl Mixture {
    /// The mixture of stages in order of their positions, the first from 0. Each has a weight for
    /// every dataset, at least one that is not 0, and a sum below 2^62.
    pub(super) fn new(stages: Vec<Weights>) -> Self {
        let mut mixture = Self { stages: Vec::new() };
        for Weights { from, weights } in stages {
            let is_first = mixture.stages.is_empty();
            let before = if is_first { vec![0; weights.len()] } else { mixture.counts(from) };
            mixture.stages.push(Stage { from, before, draw: Draw::new(&weights) });
        }
        mixture
    }

    /// The dataset at a position, and the place in that dataset's own stream.
    pub(super) fn place_at(&self, position: u64) -> (u32, u64) {
        let stage = self.stage(position);
        let (dataset, place) = match &stage.draw {
            Draw::Cycle(cycle) => cycle.place_at(position - stage.from),
            Draw::Tree(tree) => tree.place_at(position - stage.from),
        };
        (dataset, stage.before[dataset as usize] + place)
    }

    /// Samples of each dataset before a position.
    pub(super) fn counts(&self, position: u64) -> Vec<u64> {
        let stage = self.stage(position);
        let mut counts = stage.before.clone();
        match &stage.draw {
            Draw::Cycle(cycle) => cycle.count(position - stage.from, &mut counts),
            Draw::Tree(tree) => tree.count(position - stage.from, &mut counts),
        }
        counts
    }

    fn stage(&self, position: u64) -> &Stage {
        let next = self.stages.partition_point(|stage| stage.from <= position);
        &self.stages[next - 1]
    }
}

impl Draw {
    fn new(weights: &[u64]) -> Self {
        let divisor = weights.iter().copied().fold(0, gcd);
        let weights: Vec<u64> = weights.iter().map(|weight| weight / divisor).collect();
        match Cycle::new(&weights) {
            Some(cycle) => Self::Cycle(cycle),
            None => Self::Tree(Tree::new(&weights)),
        }
    }
}

/// Greatest common divisor.
pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
