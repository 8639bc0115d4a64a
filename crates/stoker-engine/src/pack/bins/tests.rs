use proptest::prelude::*;

use super::*;
use crate::testing::SizeMixture;

const NEUTRAL: SampleSize = SampleSize { tokens: 3, images: 1, patches: 4, cost: 0 };

fn budget(tokens: u64) -> Budget {
    Budget { tokens, images: u64::MAX, patches: u64::MAX, least_images: 0, neutral: NEUTRAL }
}

/// A full window of the next samples of a stream.
fn window(budget: Budget, lanes: usize, stream: &mut impl Iterator<Item = SampleSize>) -> Window {
    let mut window = Window::new(budget, lanes, None);
    while !window.is_complete() {
        window.push(stream.next().expect("an endless stream"));
    }
    window
}

/// The first windows of a stream.
fn windows(
    budget: Budget,
    lanes: usize,
    mut stream: impl Iterator<Item = SampleSize>,
    count: usize,
) -> Vec<Packed> {
    let mut beyond = Vec::new();
    let next = |_| {
        let mut again = std::mem::take(&mut beyond).into_iter();
        let packed = window(budget, lanes, &mut again.by_ref().chain(&mut stream)).pack();
        beyond = packed.beyond.iter().copied().chain(again).collect();
        packed
    };
    (0..count).map(next).collect()
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
        (least_images, lanes) in (0_u64..4, 1_usize..20),
    ) {
        let budget = Budget { images, patches, least_images, ..budget(tokens) };
        let full = window(budget, lanes, &mut some.iter().copied().cycle());
        let packed = full.clone().pack();
        prop_assert_eq!(&packed, &full.clone().pack(), "the same again");
        prop_assert_eq!([&packed.sizes[..], &packed.beyond].concat(), full.sizes);

        let mut samples: Vec<usize> = packed.batches.iter().flatten().copied().collect();
        samples.sort_unstable();
        prop_assert!(samples.into_iter().eq(0..packed.sizes.len()));
        prop_assert_eq!(packed.batches.len(), batches_of_window(lanes));
        prop_assert!(packed.batches.len() >= FEWEST && packed.batches.len() % lanes == 0);
        for batch in &packed.batches {
            prop_assert!(batch.is_sorted() && !batch.is_empty());
            let total = |of: fn(&SampleSize) -> u64| sum(of, batch, &packed.sizes);
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

/// Of the steps of so many ranks: by how much the heaviest rank is over the mean, on average, and
/// the share of steps in which that is at most a tenth.
fn imbalance(costs: &[u64], ranks: usize) -> (f64, f64) {
    let over = |step: &[u64]| {
        let (most, sum) = (step.iter().max().copied().unwrap_or(0), step.iter().sum::<u64>());
        most as f64 * ranks as f64 / sum as f64 - 1.0
    };
    let over: Vec<f64> = costs.chunks_exact(ranks).map(over).collect();
    let near = over.iter().filter(|over| **over <= 0.1).count();
    let steps = over.len() as f64;
    (over.iter().sum::<f64>() / steps, near as f64 / steps)
}

/// Two windows of a mixture for 64 lanes, and their budget of tokens.
fn two_windows(mixture: u64) -> (Vec<Packed>, u64) {
    let tokens = [4096, 8192, 16_384, 32_768][mixture as usize % 4];
    (windows(budget(tokens), 64, SizeMixture::new(mixture, 0, tokens), 2), tokens)
}

/// The costs of all batches, in order.
fn costs(windows: &[Packed]) -> Vec<u64> {
    let of_window = |window: &Packed| -> Vec<u64> {
        window.batches.iter().map(|batch| sum(|size| size.cost, batch, &window.sizes)).collect()
    };
    windows.iter().flat_map(of_window).collect()
}

/// What `docs/rooms/pack.md` says of 20 skewed mixtures.
#[test]
fn batches_are_full_and_the_ranks_balanced_on_skewed_mixtures() {
    let (mut all, mut most) = ([0.0; 5], 0.0_f64);
    for mixture in 0..20 {
        let (windows, tokens) = two_windows(mixture);
        let (mut held, mut batches, mut textbook) = (0, 0, 0);
        for window in &windows {
            let lengths: Vec<u64> = window.sizes.iter().map(|size| size.tokens).collect();
            held += lengths.iter().sum::<u64>();
            batches += window.batches.len();
            textbook += first_fit_decreasing(lengths, tokens);
        }
        let full = held as f64 / (batches as u64 * tokens) as f64;
        let more = batches as f64 / textbook as f64;
        let costs = costs(&windows);
        let ((over, near), (over64, near64)) = (imbalance(&costs, 8), imbalance(&costs, 64));
        println!(
            "mixture {mixture}: {full:.3} full, {more:.3} of the textbook's batches; heaviest over \
             the mean: {over:.3} of 8 ranks, {over64:.3} of 64; within a tenth: {near:.3}, {near64:.3}"
        );
        assert!(full > 0.85 && more < 1.12, "mixture {mixture}");
        assert!(over < 0.02 && over64 < 0.15, "mixture {mixture}");
        most = most.max(more);
        let row = [full, over, near, over64, near64];
        (0..5).for_each(|column| all[column] += row[column] / 20.0);
    }
    println!("all: {all:.4?}; {most:.3} of the textbook's batches at most");
    let [full, over, near, over64, near64] = all;
    assert!(full > 0.95 && over < 0.01 && near > 0.98);
    assert!(over64 < 0.06 && near64 > 0.85);
}

/// In the order of their first samples, a step would join batches of any cost.
#[test]
fn the_order_by_cost_is_what_balances_the_ranks() {
    let (mut by_cost, mut by_place) = (0.0, 0.0);
    for mixture in 0..20 {
        let (mut windows, _) = two_windows(mixture);
        by_cost += imbalance(&costs(&windows), 8).0;
        for window in &mut windows {
            window.batches.sort();
        }
        by_place += imbalance(&costs(&windows), 8).0;
    }
    println!("by cost {}, by place {}", by_cost / 20.0, by_place / 20.0);
    assert!(10.0 * by_cost < by_place, "{by_cost} {by_place}");
}

#[test]
fn batches_have_their_images_as_far_as_the_window_has_enough() {
    let text = SampleSize::new(100, []);
    let seen = SampleSize::new(100, [crate::sample::Grid { t: 1, h: 8, w: 8 }]);
    for with_image_each in [2_usize, 10, 30] {
        let stream = (0..).map(|at| if at % with_image_each == 0 { seen } else { text });
        let budget = Budget { least_images: 1, ..budget(1003) };
        let packed = windows(budget, 8, stream, 1).remove(0);
        let images = packed.sizes.iter().filter(|size| size.images > 0).count();
        let lacks = |batch: &&Vec<usize>| sum(|size| size.images, batch, &packed.sizes) == 0;
        let lacking = packed.batches.iter().filter(lacks).count();
        assert_eq!(lacking, packed.batches.len().saturating_sub(images));
    }
}

/// The cases of a golden file: lanes, budget, the sizes of the samples, and all else.
fn golden(name: &str) -> Vec<(usize, Budget, Vec<SampleSize>, serde_json::Value)> {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let golden = std::fs::read_to_string(root.join("testdata/golden/pack").join(name)).unwrap();
    let cases: Vec<serde_json::Value> = serde_json::from_str(&golden).unwrap();
    let case = |case: serde_json::Value| {
        let key = |name: &str| case[name].as_u64();
        let pad = key("pad_to_multiple").unwrap_or(1);
        let tokens = key("max_tokens").unwrap();
        let budget = Budget {
            tokens: tokens - tokens % pad,
            images: key("max_images").unwrap_or(u64::MAX),
            patches: key("max_patches").unwrap_or(u64::MAX),
            least_images: key("min_images_per_batch").unwrap_or(0),
            neutral: NEUTRAL,
        };
        let size = |sample: &serde_json::Value| {
            let patches = sample[1].as_array().unwrap().iter().map(|one| one.as_u64().unwrap());
            let grids =
                patches.map(|patches| crate::sample::Grid { t: 1, h: 1, w: patches as u32 });
            SampleSize::new(sample[0].as_u64().unwrap() as usize, grids)
        };
        let sizes = case["samples"].as_array().unwrap().iter().map(size).collect();
        (key("lanes").unwrap() as usize, budget, sizes, case)
    };
    cases.into_iter().map(case).collect()
}

/// What a program that was written from `docs/rooms/pack.md` alone gives for four windows.
#[test]
fn the_batches_are_the_documented_ones() {
    let cases = golden("batches.json");
    assert_eq!(cases.len(), 4);
    for (lanes, budget, sizes, case) in cases {
        let packed = window(budget, lanes, &mut sizes.into_iter()).pack();
        assert_eq!(serde_json::to_value(&packed.batches).unwrap(), case["batches"]);
        assert!(!packed.is_last);
    }
}

/// What the same program gives for runs that end.
#[test]
fn the_last_batches_of_a_run_are_the_documented_ones() {
    let cases = golden("passes.json");
    assert_eq!(cases.len(), 5);
    for (lanes, budget, sizes, case) in cases {
        let length = case["length"].as_u64().unwrap() as usize;
        let (mut start, mut batches, mut is_last) = (0, Vec::new(), false);
        let moved = |packed: &Packed, start: usize| -> Vec<Vec<usize>> {
            let moved = |batch: &Vec<usize>| batch.iter().map(|number| start + number).collect();
            packed.batches.iter().map(moved).collect()
        };
        while !is_last {
            let mut window = Window::new(budget, lanes, Some((length - start) as u64));
            for size in &sizes[start..] {
                if !window.is_complete() {
                    window.push(*size);
                }
            }
            let packed = window.pack();
            batches.extend(moved(&packed, start));
            start += packed.sizes.len();
            is_last = packed.is_last;
        }
        assert_eq!(start, length, "every sample, and none beyond");
        assert_eq!(serde_json::to_value(&batches).unwrap(), case["batches"]);
        let mut behind = Window::behind_the_last(budget, lanes);
        for size in &sizes[start..] {
            if !behind.is_complete() {
                behind.push(*size);
            }
        }
        let behind = moved(&behind.pack(), start);
        assert_eq!(serde_json::to_value(&behind).unwrap(), case["behind"]);
        assert_eq!(behind.len(), lanes, "for as many ranks as there may be");
    }
}

proptest! {
    /// Whatever is left, it is packed whole into few batches, of which none is empty.
    #[test]
    fn the_last_window_has_all_that_is_left_in_as_few_batches_as_hold_it(
        some in sizes(500),
        left in 1_usize..300,
        (tokens, patches) in (509_u64..5000, 4800_u64..20_000),
        (least_images, lanes) in (0_u64..3, 1_usize..20),
    ) {
        let budget = Budget { patches, least_images, ..budget(tokens) };
        let stream: Vec<SampleSize> = some.iter().copied().cycle().take(left).collect();
        let (mut start, mut batches, mut is_last) = (0, Vec::new(), false);
        while !is_last {
            prop_assert!(start < left, "a window has samples");
            let mut window = Window::new(budget, lanes, Some((left - start) as u64));
            let mut next = stream[start..].iter();
            while !window.is_complete() {
                window.push(*next.next().expect("it is complete with all that are left"));
            }
            let packed = window.pack();
            is_last = packed.is_last;
            let whole = batches_of_window(lanes);
            prop_assert!(packed.batches.len() == whole || is_last && packed.batches.len() < whole);
            if is_last {
                let fewer = place(&packed.sizes, packed.batches.len() - 1, &budget);
                prop_assert!(fewer.is_none(), "one batch fewer would do");
                let costs: Vec<u64> =
                    packed.batches.iter().map(|one| sum(|size| size.cost, one, &packed.sizes)).collect();
                let rounds = costs.chunks(lanes);
                prop_assert!(rounds.clone().all(|round| round.is_sorted_by(|one, two| one >= two)));
            }
            for batch in &packed.batches {
                prop_assert!(!batch.is_empty());
                let sizes: Vec<_> = batch.iter().map(|&sample| packed.sizes[sample]).collect();
                prop_assert!(budget.holds_all(&sizes));
                batches.push(batch.iter().map(|sample| start + sample).collect::<Vec<_>>());
            }
            start += packed.sizes.len();
        }
        let mut samples = batches.concat();
        samples.sort_unstable();
        prop_assert!(samples.into_iter().eq(0..left));
    }
}
