//! Batches by a budget of tokens: the flow makes those of the reference loop, on any number of
//! ranks; every sample comes once; resuming needs no more than where the window begins.

use std::collections::{BTreeMap, BTreeSet};

use stoker_engine::error::Outcome;
use stoker_engine::loader::{Front, Maker};
use stoker_engine::sample::WindowStart;
use stoker_engine::testing::{encode_jpeg, photo};

use super::*;

/// 64 batches a window, of about four samples each.
fn packed(source: &Path, more: Value) -> Recipe {
    let mut recipe = json!({
        "plan": {"lanes": 8, "seed": 3},
        "vision": {"pixels": "u8", "max-pixels": 16384},
        "pack": {"max-tokens": 400},
    });
    common::merge(&mut recipe, more);
    made(source, recipe)
}

const WINDOW: u64 = 64;

#[test]
fn the_engine_makes_the_packed_batches_of_the_reference_loop() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let strategy = (
        (0_u64..1000, 300_u32..1500, prop::sample::select(vec![1_u32, 8, 100])),
        (1_u32..5, 0_u32..7, prop::sample::select(vec!["48MiB", "1GiB"])),
        (prop::sample::select(vec![1_u32, 2, 4, 8]), any::<prop::sample::Index>()),
        (0_u32..3, 3_u32..20, 200_u32..2000),
    );
    runner
        .run(
            &strategy,
            |((seed, tokens, pad), (workers, prefetch, memory), (ranks, index), images)| {
                let (least, most, patches) = images;
                let recipe = packed(
                    &source,
                    json!({
                        "plan": {"seed": seed},
                        "pack": {
                            "max-tokens": tokens, "pad-to-multiple": pad, "max-images": most,
                            "min-images-per-batch": least, "max-patches": patches,
                        },
                        "engine": {"workers": workers, "prefetch": prefetch, "memory": memory},
                    }),
                );
                let index = index.index(ranks as usize) as u32;
                let loader = Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
                let steps = (WINDOW + 4) / u64::from(ranks) + 1;
                let fast = drain(&loader, steps as usize);
                let sequence = (0..steps).map(|step| step * u64::from(ranks) + u64::from(index));
                prop_assert_eq!(fast, reference(recipe, sequence));
                Ok(())
            },
        )
        .unwrap();
}

fn batches(loader: &Loader, count: u64) -> Vec<Batch> {
    let batch = |_| match loader.next(PATIENCE).unwrap() {
        Next::Batch(batch) => *batch,
        other => panic!("a batch in time, not {other:?}"),
    };
    (0..count).map(batch).collect()
}

/// How often each row comes.
fn rows(batches: &[Batch]) -> BTreeMap<u64, usize> {
    let mut rows = BTreeMap::new();
    for id in batches.iter().flat_map(Batch::samples) {
        *rows.entry(id.row).or_default() += 1;
    }
    rows
}

#[test]
fn every_sample_of_a_window_comes_once_and_no_batch_is_over_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let pack = json!({"max-tokens": 400, "max-images": 4, "min-images-per-batch": 1});
    let loader = Loader::open(packed(&source, json!({"pack": pack})), rank(0, 1)).unwrap();
    let (first, second) = (batches(&loader, WINDOW), batches(&loader, WINDOW));
    for batch in first.iter().chain(&second) {
        let size = |name: &str| batch.tensor(name).unwrap().shape.clone();
        assert!(size("input_ids")[1] <= 400 && !batch.samples().is_empty());
        assert!((1..=4).contains(&size("image_grid_thw")[0]));
    }
    // The same samples one by one, in the order of the plan.
    let plain = json!({"pack": {"max-tokens": null, "batch-size": 1}});
    let plain = Loader::open(packed(&source, plain), rank(0, 1)).unwrap();
    for window in [first, second] {
        let samples = window.iter().map(|batch| batch.samples().len() as u64).sum();
        assert_eq!(rows(&window), rows(&batches(&plain, samples)));
    }
    let report = loader.report();
    let packing = report.tokens as f64 / (2.0 * WINDOW as f64 * 400.0);
    assert_eq!(report.packing, Some(packing));
    assert!(packing > 0.8, "{packing}");
    let words = format!("{:.1} % of pack.max-tokens is used", packing * 100.0);
    assert!(report.to_string().contains(&words), "{report}");
}

#[test]
fn a_rank_of_any_number_has_its_part_of_the_one_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = packed(&source, json!({}));
    let steps = |ranks: u32| (WINDOW + 8) / u64::from(ranks);
    let all = reference(recipe.clone(), 0..WINDOW + 8);
    for ranks in [1, 2, 4, 8] {
        for index in BTreeSet::from([0, ranks / 2, ranks - 1]) {
            let loader = Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
            let own: Vec<Seen> = batches(&loader, steps(ranks)).iter().map(see).collect();
            let expected = all.iter().skip(index as usize).step_by(ranks as usize);
            assert!(own.iter().eq(expected), "rank {index} of {ranks}");
        }
    }
}

#[test]
fn resuming_after_any_batch_on_any_number_of_ranks_goes_on_with_the_same_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = packed(&source, json!({"engine": {"prefetch": 0}}));
    let straight = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    let mut cursors = vec![straight.state()];
    let mut all = Vec::new();
    for batch in batches(&straight, WINDOW + 16) {
        all.push(see(&batch));
        cursors.push(batch.cursor().unwrap().clone());
    }
    // Every rank of 1, 2, 4, 8 in turn, across the border of the first two windows.
    let open = |(index, of)| (index, Loader::open(recipe.clone(), rank(index, of)).unwrap());
    let ranks = [(0, 1), (0, 2), (1, 2), (0, 4), (3, 4), (0, 8), (7, 8)].map(open);
    for (delivered, cursor) in cursors.iter().enumerate().take(WINDOW as usize + 8) {
        let json = serde_json::to_string(cursor).unwrap();
        assert!(json.len() < 4096, "{}", json.len());
        for (index, resumed) in &ranks {
            resumed.load_state(cursor).unwrap();
            assert_eq!(resumed.state(), *cursor);
            let next = batches(resumed, 1).remove(0);
            let expected = &all[delivered + *index as usize];
            assert_eq!(see(&next), *expected, "after {delivered}, place {index}");
        }
    }
}

/// A step of eight ranks may lie across the border of two windows.
#[test]
fn a_cursor_that_another_number_of_ranks_saved_is_good_too() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = packed(&source, json!({}));
    let all = reference(recipe.clone(), 0..2 * WINDOW + 8);
    for steps in [1, 31, 32, 63] {
        let halves = Loader::open(recipe.clone(), rank(1, 2)).unwrap();
        let saved = batches(&halves, steps).pop().unwrap();
        let delivered = 2 * steps as usize;
        for index in [0, 3] {
            let resumed = Loader::open(recipe.clone(), rank(index, 4)).unwrap();
            resumed.load_state(saved.cursor().unwrap()).unwrap();
            let next = batches(&resumed, 1).remove(0);
            assert_eq!(see(&next), all[delivered + index as usize], "after {delivered} of {index}");
        }
    }
}

#[test]
fn a_cursor_without_its_window_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let loader = Loader::open(packed(&source, json!({})), rank(0, 1)).unwrap();
    let mut cursor = serde_json::to_value(loader.state()).unwrap();
    cursor.as_object_mut().unwrap().remove("window_start").unwrap();
    let error = loader.load_state(&serde_json::from_value(cursor).unwrap()).unwrap_err();
    assert!(error.to_string().contains("window_start is absent there and present here"), "{error}");
}

/// One that is told where the window begins and one that is not make the same.
#[test]
fn any_packed_batch_is_made_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = packed(&source, json!({"engine": {"workers": 2}}));
    let order = [2 * WINDOW + 7, 3, 3, WINDOW, 0];
    let expected = reference(recipe.clone(), order.into_iter());
    let (told, untold) =
        (Maker::open(recipe.clone()).unwrap(), Maker::open(recipe.clone()).unwrap());
    let front = Front::open(recipe, rank(0, 1)).unwrap();
    for (sequence, expected) in order.into_iter().zip(expected) {
        for maker in [&told, &untold] {
            let batch = maker.make(sequence, PATIENCE).unwrap().expect("a batch in time");
            assert_eq!(see(&batch), expected, "{sequence}");
        }
        told.learn(front.window().unwrap());
    }
    for sequence in 0..=WINDOW {
        let batch = untold.make(sequence, PATIENCE).unwrap().expect("a batch in time");
        let delivered = front.hand_over(batch, Duration::ZERO).unwrap().unwrap();
        let WindowStart { number, position } = front.window().unwrap();
        assert_eq!(number, (sequence + 1) / WINDOW);
        assert_eq!(delivered.cursor().unwrap().window_start(), Some(position));
    }
}

/// The window is packed when its first batch is asked for; then every photo becomes a larger one.
#[test]
fn a_sample_that_changed_since_it_was_measured_is_left_out_where_it_has_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let ledger = folder.path().join("ledger");
    let recipe = packed(&source, json!({"engine": {"prefetch": 0, "ledger": ledger}}));
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let before = batches(&loader, 1).remove(0);
    assert!(before.bad_samples().iter().all(|bad| bad.code != "changed"));
    let photo = encode_jpeg(&photo(5, 400, 300), 400, 300, 80);
    for image in std::fs::read_dir(folder.path().join("images")).unwrap() {
        std::fs::write(image.unwrap().path(), &photo).unwrap();
    }
    let after = batches(&loader, 20);
    let mut changed = 0;
    for batch in &after {
        assert!(!batch.samples().is_empty());
        assert!(batch.tensor("input_ids").unwrap().shape[1] <= 400);
        let left_out = batch.bad_samples().iter().filter(|bad| bad.code == "changed");
        for bad in left_out {
            changed += 1;
            assert!(bad.reason.contains("not what its batch was packed with"), "{bad}");
            assert!(!batch.samples().contains(&bad.id));
            assert_eq!(bad.outcome, Outcome::LeftOut);
        }
    }
    assert!(changed > 0, "larger photos need more room");
    let report = loader.report();
    assert_eq!(report.left_out, changed);
    let told = after.iter().chain([&before]).flat_map(Batch::bad_samples);
    let count = |outcome| told.clone().filter(|bad| bad.outcome == outcome).count() as u64;
    let others = (count(Outcome::Replaced), count(Outcome::Neutralised));
    assert_eq!((report.replaced, report.neutralised), others);
    let words = report.to_string();
    assert!(words.contains(&format!(" neutralised, {changed} left out\n")), "{words}");
    assert!(words.contains(&format!("  {changed} left-out as pack/changed\n")), "{words}");
    let written = std::fs::read_to_string(folder.path().join("ledger/rank-0.jsonl")).unwrap();
    let left_out = written.matches(r#""outcome":"left-out","room":"pack","code":"changed""#);
    assert_eq!(left_out.count() as u64, changed, "{written}");
    assert!(matches!(loader.next(PATIENCE).unwrap(), Next::Batch(_)), "the run goes on");
}
