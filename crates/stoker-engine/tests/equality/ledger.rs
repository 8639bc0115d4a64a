//! The ledger holds the bad samples of what was had, each once, however a run was resumed.

use std::fs;

use stoker_engine::error::{DatasetErrorKind, Error};
use stoker_engine::plan::Cursor;

use super::*;

/// Batch, row, outcome and code of an entry.
type Entry = (u64, u64, String, String);

/// All entries in a folder, in the order of their batches.
fn written(folder: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let of_file: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(of_file.is_sorted_by_key(|entry| entry["sequence"].as_u64().unwrap()), "{text}");
        entries.extend(of_file.iter().map(|entry| {
            let number = |key: &str| entry[key].as_u64().unwrap();
            let text = |key: &str| entry[key].as_str().unwrap().to_owned();
            assert!(text("origin").ends_with(&format!("train.jsonl:{}", number("row") + 1)));
            assert_eq!(text("dataset"), "dataset");
            (number("sequence"), number("row"), text("outcome"), text("code"))
        }));
    }
    entries.sort();
    entries
}

/// What a ledger should hold of the first batches, by the reference loop.
fn expected(recipe: &Recipe, batches: u64) -> Vec<Entry> {
    let rooms = Arc::new(Rooms::open(recipe.clone(), &mut |_, _| {}).unwrap());
    let mut reference = Reference::new(rooms);
    let mut entries = Vec::new();
    for sequence in 0..batches {
        let batch = reference.batch(sequence).unwrap();
        entries.extend(batch.bad_samples().iter().map(|bad| {
            let outcome =
                if batch.samples().contains(&bad.id) { "neutralised" } else { "replaced" };
            (sequence, bad.id.row, outcome.to_owned(), bad.code.clone())
        }));
    }
    entries.sort();
    entries
}

fn recipe_with_ledger(folder: &Path, more: Value) -> Recipe {
    let source = common::dataset(folder);
    let mut value = json!({
        "pack": {"batch-size": 2}, "plan": {"seed": 3},
        "engine": {"ledger": folder.join("ledger"), "workers": 1, "prefetch": 1},
    });
    common::merge(&mut value, more);
    made(&source, value)
}

fn step(loader: &Loader) -> bool {
    matches!(loader.next(PATIENCE).unwrap(), Next::Batch(_))
}

/// A run on some ranks from a cursor on; gives the state after each of its steps.
fn run(recipe: &Recipe, ranks: u32, from: Option<&Cursor>, steps: usize) -> Vec<Cursor> {
    let open = |index| Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
    let loaders: Vec<_> = (0..ranks).map(open).collect();
    for loader in &loaders {
        if let Some(cursor) = from {
            loader.load_state(cursor).unwrap();
        }
    }
    let step = |_| {
        assert!(loaders.iter().all(step));
        loaders[0].state()
    };
    (0..steps).map(step).collect()
}

#[test]
fn a_ledger_holds_the_bad_samples_of_what_was_had_each_once_however_it_was_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe_with_ledger(folder.path(), json!({}));
    let ledger = folder.path().join("ledger");
    let mut states: Vec<Cursor> = Vec::new();
    // Ranks, steps, and how many steps before the last one the next run goes on from.
    for (ranks, steps, lost) in [(4, 5, 2), (1, 3, 1), (2, 3, 0)] {
        let from = states.last().cloned();
        let run = run(&recipe, ranks, from.as_ref(), steps);
        let delivered = run[steps - 1].batches();
        assert_eq!(written(&ledger), expected(&recipe, delivered), "{ranks} ranks, {delivered}");
        states.extend(run);
        states.truncate(states.len() - lost);
    }
    assert!(written(&ledger).len() > 3);
    let names: Vec<_> =
        fs::read_dir(&ledger).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.contains(&"rank-3.jsonl".into()));
}

#[test]
fn a_run_that_begins_anew_begins_its_ledger_anew_and_leaves_other_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe_with_ledger(folder.path(), json!({"plan": {"epochs": 1}}));
    let ledger = folder.path().join("ledger");
    let loader = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    assert!(!ledger.exists(), "a loader that hands over nothing writes nothing");
    drain(&loader, usize::MAX);
    let whole = written(&ledger);
    assert_eq!(whole, expected(&recipe, loader.len().unwrap()));
    let other = folder.path().join("ledger/rank-one.jsonl");
    fs::write(&other, "mine").unwrap();
    loader.rewind().unwrap();
    drain(&loader, 2);
    fs::remove_file(other).unwrap();
    assert_eq!(written(&ledger), expected(&recipe, 2));
}

#[test]
fn what_was_not_written_to_its_end_is_cut_and_what_is_no_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = recipe_with_ledger(folder.path(), json!({}));
    let ledger = folder.path().join("ledger");
    let states = run(&recipe, 1, None, 20);
    let file = ledger.join("rank-0.jsonl");
    let sound = fs::read_to_string(&file).unwrap();
    for torn in ["{\"sequence\": 2", "{\"sequence\":3,\"lane\":0}"] {
        fs::write(&file, format!("{sound}{torn}")).unwrap();
        run(&recipe, 1, states.last(), 4);
        assert_eq!(written(&ledger), expected(&recipe, 24), "{torn:?}");
    }
    fs::write(&file, "my notes\nof the run\n").unwrap();
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let error = loader.next(PATIENCE).unwrap_err();
    let words = error.to_string();
    assert!(words.starts_with("there are lines that no ledger has; move the file away"), "{words}");
    assert!(words.ends_with("ledger/rank-0.jsonl"), "{words}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "my notes\nof the run\n");
}

#[test]
fn a_ledger_that_cant_be_written_ends_the_run_before_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ledger"), "a file").unwrap();
    let loader = Loader::open(recipe_with_ledger(folder.path(), json!({})), rank(0, 1)).unwrap();
    let error = loader.next(PATIENCE).unwrap_err();
    let Error::Dataset(dataset) = &error else { panic!("{error}") };
    assert_eq!(dataset.kind, DatasetErrorKind::Disk);
    let words = error.to_string();
    assert!(words.contains("the ledger can't be written: ") && words.contains("engine.ledger"));
    assert_eq!(loader.state().batches(), 0);
}
