//! Shares, streams and epochs of several datasets.

use super::*;
use crate::recipe::{Decimal, Stage};

/// What is promised of every prefix: the best there is for small weights, and else the sum that
/// stands in `tree`.
const OF_A_TREE: f64 = 1.68;

fn of_a_cycle(datasets: usize) -> f64 {
    1.0 - 1.0 / (2.0 * datasets as f64 - 2.0)
}

/// A mixture of whole-numbered weights.
fn mixture(weights: &[u64]) -> Mixture {
    Mixture::new(vec![Weights { from: 0, weights: weights.to_vec() }])
}

/// The datasets at the first positions.
fn drawn(mixture: &Mixture, positions: u64) -> Vec<u32> {
    (0..positions).map(|position| mixture.place_at(position).0).collect()
}

/// How far the share of any prefix, and of any window of a length, is from the weights.
fn deviations(weights: &[u64], drawn: &[u32], length: usize) -> (f64, f64) {
    let whole: u64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|weight| *weight as f64 / whole as f64).collect();
    let (mut prefix, mut window) = (vec![0_i64; weights.len()], vec![0_i64; weights.len()]);
    let (mut of_prefixes, mut of_windows) = (0.0_f64, 0.0_f64);
    for (position, &dataset) in drawn.iter().enumerate() {
        prefix[dataset as usize] += 1;
        window[dataset as usize] += 1;
        if position >= length {
            window[drawn[position - length] as usize] -= 1;
        }
        let positions = (position + 1) as f64;
        for (dataset, share) in shares.iter().enumerate() {
            let off = (prefix[dataset] as f64 - share * positions).abs();
            of_prefixes = of_prefixes.max(off);
            if position + 1 >= length {
                let off = (window[dataset] as f64 - share * length as f64).abs();
                of_windows = of_windows.max(off);
            }
        }
    }
    (of_prefixes, of_windows)
}

#[test]
fn shares_are_exact_in_every_prefix_and_every_window_of_ten_thousand() {
    const WINDOW: usize = 10_000;
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 50,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let largest = prop::sample::select(vec![10_u64, 1_000, 1_000_000, 1 << 40]);
    let strategy = (2_usize..40, largest).prop_flat_map(|(datasets, largest)| {
        prop::collection::vec(0..=largest, datasets)
            .prop_filter("some weight", |weights| weights.iter().filter(|w| **w > 0).count() > 1)
    });
    runner
        .run(&strategy, |weights| {
            let mixture = mixture(&weights);
            let drawn = drawn(&mixture, 40_000);
            let (prefix, window) = deviations(&weights, &drawn, WINDOW);
            let promised = match mixture.stages[0].draw {
                mixture::Draw::Cycle(_) => {
                    of_a_cycle(weights.iter().filter(|weight| **weight > 0).count())
                }
                mixture::Draw::Tree(_) => OF_A_TREE,
            };
            let tolerance = 1e-6;
            prop_assert!(prefix <= promised + tolerance, "{prefix} of {promised}");
            prop_assert!(window <= 2.0 * promised + tolerance, "{window} of twice {promised}");
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_tree_keeps_its_promise_for_the_weights_that_are_hardest_on_it() {
    // Fibonacci numbers after a weight of almost nothing: each join is as uneven as it can be.
    let mut weights: Vec<u64> = vec![1, 1_000_000, 1_000_001];
    while weights.len() < 24 {
        let [.., a, b] = weights[..] else { unreachable!("there are three") };
        weights.push(a + b + 1);
    }
    let mixture = mixture(&weights);
    assert!(matches!(mixture.stages[0].draw, mixture::Draw::Tree(_)));
    let (prefix, _) = deviations(&weights, &drawn(&mixture, 300_000), 1000);
    assert!(prefix < OF_A_TREE, "{prefix}");
}

proptest! {
    /// The place within the dataset's own stream, the count and the draw are one truth.
    #[test]
    fn places_and_counts_are_what_counting_gives(
        weights in prop::collection::vec(0_u64..=5000, 2..12),
        later in prop::collection::vec(0_u64..=5, 12..=12),
        from in 1_u64..500,
        large: bool,
    ) {
        let scale = if large { 1_000_003 } else { 1 };
        let mut first: Vec<u64> = weights.iter().map(|weight| weight * scale).collect();
        first[0] += 1;
        let mut second = later[..first.len()].to_vec();
        second[1] += 1;
        let mixture = Mixture::new(vec![
            Weights { from: 0, weights: first.clone() },
            Weights { from, weights: second },
        ]);
        let mut counts = vec![0; first.len()];
        for position in 0..1000 {
            prop_assert_eq!(&mixture.counts(position), &counts);
            let (dataset, place) = mixture.place_at(position);
            prop_assert_eq!(place, counts[dataset as usize], "at {}", position);
            counts[dataset as usize] += 1;
        }
    }
}

#[test]
fn after_the_sum_of_all_weights_every_count_is_exact() {
    for weights in [vec![3, 1, 7], vec![1, 1, 1], vec![1_000_003, 17, 40_000_000, 999], vec![5]] {
        let sum: u64 = weights.iter().sum();
        for turns in [1, 2, 1000] {
            let expected: Vec<u64> = weights.iter().map(|weight| weight * turns).collect();
            assert_eq!(mixture(&weights).counts(sum * turns), expected);
        }
    }
}

#[test]
fn far_positions_are_as_exact_as_near_ones() {
    let weights = [(1_u64 << 60) + 7, 3, 1 << 59, 12_345_678_901];
    let mixture = mixture(&weights);
    let whole: u64 = weights.iter().sum();
    for position in [1_u64 << 40, 1 << 52, (1 << 60) - 1] {
        let counts = mixture.counts(position);
        assert_eq!(counts.iter().sum::<u64>(), position);
        for (count, weight) in counts.iter().zip(weights) {
            let exact = u128::from(position) * u128::from(weight);
            let off = (u128::from(*count) * u128::from(whole)).abs_diff(exact);
            assert!(off < 2 * u128::from(whole), "{count} of weight {weight} at {position}");
        }
        let (dataset, place) = mixture.place_at(position);
        assert_eq!(place, counts[dataset as usize]);
    }
}

fn weight(number: f64) -> Share {
    Share::Weight(Decimal::new(number).unwrap())
}

fn epochs(number: f64) -> Share {
    Share::Epochs(Decimal::new(number).unwrap())
}

fn planned(config: &recipe::Plan, sources: &[Source]) -> Plan {
    Plan::new(config, 4, sources, Identity::default()).unwrap()
}

#[test]
fn every_epoch_of_every_dataset_holds_every_row_once() {
    let sources = [source(7, weight(0.5)), source(101, weight(0.3)), source(1, weight(0.2))];
    for shuffle in [Shuffle::Full, Shuffle::Block, Shuffle::None] {
        let plan = planned(&recipe::Plan { shuffle, seed: 5, ..recipe::Plan::default() }, &sources);
        let mut rows = vec![Vec::new(); 3];
        for position in 0..2000 {
            let id = plan.sample_at(Position(position));
            rows[id.dataset as usize].push(id.row);
        }
        for (rows, source) in rows.iter().zip(&sources) {
            let whole = rows.chunks_exact(source.rows as usize);
            assert!(whole.len() > 2);
            for epoch in whole {
                let seen: BTreeSet<u64> = epoch.iter().copied().collect();
                assert_eq!(
                    seen.into_iter().collect::<Vec<_>>(),
                    (0..source.rows).collect::<Vec<_>>()
                );
            }
        }
    }
}

#[test]
fn a_decimal_weight_is_what_was_written() {
    // As binary fractions, 0.1 + 0.2 and 0.3 would differ.
    let sources = [source(9, weight(0.1)), source(9, weight(0.2)), source(9, weight(0.3))];
    let plan = planned(&config(0, 64, None), &sources);
    assert_eq!(plan.counts(Position(6_000_000)), [1_000_000, 2_000_000, 3_000_000]);
}

#[test]
fn datasets_by_epochs_end_when_each_was_seen_so_often() {
    let sources = [source(10, epochs(3.0)), source(1000, epochs(1.0)), source(40, epochs(0.5))];
    let plan = planned(&config(0, 64, Some(1)), &sources);
    assert_eq!(plan.samples(), Some(30 + 1000 + 20));
    assert_eq!(plan.counts(Position(1050)), [30, 1000, 20]);
    assert_eq!(plan.batches(), Some(1050_u64.div_ceil(4)));
    let twice = planned(&config(0, 64, Some(2)), &sources);
    assert_eq!(twice.samples(), Some(2100));
    assert_eq!(twice.counts(Position(2100)), [60, 2000, 40]);
    assert_eq!(planned(&config(0, 64, None), &sources).samples(), None);
}

#[test]
fn without_weights_each_row_is_as_likely_as_any_other() {
    let sources = [source(10, Share::Rows), source(30, Share::Rows)];
    let plan = planned(&config(0, 64, Some(1)), &sources);
    assert_eq!((plan.samples(), plan.counts(Position(40))), (Some(40), vec![10, 30]));
}

#[test]
fn a_temperature_evens_out_the_sizes() {
    let counts = |temperature: Option<f64>| {
        let temperature = temperature.map(|number| Decimal::new(number).unwrap());
        let config = recipe::Plan { temperature, ..recipe::Plan::default() };
        let sources = [source(10_000, Share::Rows), source(100, Share::Rows)];
        planned(&config, &sources).counts(Position(1_010_000))
    };
    assert_eq!(counts(None), [1_000_000, 10_000]);
    assert_eq!(counts(Some(1.0)), counts(None));
    // The square root: 100 to 10.
    assert_eq!(counts(Some(2.0)), [918_182, 91_818]);
    let even = counts(Some(1000.0));
    assert!(even[0].abs_diff(even[1]) < 3_000, "{even:?}");
}

#[test]
fn weights_that_change_go_on_in_each_stream_where_it_was() {
    let decimals = |numbers: [f64; 2]| numbers.map(|n| Decimal::new(n).unwrap()).to_vec();
    let stages = vec![
        Stage { from: 1000, weights: decimals([0.0, 1.0]) },
        Stage { from: 1500, weights: decimals([3.0, 1.0]) },
    ];
    let config = recipe::Plan { stages, shuffle: Shuffle::None, ..recipe::Plan::default() };
    let sources = [source(1 << 40, weight(1.0)), source(1 << 40, weight(1.0))];
    let plan = planned(&config, &sources);
    assert_eq!(plan.counts(Position(1000)), [500, 500]);
    assert_eq!(plan.counts(Position(1500)), [500, 1000]);
    assert_eq!(plan.counts(Position(5500)), [3500, 2000]);
    let mut next = [0, 0];
    for position in 0..6000 {
        let id = plan.sample_at(Position(position));
        assert_eq!(id.row, next[id.dataset as usize], "at {position}");
        next[id.dataset as usize] += 1;
    }
}

#[test]
fn a_spare_is_a_row_of_the_same_dataset() {
    let sources = [source(50, weight(1.0)), source(1000, weight(1.0))];
    let plan = planned(&config(3, 64, None), &sources);
    for position in (0..200).map(Position) {
        let (id, spare) = (plan.sample_at(position), plan.spare(position, 1));
        assert_eq!(id.dataset, spare.dataset);
        assert!(spare.row < sources[id.dataset as usize].rows);
    }
}

#[test]
fn weights_that_cannot_be_reckoned_with_are_refused() {
    let sources = [source(u64::MAX / 2, epochs(1e6)), source(1, epochs(1.0))];
    let error = Plan::new(&config(0, 64, None), 4, &sources, Identity::default()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("datasets: weights or samples sum up to more than"), "{error}");
}

#[test]
fn another_mixture_is_another_plan() {
    let weights = |a, b| [source(10, weight(a)), source(10, weight(b))];
    let here = planned(&config(0, 64, None), &weights(1.0, 2.0));
    let there = planned(&config(0, 64, None), &weights(2.0, 1.0));
    let error = here.check_cursor(&there.cursor(0, 0, 0)).unwrap_err().to_string();
    assert!(error.contains("plan.weights"), "{error}");
}
