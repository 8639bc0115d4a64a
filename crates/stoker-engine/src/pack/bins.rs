//! Which samples share a batch, where a batch holds as many as a budget of tokens allows.
//!
//! The stream of samples is cut into windows, and each window into the same number of batches
//! ([`batches_of_window`]). So batch `g` of the global sequence is one of window `g / batches`, and
//! all that there is to remember is where that window begins. Nothing is carried from one window to
//! the next, and sizes are enough to know all batches of a window. A run that ends has a last window
//! of as few batches as hold what is left. `docs/rooms/pack.md` says it in full.
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
    /// Most batches that it is cut into.
    batches: usize,
    /// Samples that are left of the run, where it ends.
    left: Option<u64>,
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
    /// Whether it holds all that was left of the run.
    pub is_last: bool,
}

impl Window {
    /// An empty one, of a plan with so many lanes; `left` are the samples from its first on, where
    /// the run ends.
    pub fn new(budget: Budget, lanes: usize, left: Option<u64>) -> Self {
        let (batches, total) = (batches_of_window(lanes), Load::default());
        Self { budget, lanes, batches, left, sizes: Vec::new(), total }
    }

    /// The one behind the last: a batch for each lane, to fill up the last round of ranks.
    pub fn behind_the_last(budget: Budget, lanes: usize) -> Self {
        Self { batches: lanes, ..Self::new(budget, lanes, None) }
    }

    /// Adds the next sample, which fits into a batch by itself.
    pub fn push(&mut self, size: SampleSize) {
        debug_assert!(self.budget.admits(&size), "what fits nowhere is not pushed");
        self.total = self.total.with(&size);
        self.sizes.push(size);
    }

    /// Whether there are samples enough: more than its batches hold, or all that are left.
    pub fn is_complete(&self) -> bool {
        self.is_over() || self.has_all()
    }

    /// Most samples that it may be given.
    pub fn most(&self) -> u64 {
        self.left.unwrap_or(u64::MAX)
    }

    fn is_over(&self) -> bool {
        let Self { budget, total, .. } = self;
        let batches = self.batches as u64;
        let over = |sum: u64, most: u64| sum > most.saturating_mul(batches);
        over(total.tokens, budget.tokens)
            || over(total.images, budget.images)
            || over(total.patches, budget.patches)
    }

    fn has_all(&self) -> bool {
        self.left == Some(self.sizes.len() as u64)
    }

    /// Cuts a complete window: the longest beginning that goes into the batches. Where that is all
    /// that is left of the run, it goes into as few batches as hold it.
    pub fn pack(mut self) -> Packed {
        assert!(self.is_complete(), "a window is cut when its samples are enough");
        let placed = |length: usize, batches| place(&self.sizes[..length], batches, &self.budget);
        // It ends: as many samples as batches always fit.
        let longest = self.sizes.len() - usize::from(self.is_over());
        let cut = |length| Some((length, placed(length, self.batches)?));
        let cut = (1..=longest).rev().find_map(cut);
        let (length, mut loads) = cut.expect("one sample for each batch fits");
        let is_last = self.has_all() && length == self.sizes.len();
        if is_last {
            loads = fewest(loads, |batches| placed(length, batches));
        }
        let beyond = self.sizes.split_off(length);
        for load in &mut loads {
            load.samples.sort_unstable();
        }
        loads.sort_by_key(|load| (Reverse(load.cost), load.samples.first().copied()));
        let turns = turns(loads.len(), self.lanes);
        let batches = turns.map(|rank| std::mem::take(&mut loads[rank].samples)).collect();
        Packed { sizes: self.sizes, batches, beyond, is_last }
    }
}

/// As few batches as samples can be placed in, found by halving from those that they were placed in.
fn fewest(most: Vec<Load>, placed: impl Fn(usize) -> Option<Vec<Load>>) -> Vec<Load> {
    let (mut least, mut found) = (1, most);
    while least < found.len() {
        let middle = least.midpoint(found.len());
        match placed(middle) {
            Some(fewer) => found = fewer,
            None => least = middle + 1,
        }
    }
    found
}

/// Which batches of a window come turn by turn, counted from the costliest. A round of turns, one for
/// each lane, has batches that are neighbours by cost; the rounds come in the order of their numbers
/// with reversed bits. So the costliest batch is the first, which shows at once whether it fits the
/// device, and costly and cheap rounds alternate. What makes no whole round comes last.
fn turns(batches: usize, lanes: usize) -> impl Iterator<Item = usize> {
    let rounds = batches / lanes;
    let numbers = rounds.next_power_of_two();
    let reversed = move |number: usize| {
        number.reverse_bits().checked_shr(usize::BITS - numbers.ilog2()).unwrap_or(0)
    };
    let whole = (0..numbers).map(reversed).filter(move |round| *round < rounds);
    let whole = whole.flat_map(move |round| round * lanes..(round + 1) * lanes);
    whole.chain(rounds * lanes..batches)
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
