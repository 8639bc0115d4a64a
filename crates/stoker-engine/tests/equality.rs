//! The engine that keeps ahead makes the bytes of the reference loop, whatever the number of
//! workers, the memory, the ranks; and resuming anywhere goes on with the same bytes.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod common;

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
    samples: Vec<u64>,
    tensors: Vec<(String, String, Vec<u8>)>,
    bad: Vec<String>,
}

fn see(batch: &Batch) -> Seen {
    let tensor = |t: &stoker_engine::pack::Tensor| {
        (t.name.to_owned(), format!("{:?}{:?}", t.dtype, t.shape), batch.data(t).to_vec())
    };
    Seen {
        name: format!("{:?}", batch.name()),
        samples: batch.samples().iter().map(|id| id.row).collect(),
        tensors: batch.tensors().iter().map(tensor).collect(),
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
        (1_u32..33, prop::sample::select(vec!["full", "none"])),
    );
    runner
        .run(
            &strategy,
            |(seed, batch, (workers, prefetch, memory), (ranks, index), pixels, (pad, shuffle))| {
                let recipe = made(
                    &source,
                    json!({
                        "plan": {"seed": seed, "shuffle": shuffle},
                        "vision": {"pixels": pixels},
                        "pack": {"batch-size": batch, "pad-to-multiple": pad},
                        "engine": {"workers": workers, "prefetch": prefetch, "memory": memory},
                    }),
                );
                let index = index.index(ranks as usize) as u32;
                let loader = Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
                let fast = drain(&loader, 16);
                let sequence = (0..16).map(|step| step * u64::from(ranks) + u64::from(index));
                prop_assert_eq!(fast, reference(recipe, sequence));
                Ok(())
            },
        )
        .unwrap();
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

#[test]
fn bad_samples_are_replaced_or_neutralised_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({
            "plan": {"shuffle": "none", "epochs": 1}, "pack": {"batch-size": 4},
        }),
    );
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let seen = drain(&loader, usize::MAX);
    let bad: Vec<String> = seen.iter().flat_map(|batch| batch.bad.clone()).collect();
    for (row, code) in common::BAD {
        let line = format!("train.jsonl:{}", row + 1);
        let listed = bad.iter().any(|bad| bad.contains(code) && bad.ends_with(&line));
        assert!(listed, "row {row} should be listed with {code} and {line}: {bad:#?}");
        let rows: Vec<u64> = seen.iter().flat_map(|batch| batch.samples.clone()).collect();
        let neutralised = code == "corrupt";
        assert_eq!(rows[row] == row as u64, neutralised, "row {row} ({code})");
    }
    let report = loader.report();
    assert_eq!((report.neutralised, report.replaced), (1, bad.len() as u64 - 1));
    assert_eq!(report.bad_samples, bad);

    let batch = &seen[35 / 4];
    let labels = &batch.tensors.iter().find(|t| t.0 == "labels").unwrap().2;
    let row = labels.len() / 4;
    let learned =
        labels[3 * row..].as_chunks::<8>().0.iter().any(|label| i64::from_ne_bytes(*label) != -100);
    assert!(!learned, "a neutralised sample teaches nothing");
}

#[test]
fn the_policy_to_stop_names_the_first_bad_sample() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({
            "plan": {"shuffle": "none"}, "pack": {"batch-size": 4}, "engine": {"on-bad-sample": "stop"},
        }),
    );
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    for _ in 0..2 {
        let error = loader.next(PATIENCE).unwrap_err().to_string();
        assert!(
            error.contains("sample 0/3 can't be used") && error.ends_with("train.jsonl:4"),
            "{error}"
        );
    }
}

#[test]
fn too_many_bad_samples_stop_the_run_with_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({
            "plan": {"shuffle": "none"}, "pack": {"batch-size": 4}, "engine": {"bad-sample-limit": 0.03},
        }),
    );
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let error = loop {
        match loader.next(PATIENCE) {
            Ok(next) => assert!(matches!(next, Next::Batch(_))),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("more than engine.bad-sample-limit = 0.03 allows"), "{error}");
    assert!(error.contains("missing") && error.contains("aspect-ratio"), "{error}");
}

/// What could not be handed over was not delivered.
#[test]
fn the_state_after_too_many_bad_samples_is_that_of_the_last_batch_that_was_had() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = |limit: f64| {
        let more = json!({"pack": {"batch-size": 4}, "engine": {"bad-sample-limit": limit}});
        made(&source, more)
    };
    let loader = Loader::open(recipe(0.03), rank(0, 1)).unwrap();
    let mut had = 0;
    while loader.next(PATIENCE).is_ok() {
        had += 1;
    }
    assert_eq!(loader.state().batches(), had);
    let resumed = Loader::open(recipe(0.5), rank(0, 1)).unwrap();
    resumed.load_state(&loader.state()).unwrap();
    assert_eq!(drain(&resumed, 2), reference(recipe(0.5), had..had + 2));
}

/// The bad samples of one rank are a share of that rank's samples, also after resuming.
#[test]
fn resuming_on_many_ranks_does_not_forgive_bad_samples() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({"pack": {"batch-size": 4}, "engine": {"bad-sample-limit": 0.05, "workers": 1}}),
    );
    let most = 60;
    let steps_until_error = |loader: &Loader| (0..most).find(|_| loader.next(PATIENCE).is_err());
    let straight = Loader::open(recipe.clone(), rank(0, 8)).unwrap();
    let cursors: Vec<_> =
        std::iter::from_fn(|| straight.next(PATIENCE).is_ok().then(|| straight.state()))
            .take(most)
            .collect();
    assert!(cursors.len() < most, "the limit is met");
    let resumed = Loader::open(recipe, rank(0, 8)).unwrap();
    resumed.load_state(&cursors[cursors.len() - 1]).unwrap();
    assert_eq!(steps_until_error(&resumed), Some(0));
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

/// A store that does not tell sizes: one answer for each connection, which ends with it.
fn serve_without_sizes(store: &std::net::TcpListener, folder: &Path) {
    use std::io::{BufRead, BufReader, Write};
    for connection in store.incoming() {
        let mut connection = connection.unwrap();
        let lines = BufReader::new(connection.try_clone().unwrap()).lines();
        let head: Vec<_> =
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(key) = head.first().and_then(|line| line.split(' ').nth(1)) else { continue };
        let key = key.trim_start_matches("/bucket/");
        let (status, body) = match std::fs::read(folder.join(key)) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n");
        let answer = [head.into_bytes(), body].concat();
        // Who gave up on the answer does not read it.
        let _sent = connection.write_all(&answer);
    }
}

/// 16 MiB is what an image of untold size may have, not what it has.
#[test]
fn images_of_untold_size_are_judged_by_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let store = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let recipe = made(
        &source,
        json!({
            "dataset": {"media-root": "s3://bucket/"},
            "fetch": {
                "endpoint": format!("http://{}", store.local_addr().unwrap()),
                "anonymous": true,
            },
            "image": {"max-bytes": "50kB"}, "vision": {"pixels": "u8"},
            "engine": {"memory": "16MiB", "workers": 1},
        }),
    );
    let served = folder.path().to_owned();
    let thread = std::thread::Builder::new().name("store".into());
    thread.spawn(move || serve_without_sizes(&store, &served)).unwrap();
    let loader = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    assert_eq!(drain(&loader, 3), reference(recipe, 0..3));
}

#[test]
fn a_cursor_that_is_out_of_range_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let loader = Loader::open(made(&source, json!({})), rank(0, 1)).unwrap();
    let mut cursor = serde_json::to_value(loader.state()).unwrap();
    cursor["batches"] = json!(u64::MAX / 2);
    let cursor = serde_json::from_value(cursor).unwrap();
    let error = loader.load_state(&cursor).unwrap_err().to_string();
    assert!(error.contains("batches"), "{error}");
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
fn resuming_after_any_batch_gives_the_same_remaining_batches() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe =
        made(&source, json!({"plan": {"epochs": 2, "seed": 5}, "pack": {"batch-size": 5}}));
    let straight = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    let mut cursors = vec![straight.state()];
    let mut all = Vec::new();
    while let Next::Batch(batch) = straight.next(PATIENCE).unwrap() {
        all.push(see(&batch));
        cursors.push(straight.state());
        assert_eq!(batch.cursor(), cursors.last());
    }
    assert_eq!(all.len(), (2 * common::SAMPLES).div_ceil(5));
    assert_eq!(straight.len(), Some(all.len() as u64));
    for (delivered, cursor) in cursors.iter().enumerate().step_by(3) {
        let resumed = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
        resumed.load_state(cursor).unwrap();
        assert_eq!(resumed.state(), *cursor);
        assert_eq!(drain(&resumed, usize::MAX), all[delivered..], "after {delivered} batches");
    }
}

#[test]
fn resuming_on_another_number_of_ranks_goes_on_with_the_same_global_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(&source, json!({"plan": {"epochs": 1}, "pack": {"batch-size": 3}}));
    let names = |seen: Vec<Seen>| -> Vec<(String, Vec<u64>)> {
        seen.into_iter().map(|batch| (batch.name, batch.samples)).collect()
    };
    let all = names(drain(&Loader::open(recipe.clone(), rank(0, 1)).unwrap(), usize::MAX));
    let first = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    drain(&first, 3);
    let cursor = first.state();
    let ranks = 4;
    let by_rank: Vec<_> = (0..ranks)
        .map(|index| {
            let loader = Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
            loader.load_state(&cursor).unwrap();
            names(drain(&loader, usize::MAX))
        })
        .collect();
    let steps = by_rank[0].len();
    assert!(by_rank.iter().all(|rank| rank.len() == steps), "every rank takes the same steps");
    let together: Vec<_> =
        (0..steps).flat_map(|s| by_rank.iter().map(move |r| r[s].clone())).collect();
    assert_eq!(together[..all.len() - 3], all[3..]);
}

#[test]
fn a_cursor_of_another_plan_is_refused_by_the_name_of_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let cursor = Loader::open(made(&source, json!({})), rank(0, 1)).unwrap().state();
    for (more, field) in [
        (json!({"plan": {"seed": 1}}), "plan.seed"),
        (json!({"pack": {"batch-size": 3}}), "pack.batch-size"),
        (json!({"vision": {"pixels": "u8"}}), "vision"),
        (json!({"text": {"train-newline": false}}), "text"),
        (json!({"compat": "transformers-path"}), "compat"),
        (json!({"dataset": {"max-line": "1MiB"}}), "dataset.max-line"),
        (json!({"dataset": {"allow-http": true}}), "dataset.allow-http"),
    ] {
        let other = Loader::open(made(&source, more), rank(0, 1)).unwrap();
        let error = other.load_state(&cursor).unwrap_err().to_string();
        assert!(error.contains(&format!("does not fit: {field} is")), "{error}");
    }
    let faster = made(&source, json!({"engine": {"workers": 1}, "fetch": {"concurrency": 3}}));
    Loader::open(faster, rank(0, 1)).unwrap().load_state(&cursor).unwrap();
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
