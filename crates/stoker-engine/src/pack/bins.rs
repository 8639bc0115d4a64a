//! Which samples share a batch, where a batch holds as many as a budget of tokens allows.
//!
//! The stream of samples is cut into windows, and each window into the same number of batches
//! ([`batches_of_window`]). So batch `g` of the global sequence is one of window `g / batches`, and
//! all that there is to remember is where that window begins. Nothing is carried from one window to
//! the next, and sizes are enough to know all batches of a window. `docs/rooms/pack.md` says it in
//! full.
//!
//! Ranks wait for the slowest of them. A window's batches follow each other in the order of their
//! costs, so a step gives all ranks batches of almost the same cost, even where a long sample that
//! can't be split makes some batches costlier than others.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::cost::SampleSize;

/// How often a window serves each lane. A step on as many ranks as lanes takes one of so many parts
/// of a window: with 8 the heaviest of 64 ranks is 4 % over the mean of its step on skewed mixtures.
/// More would only be more to measure before the first batch.
const ROUNDS: usize = 8;

/// Fewest batches of a window, for few lanes: fewer are harder to fill.
const FEWEST: usize = 64;

/// How many batches a window has: a multiple of the lanes, so that any number of ranks that divides
/// the lanes takes whole steps of it.
pub fn batches_of_window(lanes: usize) -> usize {
    lanes * rounds(lanes)
}

/// A power of two, since turns are taken in an order of reversed bits.
fn rounds(lanes: usize) -> usize {
    FEWEST.div_ceil(lanes).next_power_of_two().max(ROUNDS)
}

/// What a batch may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most tokens.
    pub tokens: u64,
    /// Most images.
    pub images: u64,
    /// Most patches.
    pub patches: u64,
    /// Fewest images; what the samples lack is made up with neutral images.
    pub least_images: u64,
    /// What one neutral image takes.
    pub neutral: SampleSize,
}

impl Budget {
    /// Whether a sample goes into a batch by itself.
    pub fn admits(&self, size: &SampleSize) -> bool {
        self.holds_all(&[*size])
    }

    /// Whether samples of these sizes go into one batch.
    pub fn holds_all(&self, sizes: &[SampleSize]) -> bool {
        self.holds(&sizes.iter().fold(Load::default(), |load, size| load.with(size)))
    }

    /// Whether a batch of these sizes in sum is allowed.
    fn holds(&self, load: &Load) -> bool {
        let missing = self.least_images.saturating_sub(load.images);
        load.tokens + missing * self.neutral.tokens <= self.tokens
            && load.images + missing <= self.images
            && load.patches + missing * self.neutral.patches <= self.patches
    }
}

/// A batch in the making.
#[derive(Clone, Debug, Default)]
struct Load {
    tokens: u64,
    images: u64,
    patches: u64,
    cost: u64,
    samples: Vec<usize>,
}

impl Load {
    fn with(&self, size: &SampleSize) -> Self {
        Self {
            tokens: self.tokens + size.tokens,
            images: self.images + size.images,
            patches: self.patches + size.patches,
            cost: self.cost.saturating_add(size.cost),
            samples: Vec::new(),
        }
    }

    fn put(&mut self, sample: usize, size: &SampleSize) {
        let samples = std::mem::take(&mut self.samples);
        *self = Self { samples, ..self.with(size) };
        self.samples.push(sample);
    }
}

/// A window that is being filled with the sizes of the next samples.
#[derive(Clone, Debug)]
pub struct Window {
    budget: Budget,
    lanes: usize,
    sizes: Vec<SampleSize>,
    total: Load,
}

/// A window that was cut into batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The sizes of its samples: the next window begins after them.
    pub sizes: Vec<SampleSize>,
    /// For each batch, in the order that they come, its samples, counted from the window's first.
    pub batches: Vec<Vec<usize>>,
    /// The sizes that were pushed and found no room: those of the next window's first samples.
    pub beyond: Vec<SampleSize>,
}

impl Window {
    /// An empty one, of a plan with so many lanes.
    pub fn new(budget: Budget, lanes: usize) -> Self {
        Self { budget, lanes, sizes: Vec::new(), total: Load::default() }
    }

    /// Adds the next sample, which fits into a batch by itself.
    pub fn push(&mut self, size: SampleSize) {
        debug_assert!(self.budget.admits(&size), "what fits nowhere is not pushed");
        self.total = self.total.with(&size);
        self.sizes.push(size);
    }

    /// Whether there are samples enough: more than its batches hold.
    pub fn is_full(&self) -> bool {
        let Self { budget, total, .. } = self;
        let batches = batches_of_window(self.lanes) as u64;
        let over = |sum: u64, most: u64| sum > most.saturating_mul(batches);
        over(total.tokens, budget.tokens)
            || over(total.images, budget.images)
            || over(total.patches, budget.patches)
    }

    /// Cuts a full window: the longest beginning that goes into the batches.
    pub fn pack(mut self) -> Packed {
        assert!(self.is_full(), "a window is cut when its samples are more than fit");
        let batches = batches_of_window(self.lanes);
        // It ends: as many samples as batches always fit, and a full window has more than those.
        let mut shorter = (1..self.sizes.len()).rev();
        let cut = |length| Some((length, place(&self.sizes[..length], batches, &self.budget)?));
        let (length, mut loads) = shorter.find_map(cut).expect("one sample for each batch fits");
        let beyond = self.sizes.split_off(length);
        for load in &mut loads {
            load.samples.sort_unstable();
        }
        loads.sort_by_key(|load| (Reverse(load.cost), load.samples.first().copied()));
        let mut at_turn = |turn| std::mem::take(&mut loads[standing(turn, self.lanes)].samples);
        let batches = (0..batches).map(&mut at_turn).collect();
        Packed { sizes: self.sizes, batches, beyond }
    }
}

/// Which batch of a window comes at a turn, counted from the costliest. A round of turns, one for
/// each lane, has batches that are neighbours by cost; the rounds come in the order of their numbers
/// with reversed bits. So the costliest batch is the first, which shows at once whether it fits the
/// device, and costly and cheap rounds alternate.
fn standing(turn: usize, lanes: usize) -> usize {
    let (round, place) = (turn / lanes, turn % lanes);
    let bits = rounds(lanes).ilog2();
    (round.reverse_bits() >> (usize::BITS - bits)) * lanes + place
}

/// Puts samples into so many batches: the longest first, each into the batch of the least cost that
/// has room for it; of equals, into the first. `None` if one fits nowhere.
fn place(sizes: &[SampleSize], batches: usize, budget: &Budget) -> Option<Vec<Load>> {
    let mut loads = vec![Load::default(); batches];
    let mut by_cost: BTreeSet<(u64, usize)> = (0..batches).map(|batch| (0, batch)).collect();
    let mut put = |sample: usize, may: &dyn Fn(&Load) -> bool| {
        let size = &sizes[sample];
        let has_room = |&&(_, batch): &&(u64, usize)| {
            may(&loads[batch]) && budget.holds(&loads[batch].with(size))
        };
        let &(cost, batch) = by_cost.iter().find(has_room)?;
        by_cost.remove(&(cost, batch));
        loads[batch].put(sample, size);
        by_cost.insert((loads[batch].cost, batch));
        Some(())
    };
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&sample| Reverse(sizes[sample].tokens));
    // First what has images goes to batches that lack them, then all the others.
    let lacks = |load: &Load| load.images < budget.least_images;
    order.retain(|&sample| sizes[sample].images == 0 || put(sample, &lacks).is_none());
    order.into_iter().try_for_each(|sample| put(sample, &|_| true))?;
    Some(loads)
}

#[cfg(test)]
mod tests;
