//! How far a loader works ahead.
//!
//! Two depths. Batches *brought in* are compressed samples, which are small: enough of them wait to
//! hide the slowest answers of the store, so what counts is time, and how many batches that is
//! follows from how fast they are taken. Batches *filled* are large: as few as keep all workers busy
//! while batches of unequal work are evened out. Both are bounded by `engine.memory` besides.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::engine;
use crate::metrics;
use crate::recipe::Recipe;

/// Samples brought in ahead, once one is taken, before it is known how fast that goes.
const FIRST: u64 = 256;

/// Samples of a batch that is packed by tokens, before one was seen.
const PACKED: u64 = 8;

/// How long the batches that are brought in last: what the slowest answers of a usual store take. No
/// longer, since what waits longer has left the cache when it is decoded; but where reads are late,
/// as long as these take besides.
const LEAD: Duration = Duration::from_millis(500);

/// How often in a step of the consumer it is looked how far it is, and the pauses between that: a
/// look costs a tenth of the shortest at most, and more looks than steps have no use.
const LOOKS: u32 = 8;
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Most batches brought in ahead.
const MOST: u64 = 1024;

/// Memory for each sample brought in ahead: what it takes beside its bytes, several times over. Small
/// samples that are taken fast would else be far more than the budget for bytes knows of.
const FOR_EACH: u64 = 64 << 10;

/// The latest batches that tell how fast they are taken.
const OBSERVED: usize = 16;

/// Fewest batches filled at once: one with the consumer soon, one being finished, and two to even
/// out batches of unequal work. More would only be more memory to fault in: what hides a slow store
/// is the samples that wait.
const FEWEST_FILLED: u64 = 4;

/// Images at work or waiting for each worker, so that none is idle when one takes long.
const IMAGES_PER_WORKER: u64 = 3;

/// The depths of one iteration.
#[derive(Debug)]
pub(super) struct Depth {
    /// What the recipe says in place of the rule.
    fixed: Option<u64>,
    /// Samples of a batch, or a guess at them where they are packed by tokens.
    batch_size: u64,
    workers: u64,
    /// Most batches brought in.
    most: u64,
    taken: VecDeque<Instant>,
    batches: u64,
    images: u64,
}

/// How far the loader of a rank works ahead where its recipe's `engine` finds so many workers; and the
/// memory that it has, in bytes.
pub fn ahead(recipe: &Recipe, workers: usize) -> (metrics::Ahead, u64) {
    let memory = engine::memory(&recipe.engine);
    let depth = Depth::new(recipe.engine.prefetch, recipe.pack.batch_size, workers, memory);
    let ahead = metrics::Ahead {
        batches: depth.once_taken(Duration::ZERO) as f64,
        lead: depth.fixed.is_none().then_some(LEAD),
        filled: depth.filled() as f64,
    };
    (ahead, memory)
}

/// Worker threads of the loader of a rank.
pub fn workers(recipe: &Recipe) -> usize {
    engine::workers(&recipe.engine)
}

impl Depth {
    pub(super) fn new(
        fixed: Option<u32>,
        batch_size: Option<u32>,
        workers: usize,
        memory: u64,
    ) -> Self {
        let batch_size = batch_size.map_or(PACKED, u64::from).max(1);
        Self {
            fixed: fixed.map(u64::from),
            batch_size,
            workers: workers as u64,
            most: (memory / FOR_EACH / batch_size).min(MOST),
            taken: VecDeque::with_capacity(OBSERVED),
            batches: 0,
            images: 0,
        }
    }

    /// Takes note that the consumer has a batch with so many images.
    pub(super) fn took(&mut self, images: u64, now: Instant) {
        if self.taken.len() == OBSERVED {
            self.taken.pop_front();
        }
        self.taken.push_back(now);
        self.batches += 1;
        self.images += images;
    }

    /// Batches to bring in after the one that is asked for, where late reads take so long. Before the
    /// first one is taken those that are filled are enough: the bytes of more would only come between
    /// it and those it waits for.
    pub(super) fn brought_in(&self, lateness: Duration) -> u64 {
        match self.batches {
            0 => self.fixed.unwrap_or_else(|| self.filled()),
            _ => self.once_taken(lateness),
        }
    }

    /// The same, once one is taken.
    fn once_taken(&self, lateness: Duration) -> u64 {
        let by_rule = || {
            let first = FIRST.div_ceil(self.batch_size);
            self.within(LEAD + lateness).unwrap_or(0).max(first).min(self.most).max(self.filled())
        };
        self.fixed.unwrap_or_else(by_rule)
    }

    /// Batches to fill at once, from the one that is asked for on.
    pub(super) fn filled(&self) -> u64 {
        let images = match self.batches {
            0 => self.batch_size,
            batches => self.images / batches,
        };
        let busy = (self.workers * IMAGES_PER_WORKER).div_ceil(images.max(1));
        busy.clamp(FEWEST_FILLED, MOST)
    }

    /// How long to let the consumer take batches before working further ahead.
    pub(super) fn pause(&self) -> Duration {
        let step = self.step().unwrap_or_default();
        (step / LOOKS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Batches that the consumer takes in so long.
    fn within(&self, time: Duration) -> Option<u64> {
        self.step().map(|step| time.div_duration_f64(step).ceil() as u64)
    }

    /// How long the consumer takes for a batch.
    fn step(&self) -> Option<Duration> {
        let (first, last) = (self.taken.front()?, self.taken.back()?);
        let step = (*last - *first).div_f64((self.taken.len() - 1).max(1) as f64);
        (!step.is_zero()).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Depths after batches of so many images were taken at that pace.
    fn after(depth: &mut Depth, batches: u32, pace: Duration, images: u64) {
        let start = Instant::now();
        (0..batches).for_each(|batch| depth.took(images, start + pace * batch));
    }

    #[test]
    fn what_the_recipe_says_holds() {
        let mut depth = Depth::new(Some(0), Some(8), 2, GIB);
        after(&mut depth, 20, Duration::from_millis(1), 8);
        assert_eq!(depth.brought_in(Duration::ZERO), 0);
        assert_eq!(Depth::new(Some(1024), None, 2, GIB).brought_in(Duration::ZERO), 1024);
    }

    #[test]
    fn at_first_as_many_samples_are_brought_in_whatever_the_batch() {
        let first = |batch_size| {
            let mut depth = Depth::new(None, Some(batch_size), 2, GIB);
            after(&mut depth, 1, Duration::ZERO, batch_size.into());
            depth.brought_in(Duration::ZERO)
        };
        assert_eq!([1, 8, 256, 1000].map(first), [256, 32, 4, 4]);
    }

    #[test]
    fn before_the_first_batch_is_taken_no_more_are_brought_in_than_are_filled() {
        let first = |fixed, batch_size, workers| {
            let depth = Depth::new(fixed, Some(batch_size), workers, GIB);
            depth.brought_in(Duration::from_secs(1))
        };
        assert_eq!(first(None, 8, 2), 4);
        assert_eq!(first(None, 8, 64), 24);
        assert_eq!(first(None, 1000, 2), 4);
        assert_eq!([0, 100].map(|fixed| first(Some(fixed), 8, 2)), [0, 100], "as the recipe says");
    }

    #[test]
    fn a_forecast_is_of_the_time_after_that() {
        let recipe =
            serde_json::json!({"dataset": {"source": "a.jsonl"}, "pack": {"batch-size": 8}});
        let (ahead, _) = ahead(&Recipe::from_value(recipe).unwrap(), 2);
        assert_eq!((ahead.batches, ahead.filled, ahead.lead), (32.0, 4.0, Some(LEAD)));
    }

    #[test]
    fn a_fast_trainer_has_half_a_second_brought_in_and_a_slow_one_what_there_was() {
        let ahead = |pace| {
            let mut depth = Depth::new(None, Some(8), 2, GIB);
            after(&mut depth, 40, Duration::from_millis(pace), 8);
            depth.brought_in(Duration::ZERO)
        };
        assert_eq!([1000, 100, 10, 5, 1].map(ahead), [32, 32, 50, 100, 500]);
    }

    #[test]
    fn where_reads_are_late_as_long_as_they_take_is_brought_in_besides() {
        let mut depth = Depth::new(None, Some(8), 2, GIB);
        after(&mut depth, 40, Duration::from_millis(10), 8);
        let ahead = |late: u64| depth.brought_in(Duration::from_millis(late));
        assert_eq!([0, 100, 2000, 100_000].map(ahead), [50, 60, 250, 1024]);
        assert_eq!(Depth::new(Some(3), Some(8), 2, GIB).brought_in(Duration::from_secs(9)), 3);
    }

    #[test]
    fn small_samples_that_are_taken_fast_are_bounded_by_memory() {
        let ahead = |batch_size, memory| {
            let mut depth = Depth::new(None, Some(batch_size), 2, memory);
            after(&mut depth, 40, Duration::from_micros(100), 0);
            depth.brought_in(Duration::ZERO)
        };
        assert_eq!(ahead(8, GIB), 1024);
        assert_eq!(ahead(500, 64 << 20), 6, "as many as are filled for two workers");
        assert_eq!(ahead(64, 64 << 20), 16);
    }

    #[test]
    fn a_few_large_batches_keep_the_workers_busy_or_many_small_ones() {
        let filled =
            |batch_size, workers| Depth::new(None, Some(batch_size), workers, GIB).filled();
        assert_eq!(filled(8, 2), 4);
        assert_eq!(filled(8, 64), 24);
        assert_eq!(filled(1, 16), 48);
    }

    #[test]
    fn images_count_and_not_samples() {
        let mut depth = Depth::new(None, Some(8), 16, GIB);
        after(&mut depth, 10, Duration::from_millis(50), 24);
        assert_eq!(depth.filled(), 4);
        let mut without = Depth::new(None, Some(8), 16, GIB);
        after(&mut without, 10, Duration::from_millis(50), 0);
        assert_eq!(without.filled(), 48);
    }

    #[test]
    fn a_step_is_looked_at_several_times_but_not_too_often() {
        let pause = |pace| {
            let mut depth = Depth::new(None, Some(8), 2, GIB);
            after(&mut depth, 20, Duration::from_millis(pace), 8);
            depth.pause().as_millis()
        };
        assert_eq!([1, 16, 80, 2000].map(pause), [1, 2, 10, 20]);
        assert_eq!(Depth::new(None, Some(8), 2, GIB).pause(), SHORTEST_PAUSE);
    }

    #[test]
    fn batches_taken_at_the_same_moment_are_no_pace() {
        let mut depth = Depth::new(None, Some(8), 2, GIB);
        after(&mut depth, 5, Duration::ZERO, 8);
        assert_eq!(depth.brought_in(Duration::ZERO), 32);
    }
}
