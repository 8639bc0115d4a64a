use proptest::prelude::*;

use super::*;
use crate::testing::SizeMixture;

const NEUTRAL: SampleSize = SampleSize { tokens: 3, images: 1, patches: 4, cost: 0 };

fn budget(tokens: u64) -> Budget {
    Budget { tokens, images: u64::MAX, patches: u64::MAX, least_images: 0, neutral: NEUTRAL }
}

/// A full window of the next samples of a stream.
fn window(budget: Budget, stream: &mut impl Iterator<Item = SampleSize>) -> Window {
    let mut window = Window::new(budget);
    while !window.is_full() {
        window.push(stream.next().expect("an endless stream"));
    }
    window
}

/// The windows of a lane, each with the sizes of its samples.
fn windows(
    budget: Budget,
    mut stream: impl Iterator<Item = SampleSize>,
    count: usize,
) -> Vec<(Packed, Vec<SampleSize>)> {
    let mut ahead: Vec<SampleSize> = Vec::new();
    let mut windows = Vec::new();
    for _ in 0..count {
        let full = window(budget, &mut ahead.iter().copied().chain(&mut stream));
        let packed = full.pack();
        let mut sizes = full.sizes;
        ahead = sizes.split_off(packed.length);
        windows.push((packed, sizes));
    }
    windows
}

fn sum(of: impl Fn(&SampleSize) -> u64, batch: &[usize], sizes: &[SampleSize]) -> u64 {
    batch.iter().map(|&sample| of(&sizes[sample])).sum()
}

fn sizes(most: u64) -> impl Strategy<Value = Vec<SampleSize>> {
    let size = (1..=most, prop::collection::vec(1_u32..40, 0..4)).prop_map(|(text, sides)| {
        let grids = sides.into_iter().map(|side| crate::sample::Grid { t: 1, h: side, w: side });
        SampleSize::new(text as usize, grids)
    });
    prop::collection::vec(size, 1..20)
}

proptest! {
    #[test]
    fn every_sample_is_in_one_batch_and_no_batch_is_over_any_limit(
        some in sizes(500),
        (tokens, images, patches) in (509_u64..5000, 3_u64..40, 4800_u64..20_000),
        least_images in 0_u64..4,
    ) {
        let budget = Budget { images, patches, least_images, ..budget(tokens) };
        let cycle = some.iter().copied().cycle();
        let full = window(budget, &mut cycle.clone());
        let packed = full.pack();
        prop_assert_eq!(&packed, &window(budget, &mut cycle.clone()).pack(), "the same again");

        let mut samples: Vec<usize> = packed.batches.iter().flatten().copied().collect();
        samples.sort_unstable();
        prop_assert!(samples.into_iter().eq(0..packed.length));
        prop_assert_eq!(packed.batches.len(), BATCHES);
        for batch in &packed.batches {
            prop_assert!(batch.is_sorted() && !batch.is_empty());
            let total = |of: fn(&SampleSize) -> u64| sum(of, batch, &full.sizes);
            let missing = least_images.saturating_sub(total(|size| size.images));
            prop_assert!(total(|size| size.tokens) + 3 * missing <= tokens);
            prop_assert!(total(|size| size.images) + missing <= images);
            prop_assert!(total(|size| size.patches) + 4 * missing <= patches);
        }
    }

    /// All ways to share few samples out, by counting them through.
    #[test]
    fn what_is_placed_fits_and_costs_little_more_than_the_best_of_all_ways(
        mut some in sizes(500), tokens in 500_u64..1500,
    ) {
        some.truncate(7);
        let budget = budget(tokens);
        let cost = |loads: &[Load]| loads.iter().map(|load| load.cost).max();
        let ways = (0..3_usize.pow(some.len() as u32)).filter_map(|mut way| {
            let mut loads = vec![Load::default(); 3];
            for (sample, size) in some.iter().enumerate() {
                loads[way % 3].put(sample, size);
                way /= 3;
            }
            loads.iter().all(|load| budget.holds(load)).then(|| cost(&loads)).flatten()
        });
        let best = ways.min();
        match place(&some, 3, &budget) {
            None => prop_assert!(some.len() > 3, "as many samples as batches always fit"),
            Some(loads) => {
                let (found, best) = (cost(&loads).unwrap() as f64, best.unwrap() as f64);
                prop_assert!(found <= 1.6 * best, "{found} {best}");
            }
        }
    }
}

/// First fit, the longest first: how many batches the textbook needs for the same samples.
fn first_fit_decreasing(mut sizes: Vec<u64>, tokens: u64) -> usize {
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let mut batches: Vec<u64> = Vec::new();
    for size in sizes {
        match batches.iter_mut().find(|load| **load + size <= tokens) {
            Some(load) => *load += size,
            None => batches.push(size),
        }
    }
    batches.len()
}

/// Of steps that give each rank the batch of one lane: by how much the heaviest is over the mean,
/// on average, and the share of steps in which that is at most a tenth.
fn imbalance(costs: &[Vec<u64>]) -> (f64, f64) {
    let steps = costs[0].len();
    let over: Vec<f64> = (0..steps)
        .map(|step| {
            let of_step = || costs.iter().map(|lane| lane[step] as f64);
            of_step().fold(0.0, f64::max) / (of_step().sum::<f64>() / costs.len() as f64) - 1.0
        })
        .collect();
    let near = over.iter().filter(|over| **over <= 0.1).count();
    (over.iter().sum::<f64>() / steps as f64, near as f64 / steps as f64)
}

/// The budget of tokens of a mixture.
fn tokens_of(mixture: u64) -> u64 {
    [4096, 8192, 16_384, 32_768][mixture as usize % 4]
}

/// The windows of eight lanes of a mixture.
fn lanes(mixture: u64) -> Vec<Vec<(Packed, Vec<SampleSize>)>> {
    let tokens = tokens_of(mixture);
    let lane = |lane| windows(budget(tokens), SizeMixture::new(mixture, lane, tokens), 3);
    (0..8).map(lane).collect()
}

/// For each lane, the costs of its batches.
fn costs(lanes: &[Vec<(Packed, Vec<SampleSize>)>]) -> Vec<Vec<u64>> {
    let of_window = |(packed, sizes): &(Packed, Vec<SampleSize>)| -> Vec<u64> {
        packed.batches.iter().map(|batch| sum(|size| size.cost, batch, sizes)).collect()
    };
    lanes.iter().map(|lane| lane.iter().flat_map(of_window).collect()).collect()
}

/// What `docs/rooms/pack.md` says of 20 skewed mixtures on 8 ranks.
#[test]
fn batches_are_full_and_the_ranks_balanced_on_skewed_mixtures() {
    let mut all = [0.0; 3];
    for mixture in 0..20 {
        let tokens = tokens_of(mixture);
        let lanes = lanes(mixture);
        let (mut held, mut batches, mut textbook) = (0, 0, 0);
        for (packed, sizes) in lanes.iter().flatten() {
            let lengths: Vec<u64> = sizes.iter().map(|size| size.tokens).collect();
            held += lengths.iter().sum::<u64>();
            batches += packed.batches.len();
            textbook += first_fit_decreasing(lengths, tokens);
        }
        let full = held as f64 / (batches as u64 * tokens) as f64;
        let more = batches as f64 / textbook as f64;
        let (over, near) = imbalance(&costs(&lanes));
        println!(
            "mixture {mixture}: {full:.3} full, {more:.3} of the textbook's batches, heaviest \
             {over:.3} over the mean, {near:.2} of steps within a tenth"
        );
        assert!(full > 0.88 && more < 1.05 && over < 0.09, "mixture {mixture}");
        all = [all[0] + full / 20.0, all[1] + over / 20.0, all[2] + near / 20.0];
    }
    let [full, over, near] = all;
    println!("all: {full:.3} full, heaviest {over:.3} over the mean, {near:.3} within a tenth");
    assert!(full > 0.97 && over < 0.05 && near > 0.9);
}

/// In the order of their first samples, a step would join batches of any cost.
#[test]
fn the_order_by_cost_is_what_balances_the_ranks() {
    let (mut by_cost, mut by_place) = (0.0, 0.0);
    for mixture in 0..20 {
        let mut lanes = lanes(mixture);
        by_cost += imbalance(&costs(&lanes)).0;
        lanes.iter_mut().flatten().for_each(|(packed, _)| packed.batches.sort());
        by_place += imbalance(&costs(&lanes)).0;
    }
    assert!(2.0 * by_cost < by_place, "{by_cost} {by_place}");
}

#[test]
fn batches_have_their_images_as_far_as_the_window_has_enough() {
    let text = SampleSize::new(100, []);
    let seen = SampleSize::new(100, [crate::sample::Grid { t: 1, h: 8, w: 8 }]);
    for with_image_each in [2_usize, 10, 30] {
        let stream = (0..).map(|at| if at % with_image_each == 0 { seen } else { text });
        let budget = Budget { least_images: 1, ..budget(1003) };
        let (packed, sizes) = windows(budget, stream, 1).remove(0);
        let images = sizes.iter().filter(|size| size.images > 0).count();
        let lacking = packed.batches.iter().filter(|b| sum(|size| size.images, b, &sizes) == 0);
        assert_eq!(lacking.count(), BATCHES.saturating_sub(images));
    }
}

/// Computed by an independent program (Python) from the description in `docs/rooms/pack.md`.
#[test]
fn the_batches_are_the_documented_ones() {
    let size = |at: usize| {
        let side = 4 * (at * at % 5) as u32;
        let images = if at % 3 == 0 { 1 } else { 0 };
        let grids = [crate::sample::Grid { t: 1, h: side.max(2), w: side.max(2) }; 1];
        SampleSize::new(40 + at * at * 37 % 211, grids.into_iter().take(images))
    };
    let budget = Budget { least_images: 1, ..budget(512) };
    let (packed, _) = windows(budget, (0..).map(size), 1).remove(0);
    assert_eq!(packed.length, 110);
    let first = [vec![2, 48, 80, 99], vec![27, 53, 92], vec![5, 16, 21, 37], vec![6, 29, 58]];
    assert_eq!(packed.batches[..4], first);
    assert_eq!(packed.batches[31], [3, 77, 106]);
}
