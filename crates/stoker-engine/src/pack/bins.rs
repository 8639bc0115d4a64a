//! Which samples share a batch, where a batch holds as many as a budget of tokens allows.
//!
//! A lane's stream of samples is cut into windows, and each window into [`BATCHES`] batches. That
//! number is the same for all windows, so batch `n` of a lane is batch `n % BATCHES` of its window
//! `n / BATCHES`, on all lanes alike; all that a lane has to remember is where its window begins.
//! Nothing is carried from one window to the next. `docs/rooms/pack.md` says it in full.
//!
//! What balances the ranks is that all lanes are at the same place of their windows, and that a
//! window's batches come in an order of their costs: a step gives every rank a batch of the same
//! standing, so that a costly one (a long sample can't be split) meets other costly ones.

use std::cmp::Reverse;

use super::cost::SampleSize;

/// Batches in a window. Measured on skewed mixtures, 8 ranks: with 16 the heaviest rank is 7 % over
/// the mean of its step, with 32 it is 5 %, with 64 it is 3 %; batches are 96.7, 97.5 and 98 % full.
/// No more than 32, since a rank measures a window of a lane before it has the first batch of it.
pub const BATCHES: usize = 32;

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
        self.holds(&Load::default().with(size))
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

/// A window that is being filled with the sizes of a lane's next samples.
#[derive(Clone, Debug)]
pub struct Window {
    budget: Budget,
    sizes: Vec<SampleSize>,
    total: Load,
}

/// A window that was cut into batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// How many of the lane's samples it has: the next window begins after them.
    pub length: usize,
    /// For each batch, its samples in the order of the lane, counted from the window's first.
    pub batches: Vec<Vec<usize>>,
}

impl Window {
    /// An empty one.
    pub fn new(budget: Budget) -> Self {
        Self { budget, sizes: Vec::new(), total: Load::default() }
    }

    /// Adds the lane's next sample, which fits into a batch by itself.
    pub fn push(&mut self, size: SampleSize) {
        self.total.put(self.sizes.len(), &size);
        self.sizes.push(size);
    }

    /// Whether there are samples enough: more than its batches hold.
    pub fn is_full(&self) -> bool {
        let Self { budget, total, .. } = self;
        let over = |sum: u64, most: u64| sum > most.saturating_mul(BATCHES as u64);
        over(total.tokens, budget.tokens)
            || over(total.images, budget.images)
            || over(total.patches, budget.patches)
    }

    /// Cuts a full window: the longest beginning that goes into the batches.
    pub fn pack(&self) -> Packed {
        assert!(self.is_full(), "a window is cut when its samples are more than fit");
        // It ends: as many samples as batches always fit, and a full window has more than those.
        let shorter = (1..self.sizes.len()).rev();
        let cut = |length| Some((length, place(&self.sizes[..length], BATCHES, &self.budget)?));
        let (length, mut loads) =
            shorter.into_iter().find_map(cut).expect("one sample for each batch fits");
        for load in &mut loads {
            load.samples.sort_unstable();
        }
        loads.sort_by_key(|load| (Reverse(load.cost), load.samples.first().copied()));
        let batches = (0..BATCHES).map(|turn| std::mem::take(&mut loads[standing(turn)].samples));
        Packed { length, batches: batches.collect() }
    }
}

/// Which batch of a window comes at a turn, counted from the costliest: the turn's bits reversed.
/// So the costliest is the first, which shows at once whether it fits the device, and every run of
/// turns has costly and cheap ones.
fn standing(turn: usize) -> usize {
    turn.reverse_bits() >> (usize::BITS - BATCHES.ilog2())
}

/// Puts samples into so many batches: the longest first, each into the batch of the least cost that
/// has room for it; of equals, into the first. `None` if one fits nowhere.
fn place(sizes: &[SampleSize], batches: usize, budget: &Budget) -> Option<Vec<Load>> {
    let mut loads = vec![Load::default(); batches];
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&sample| Reverse(sizes[sample].tokens));
    let mut put = |sample: usize, may: &dyn Fn(&Load) -> bool| {
        let size = &sizes[sample];
        let open = loads.iter_mut().filter(|load| may(load) && budget.holds(&load.with(size)));
        open.min_by_key(|load| load.cost).map(|load| load.put(sample, size))
    };
    // First what has images goes to batches that lack them, then all the others.
    let lacks = |load: &Load| load.images < budget.least_images;
    order.retain(|&sample| sizes[sample].images == 0 || put(sample, &lacks).is_none());
    order.into_iter().try_for_each(|sample| put(sample, &|_| true))?;
    Some(loads)
}

#[cfg(test)]
mod tests;
