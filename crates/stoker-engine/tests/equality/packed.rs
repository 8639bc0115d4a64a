//! Batches by a budget of tokens: the flow makes those of the reference loop, on any number of
//! ranks; every sample comes once; resuming needs no more than where the window begins.

use std::collections::BTreeMap;

use stoker_engine::loader::{Front, Maker};
use stoker_engine::sample::WindowStart;
use stoker_engine::testing::{encode_jpeg, photo};

use super::*;

/// 64 batches a window, of about four samples each.
fn packed(source: &Path, more: Value) -> Recipe {
    let mut recipe = json!({
        "plan": {"lanes": 4, "seed": 3},
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
        (prop::sample::select(vec![1_u32, 2, 4]), any::<prop::sample::Index>()),
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

fn batches(loader: &Loader, count: u64) -> Vec<Box<Batch>> {
    let batch = |_| match loader.next(PATIENCE).unwrap() {
        Next::Batch(batch) => batch,
        other => panic!("a batch in time, not {other:?}"),
    };
    (0..count).map(batch).collect()
}

/// How often each row comes.
fn rows(batches: &[Box<Batch>]) -> BTreeMap<u64, usize> {
    let mut rows = BTreeMap::new();
    for id in batches.iter().flat_map(|batch| batch.samples()) {
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
fn resuming_in_any_window_on_any_number_of_ranks_goes_on_with_the_same_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = packed(&source, json!({}));
    let straight = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    let all: Vec<Seen> =
        batches(&straight, 2 * WINDOW + 8).iter().map(|batch| see(batch)).collect();
    // Saved by the last of two ranks, resumed by four; steps lie across the windows' border.
    for steps in [1, 32, 63] {
        let saver = Loader::open(recipe.clone(), rank(1, 2)).unwrap();
        batches(&saver, steps);
        let cursor = saver.state();
        let json = serde_json::to_string(&cursor).unwrap();
        assert!(json.len() < 4096, "{}", json.len());
        let delivered = 2 * steps as usize;
        for index in [0, 3] {
            let resumed = Loader::open(recipe.clone(), rank(index, 4)).unwrap();
            resumed.load_state(&cursor).unwrap();
            assert_eq!(resumed.state(), cursor);
            let next = batches(&resumed, 1).remove(0);
            assert_eq!(see(&next), all[delivered + index as usize], "after {delivered} of {index}");
            resumed.load_state(next.cursor().unwrap()).unwrap();
            assert_eq!(resumed.state(), *next.cursor().unwrap());
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
        let delivered = front.hand_over(batch, Duration::ZERO).unwrap();
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
    let recipe = packed(&source, json!({"engine": {"prefetch": 0}}));
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
            assert!(bad.words.contains("no longer what its batch was packed with"), "{bad}");
            assert!(!batch.samples().contains(&bad.id));
        }
    }
    assert!(changed > 0, "larger photos need more room");
    assert!(matches!(loader.next(PATIENCE).unwrap(), Next::Batch(_)), "the run goes on");
}
