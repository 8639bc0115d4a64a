//! The engine that keeps ahead makes the bytes of the reference loop, whatever the number of
//! workers, the memory, the ranks; and resuming anywhere goes on with the same bytes.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod bad_samples;
mod big_images;
mod cache;
mod faults;
mod formats;
mod ledger;
mod maker;
mod mixtures;
mod neighbours;
mod packed;
mod packed_passes;
mod passes;
mod resume;
mod sizes;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use stoker_engine::engine::Rooms;
use stoker_engine::engine::reference::Reference;
use stoker_engine::loader::{Batch, Loader, Next};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Rank;

const PATIENCE: Duration = Duration::from_mins(1);

/// All that a trainer can see of a batch.
#[derive(Debug, PartialEq)]
struct Seen {
    name: String,
    samples: Vec<(u32, u64)>,
    mask: Vec<bool>,
    tensors: Vec<(String, String, Vec<u8>)>,
    scalars: String,
    bad: Vec<String>,
}

fn see(batch: &Batch) -> Seen {
    let tensor = |t: &stoker_engine::pack::Tensor| {
        (t.name.to_owned(), format!("{:?}{:?}", t.dtype, t.shape), batch.data(t).to_vec())
    };
    if batch.tensor("attention_mask").is_some_and(|mask| mask.shape.len() == 2) {
        let rows = batch.tensor("input_ids").unwrap().shape[0];
        assert_eq!(batch.sample_mask().len(), rows, "a place for each row");
    }
    Seen {
        name: format!("{:?}", batch.name()),
        samples: batch.samples().iter().map(|id| (id.dataset, id.row)).collect(),
        mask: batch.sample_mask().to_vec(),
        tensors: batch.tensors().iter().map(tensor).collect(),
        scalars: format!("{:?}", batch.scalars()),
        bad: batch.bad_samples().iter().map(ToString::to_string).collect(),
    }
}

fn drain(loader: &Loader, most: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    while seen.len() < most {
        match loader.next(PATIENCE).unwrap() {
            Next::Batch(batch) => seen.push(see(&batch)),
            Next::End => break,
            Next::Waiting => panic!("no batch within {PATIENCE:?}"),
        }
    }
    seen
}

fn reference(recipe: Recipe, sequence: impl Iterator<Item = u64>) -> Vec<Seen> {
    let mut reference = Reference::new(Arc::new(Rooms::open(recipe, &mut |_, _| {}).unwrap()));
    sequence.map(|sequence| see(&reference.batch(sequence).unwrap())).collect()
}

fn rank(index: u32, of: u32) -> Rank {
    Rank { index, of }
}

fn made(source: &Path, more: Value) -> Recipe {
    common::recipe(source, more)
}

#[test]
fn the_engine_makes_the_bytes_of_the_reference_loop() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let strategy = (
        0_u64..1000,
        1_u32..6,
        (1_u32..5, 0_u32..7, prop::sample::select(vec!["48MiB", "128MiB", "1GiB"])),
        (prop::sample::select(vec![1_u32, 2, 4]), any::<prop::sample::Index>()),
        prop::sample::select(vec!["f32", "bf16", "u8"]),
        (1_u32..33, prop::sample::select(vec!["full", "none"]), any::<bool>()),
        (prop::sample::select(vec!["padded", "packed", "official-finetune"]), 0_u32..9),
    );
    runner
        .run(
            &strategy,
            |(
                seed,
                batch,
                engine,
                (ranks, index),
                pixels,
                (pad, shuffle, rough),
                (layout, images),
            )| {
                let (workers, prefetch, memory) = engine;
                let recipe = made(
                    &source,
                    json!({
                        "plan": {"seed": seed, "shuffle": shuffle},
                        "image": {"approximate": rough},
                        "vision": {"pixels": pixels},
                        "pack": {
                            "batch-size": batch, "pad-to-multiple": pad, "layout": layout,
                            "min-images-per-batch": images,
                        },
                        "engine": {"workers": workers, "prefetch": prefetch, "memory": memory},
                    }),
                );
                let index = index.index(ranks as usize) as u32;
                let loader = Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
                let fast = drain(&loader, 16);
                loader.close();
                // What was reserved never passed the limit, and all of it was given back.
                let held = loader.report().memory;
                let most = held.peak_compressed_bytes + held.peak_arena_bytes;
                prop_assert!(most > 0 && most <= recipe.engine.memory.unwrap(), "{held:?}");
                let left = [held.compressed_bytes, held.arena_bytes, held.leased_bytes];
                prop_assert_eq!(left, [0; 3]);
                let sequence = (0..16).map(|step| step * u64::from(ranks) + u64::from(index));
                prop_assert_eq!(fast, reference(recipe, sequence));
                Ok(())
            },
        )
        .unwrap();
}

#[test]
fn the_report_tells_padding_and_neutral_images() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    for layout in ["padded", "packed"] {
        let pack = json!({"batch-size": 2, "layout": layout, "min-images-per-batch": 9,
                          "pad-to-multiple": 64});
        let loader = Loader::open(made(&source, json!({"pack": pack})), rank(0, 1)).unwrap();
        let Next::Batch(batch) = loader.next(PATIENCE).unwrap() else { panic!("a batch") };
        let size = |name: &str| batch.tensor(name).unwrap().shape.iter().product::<usize>() as u64;
        let report = loader.report();
        assert_eq!(report.tokens + report.padding, size("input_ids"));
        assert_eq!(report.images + report.neutral_images, size("image_grid_thw") / 3);
        assert_eq!(report.images + report.neutral_images, 9);
        assert_eq!(report.packing, None, "it is not packed to a budget");
        let share = 100.0 * report.padding as f64 / size("input_ids") as f64;
        let words = format!(
            "batches: {share:.1} % of their tokens are padding, {} neutral images\n",
            report.neutral_images
        );
        assert!(report.to_string().contains(&words), "{report}");
    }
}

/// One row, fewer rows than a batch, more ranks than batches, nothing made ahead.
#[test]
fn small_data_sets_and_many_ranks_make_the_bytes_of_the_reference_loop() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let lines = std::fs::read_to_string(&source).unwrap();
    for (rows, epochs, ranks) in [(1, 1, 1), (1, 1, 64), (3, 1, 2), (3, 3, 4)] {
        let some: Vec<_> = lines.lines().take(rows).collect();
        let source = folder.path().join(format!("{rows}.jsonl"));
        std::fs::write(&source, some.join("\n")).unwrap();
        let recipe = made(
            &source,
            json!({
                "plan": {"epochs": epochs}, "pack": {"batch-size": 4},
                "engine": {"prefetch": 0, "workers": 1},
            }),
        );
        let last = ranks - 1;
        let loader = Loader::open(recipe.clone(), rank(last, ranks)).unwrap();
        let steps = loader.len().unwrap();
        assert_eq!(steps, (rows as u64 * epochs).div_ceil(4).div_ceil(u64::from(ranks)));
        let sequence = (0..steps).map(|step| step * u64::from(ranks) + u64::from(last));
        assert_eq!(drain(&loader, usize::MAX), reference(recipe, sequence));
        assert!(matches!(loader.next(PATIENCE).unwrap(), Next::End));
    }
}

/// The sizes of images are guessed before they are known; a guess refuses nothing.
#[test]
fn many_small_images_fit_into_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({
            "vision": {"pixels": "u8"}, "pack": {"batch-size": 32},
            "engine": {"memory": "16MiB", "workers": 1},
        }),
    );
    let loader = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    assert_eq!(drain(&loader, 3), reference(recipe, 0..3));
}

/// What is kept of a closed loader is what is still held.
#[test]
fn a_batch_that_outlives_its_loader_keeps_only_its_own_memory() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let loader = Loader::open(made(&source, json!({})), rank(0, 1)).unwrap();
    drain(&loader, 4);
    let Next::Batch(batch) = loader.next(PATIENCE).unwrap() else { panic!("a batch") };
    loader.close();
    let memory = loader.report().memory;
    assert_eq!(memory.arena_bytes, memory.leased_bytes);
    drop(batch);
    assert_eq!(loader.report().memory.arena_bytes, 0);
}

#[test]
fn closing_ends_the_threads_and_batches_stay_valid() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let loader = Loader::open(made(&source, json!({})), rank(0, 1)).unwrap();
    let Next::Batch(batch) = loader.next(PATIENCE).unwrap() else { panic!("a batch") };
    let before = see(&batch);
    let since = std::time::Instant::now();
    loader.close();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let error = loader.next(PATIENCE).unwrap_err();
    assert_eq!(error, stoker_engine::error::Error::Stopped);
    assert_eq!(see(&batch), before);
    let report = loader.report();
    assert_eq!(report.workers, 0);
    assert_eq!(report.memory.compressed_bytes, 0);
    assert!(report.memory.leased_bytes > 0, "the batch is still held");
    drop(batch);
    assert_eq!(loader.report().memory.leased_bytes, 0);
}
