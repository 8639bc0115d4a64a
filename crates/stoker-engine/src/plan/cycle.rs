//! A mixture of small weights: one period, as a table.
//!
//! With weights a₁ … a_k of sum A (and k > 1), the period is A positions, and after each of them
//! every dataset had its share of the positions so far within 1 − 1/(2k − 2) samples, which is the
//! best there is for all weights (R. Tijdeman, "The chairman assignment problem", 1980). Position by
//! position, of all datasets whose share is ahead of them by 1/(2k − 2) or more, the one is drawn
//! that would be the first to fall behind by 1 − 1/(2k − 2).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Longest period that is kept as a table: half a MiB. Weights that people write sum up to less;
/// what sums up to more goes into a tree.
const LONGEST: u64 = 1 << 16;

/// One period of a mixture.
#[derive(Clone, Debug)]
pub(super) struct Cycle {
    slots: Vec<Slot>,
    weights: Vec<u64>,
}

/// What is at one position of the period.
#[derive(Clone, Copy, Debug)]
struct Slot {
    dataset: u32,
    /// The how-manieth of the dataset in this period it is.
    rank: u32,
}

impl Cycle {
    /// The period of weights without a common divisor; `None` if it is too long for a table.
    pub(super) fn new(weights: &[u64]) -> Option<Self> {
        let length = weights.iter().try_fold(0_u64, |sum, weight| sum.checked_add(*weight))?;
        (length <= LONGEST).then(|| Self { slots: slots(weights, length), weights: weights.into() })
    }

    /// The dataset at a position, and how often it came before.
    pub(super) fn place_at(&self, position: u64) -> (u32, u64) {
        let length = self.slots.len() as u64;
        let (turns, slot) = (position / length, self.slots[(position % length) as usize]);
        let before = turns * self.weights[slot.dataset as usize] + u64::from(slot.rank);
        (slot.dataset, before)
    }

    /// Adds how often each dataset comes before a position.
    pub(super) fn count(&self, position: u64, counts: &mut [u64]) {
        let length = self.slots.len() as u64;
        let (turns, rest) = (position / length, (position % length) as usize);
        for (count, weight) in counts.iter_mut().zip(&self.weights) {
            *count += turns * weight;
        }
        for slot in &self.slots[..rest] {
            counts[slot.dataset as usize] += 1;
        }
    }
}

/// The period by Tijdeman's rule. All of it is reckoned in units of 1 / (A (2k − 2)).
fn slots(weights: &[u64], length: u64) -> Vec<Slot> {
    let drawn = (0_u32..).zip(weights).filter(|(_, weight)| **weight > 0);
    let parts = drawn.clone().count() as u64 * 2 - 2;
    if parts == 0 {
        let slot = |(dataset, _)| Slot { dataset, rank: 0 };
        return drawn.map(slot).collect();
    }
    // The first of the positions 1, 2, … at which a share is `units` over `rank` samples.
    let due = |dataset: u32, rank: u32, units: u64| {
        let needed = (u64::from(rank) * parts + units) * length;
        needed.div_ceil(parts * weights[dataset as usize])
    };
    let mut waiting: BinaryHeap<_> =
        drawn.map(|(dataset, _)| Reverse((due(dataset, 0, 1), dataset, 0))).collect();
    let mut ready = BinaryHeap::new();
    let mut slots = Vec::with_capacity(length as usize);
    for position in 1..=length {
        while let Some(Reverse((from, dataset, rank))) = waiting.peek().copied()
            && from <= position
        {
            waiting.pop();
            ready.push(Reverse((due(dataset, rank, parts - 1), dataset, rank)));
        }
        let Reverse((_, dataset, rank)) = ready.pop().expect("Tijdeman: one is always ahead");
        slots.push(Slot { dataset, rank });
        waiting.push(Reverse((due(dataset, rank + 1, 1), dataset, rank + 1)));
    }
    slots
}
