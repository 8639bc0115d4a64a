//! Several datasets: one order on any number of ranks and workers, one catalog, one cursor.

use std::fs;
use std::path::PathBuf;

use super::*;

/// Three datasets on disk: one with bad samples, a small one, and one of a single row.
struct Data {
    _folder: tempfile::TempDir,
    sources: [PathBuf; 3],
}

impl Data {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let large = common::dataset(folder.path());
        let lines = fs::read_to_string(&large).unwrap();
        let lines: Vec<_> = lines.lines().collect();
        let write = |name: &str, lines: &[&str]| {
            let path = folder.path().join(name);
            fs::write(&path, lines.join("\n")).unwrap();
            path
        };
        let small = write("small.jsonl", &lines[4..11]);
        let single = write("single.jsonl", &lines[..1]);
        Self { _folder: folder, sources: [large, small, single] }
    }

    /// A recipe over them by weight.
    fn recipe(&self, weights: [f64; 3], more: Value) -> Recipe {
        let names = ["large", "small", "single"];
        let datasets: Vec<_> = (0..3)
            .map(|n| json!({"name": names[n], "source": self.sources[n], "weight": weights[n]}))
            .collect();
        let mut value = json!({
            "model": common::model("qwen3-vl"),
            "datasets": datasets,
            "vision": {"min-pixels": 4096, "max-pixels": 65536},
            "pack": {"batch-size": 3},
            "engine": {"bad-sample-limit": 0.5},
        });
        common::merge(&mut value, more);
        Recipe::from_value(value).unwrap()
    }
}

const WEIGHTS: [f64; 3] = [5.0, 2.0, 0.5];

/// The global sequence from a place on, as some ranks with some workers have it between them.
fn together(recipe: &Recipe, ranks: u32, start: &Loader, batches: usize) -> Vec<Seen> {
    let mut by_rank: Vec<_> = (0..ranks)
        .map(|index| {
            let loader = Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
            loader.load_state(&start.state()).unwrap();
            drain(&loader, batches / ranks as usize).into_iter()
        })
        .collect();
    let mut seen = Vec::new();
    while let Some(first) = by_rank[0].next() {
        seen.push(first);
        seen.extend(by_rank[1..].iter_mut().map(|rank| rank.next().expect("equal steps")));
    }
    seen
}

#[test]
fn a_mixture_is_the_same_on_any_number_of_ranks_and_workers_and_after_resuming() {
    let data = Data::new();
    let stages = json!([{"from": 20, "weights": {"large": 1, "single": 4}}]);
    let plan = |shuffle: &str| json!({"seed": 3, "shuffle": shuffle, "stages": stages});
    let expected = ["full", "block"]
        .map(|shuffle| reference(data.recipe(WEIGHTS, json!({"plan": plan(shuffle)})), 0..24));
    let datasets: Vec<u32> =
        expected[0].iter().flat_map(|batch| &batch.samples).map(|sample| sample.0).collect();
    let counts = |range: std::ops::Range<usize>| {
        [0, 1, 2].map(|number| datasets[range.clone()].iter().filter(|d| **d == number).count())
    };
    // 5 : 2 : 0.5 up to position 20, then 1 : 2 : 4.
    assert_eq!((counts(0..15), counts(20..55)), ([10, 4, 1], [5, 10, 20]));
    assert!(expected[0].iter().any(|batch| !batch.bad.is_empty()), "bad samples are met");
    let cases = [("full", 1, 3, 0), ("full", 4, 2, 8), ("block", 2, 1, 4)];
    for (shuffle, ranks, workers, skipped) in cases {
        let engine = json!({"plan": plan(shuffle), "engine": {"workers": workers}});
        let recipe = data.recipe(WEIGHTS, engine);
        let start = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
        drain(&start, skipped);
        let seen = together(&recipe, ranks, &start, 24 - skipped);
        let expected = &expected[usize::from(shuffle == "block")];
        assert_eq!(seen, expected[skipped..], "{ranks} ranks, {workers} workers, {shuffle}");
    }
}

#[test]
fn a_run_by_epochs_sees_each_dataset_so_often() {
    let data = Data::new();
    let datasets = [("small", 1, 2.0), ("single", 2, 3.0)].map(|(name, number, epochs)| {
        json!({"name": name, "source": data.sources[number], "epochs": epochs})
    });
    let mut value = data.recipe(WEIGHTS, json!({})).to_value();
    value["datasets"] = datasets.into_iter().collect();
    value["plan"]["epochs"] = json!(1);
    value["pack"]["batch-size"] = json!(1);
    let loader = Loader::open(Recipe::from_value(value).unwrap(), rank(0, 1)).unwrap();
    assert_eq!(loader.len(), Some(2 * 7 + 3));
    let seen = drain(&loader, usize::MAX);
    let mut counts = std::collections::BTreeMap::new();
    for sample in seen.iter().flat_map(|batch| &batch.samples) {
        *counts.entry(*sample).or_insert(0) += 1;
    }
    assert_eq!(counts[&(1, 0)], 3);
    assert!((0..7).all(|row| counts[&(0, row)] == 2), "{counts:?}");
}

#[test]
fn a_cursor_of_another_mixture_is_refused_by_the_name_of_what_differs() {
    let data = Data::new();
    let cursor = Loader::open(data.recipe(WEIGHTS, json!({})), rank(0, 1)).unwrap().state();
    let json = serde_json::to_string(&cursor).unwrap();
    assert!(json.len() < 4096, "{} bytes", json.len());
    let refused = |recipe: Recipe| {
        let other = Loader::open(recipe, rank(0, 1)).unwrap();
        other.load_state(&cursor).unwrap_err().to_string()
    };
    let error = refused(data.recipe([5.0, 2.0, 0.25], json!({})));
    assert!(error.contains("does not fit: plan.weights is"), "{error}");
    let stages = json!({"plan": {"stages": [{"from": 9, "weights": {"large": 1}}]}});
    let error = refused(data.recipe(WEIGHTS, stages));
    assert!(error.contains("does not fit: plan.weights is"), "{error}");
    fs::write(&data.sources[1], fs::read(&data.sources[2]).unwrap()).unwrap();
    let error = refused(data.recipe(WEIGHTS, json!({})));
    assert!(error.contains("does not fit: datasets.small is number 1, "), "{error}");
    assert!(error.contains(" of 7 rows, ") && error.contains(" of 1 rows, "), "{error}");
}

#[test]
fn a_cursor_is_small_for_many_datasets() {
    let data = Data::new();
    let name = |number: u32| format!("{}-{number}", "a-name-that-is-about-as-long-as-names-may-be");
    let datasets = (0..300).map(|number| json!({"name": name(number), "source": data.sources[2]}));
    let mut value = data.recipe(WEIGHTS, json!({})).to_value();
    for count in [24, 300] {
        value["datasets"] = datasets.clone().take(count).collect();
        let recipe = Recipe::from_value(value.clone()).unwrap();
        let loader = Loader::open(recipe, rank(0, 1)).unwrap();
        let json = serde_json::to_string(&loader.state()).unwrap();
        assert!(json.len() < 4096, "{} bytes for {count} datasets", json.len());
        loader.load_state(&serde_json::from_str(&json).unwrap()).unwrap();
    }
}

#[test]
fn what_is_wrong_with_a_dataset_is_told_with_its_name_and_of_all_at_once() {
    let data = Data::new();
    let mut value = data.recipe(WEIGHTS, json!({})).to_value();
    for number in [0, 2] {
        value["datasets"][number]["media-root"] = json!("s3://user:pass@bucket/x");
    }
    let recipe = Recipe::from_value(value.clone()).unwrap();
    let error = Loader::open(recipe, rank(0, 1)).err().expect("it is wrong").to_string();
    assert!(error.contains("2 problems"), "{error}");
    for path in ["datasets.large.media-root: ", "datasets.single.media-root: "] {
        assert!(error.contains(path), "{error}");
    }
    value = data.recipe(WEIGHTS, json!({})).to_value();
    value["datasets"][1]["source"] = json!("/no/such.jsonl");
    let recipe = Recipe::from_value(value).unwrap();
    let error = Loader::open(recipe, rank(0, 1)).err().expect("it is wrong").to_string();
    assert!(error.contains("/no/such.jsonl"), "{error}");
}
