//! A padded pass: every row once and in its place, on any number of ranks, whatever is bad.

use stoker_engine::error::Outcome;

use super::*;

/// A pass with padding, whose last batch is not full.
fn padded(source: &Path, more: Value) -> Recipe {
    let mut value = json!({
        "plan": {"epochs": 1, "remainder": "pad", "seed": 4}, "pack": {"batch-size": 5},
        "engine": {"workers": 2}, "vision": {"pixels": "u8"},
    });
    common::merge(&mut value, more);
    made(source, value)
}

/// What all ranks have, step by step, from where a loader stands.
pub(super) fn steps(recipe: &Recipe, ranks: u32, from: Option<&Loader>) -> Vec<Vec<Seen>> {
    let of_rank = |index| {
        let loader = Loader::open(recipe.clone(), rank(index, ranks)).unwrap();
        if let Some(from) = from {
            loader.load_state(&from.state()).unwrap();
        }
        drain(&loader, usize::MAX)
    };
    let by_rank: Vec<_> = (0..ranks).map(of_rank).collect();
    let count = by_rank[0].len();
    assert!(by_rank.iter().all(|rank| rank.len() == count), "all ranks take the same steps");
    let mut by_rank: Vec<_> = by_rank.into_iter().map(Vec::into_iter).collect();
    (0..count).map(|_| by_rank.iter_mut().map(|rank| rank.next().unwrap()).collect()).collect()
}

/// The i64 values of a tensor, by sample.
fn rows_of(batch: &Seen, name: &str) -> Vec<Vec<i64>> {
    let bytes = &batch.tensors.iter().find(|tensor| tensor.0 == name).unwrap().2;
    let values: Vec<i64> =
        bytes.as_chunks::<8>().0.iter().map(|value| i64::from_ne_bytes(*value)).collect();
    values.chunks(values.len() / batch.mask.len()).map(<[i64]>::to_vec).collect()
}

#[test]
fn every_row_comes_once_on_any_number_of_ranks_and_the_rest_is_masked() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = padded(&source, json!({}));
    let most = reference(recipe.clone(), 0..16);
    let (rows, size) = (common::SAMPLES, 5);
    for ranks in [1, 4] {
        let seen: Vec<Seen> = steps(&recipe, ranks, None).into_iter().flatten().collect();
        assert_eq!(seen.len(), rows.div_ceil(size).next_multiple_of(ranks as usize));
        assert_eq!(seen, most[..seen.len()], "{ranks} ranks");
        let samples: Vec<_> = seen.iter().flat_map(|batch| batch.samples.clone()).collect();
        let mut sorted: Vec<u64> = samples.iter().map(|sample| sample.1).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..rows as u64).collect::<Vec<_>>(), "{ranks} ranks");
    }
    let bad = common::BAD.map(|(row, _)| row as u64);
    for (number, batch) in most.iter().enumerate() {
        assert_eq!(
            (batch.mask.len(), batch.samples.len()),
            (size, rows.saturating_sub(number * size).min(size))
        );
        for (place, (labels, attention)) in
            rows_of(batch, "labels").iter().zip(rows_of(batch, "attention_mask")).enumerate()
        {
            let is_good = batch.samples.get(place).is_some_and(|sample| !bad.contains(&sample.1));
            assert_eq!(batch.mask[place], is_good, "batch {number}, place {place}");
            assert_eq!(labels.iter().any(|label| *label != -100), is_good);
            assert!(attention.contains(&1), "no row without a token: attention would be no number");
        }
    }
}

#[test]
fn a_bad_row_keeps_its_place_and_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = padded(&source, json!({"plan": {"shuffle": "none"}}));
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let mut told = Vec::new();
    while let Next::Batch(batch) = loader.next(PATIENCE).unwrap() {
        told.extend(batch.bad_samples().iter().map(|bad| {
            assert!(batch.samples().contains(&bad.id));
            (bad.id.row as usize, bad.code.clone(), bad.outcome)
        }));
    }
    let expected = common::BAD.map(|(row, code)| (row, code.to_owned(), Outcome::Neutralised));
    assert_eq!(told, expected);
    let report = loader.report();
    let counts = (report.samples, report.replaced, report.neutralised);
    assert_eq!(counts, (common::SAMPLES as u64, 0, common::BAD.len() as u64));
}

/// The whole of a batch that is padding, and a part of one, show images of one colour.
#[test]
fn padding_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let batch = reference(padded(&source, json!({})), 12..13).remove(0);
    assert_eq!((batch.samples.len(), batch.mask), (0, vec![false; 5]));
    let pixels = batch.tensors.iter().find(|tensor| tensor.0 == "pixel_values");
    let pixels = &pixels.expect("most samples have an image").2;
    // Qwen3-VL's patches are 16 pixels wide, in three channels.
    for patch in pixels.chunks(3 * 16 * 16) {
        assert!(
            patch.chunks(16 * 16).all(|channel| channel.iter().all(|value| *value == channel[0]))
        );
    }
}

#[test]
fn a_pass_goes_on_from_anywhere_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = padded(&source, json!({"engine": {"workers": 1, "prefetch": 2}}));
    let all = reference(recipe.clone(), 0..16);
    for (first, had, then) in [(1, 3, 4), (4, 2, 1)] {
        let start = Loader::open(recipe.clone(), rank(0, first)).unwrap();
        drain(&start, had);
        let begun = first as usize * had;
        let seen: Vec<_> = steps(&recipe, then, Some(&start)).into_iter().flatten().collect();
        let left = common::SAMPLES.div_ceil(5) - begun;
        assert_eq!(seen.len(), left.next_multiple_of(then as usize));
        assert_eq!(seen, all[begun..begun + seen.len()], "{first} ranks, then {then}");
    }
}

#[test]
fn a_pass_goes_through_all_datasets_as_often_as_they_ask() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let few = folder.path().join("few.jsonl");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&few, text.lines().take(3).collect::<Vec<_>>().join("\n")).unwrap();
    let mut value = padded(&source, json!({})).to_value();
    value.as_object_mut().unwrap().remove("dataset");
    value["datasets"] = json!([
        {"name": "many", "source": source, "epochs": 1}, {"name": "few", "source": few, "epochs": 2},
    ]);
    let recipe = Recipe::from_value(value).unwrap();
    let seen: Vec<_> = steps(&recipe, 2, None).into_iter().flatten().collect();
    assert_eq!(seen, reference(recipe, 0..seen.len() as u64));
    let mut samples: Vec<_> = seen.into_iter().flat_map(|batch| batch.samples).collect();
    samples.sort_unstable();
    let many = (0..common::SAMPLES as u64).map(|row| (0, row));
    assert_eq!(samples, many.chain([0, 0, 1, 1, 2, 2].map(|row| (1, row))).collect::<Vec<_>>());
}

#[test]
fn what_makes_no_whole_round_can_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = padded(&source, json!({"plan": {"remainder": "drop"}}));
    // 48 rows are 9 batches of 5, and 3 rows.
    for (ranks, rounds) in [(1, 9), (4, 2)] {
        let seen = steps(&recipe, ranks, None);
        assert_eq!(seen.len(), rounds);
        let seen: Vec<_> = seen.into_iter().flatten().collect();
        assert_eq!(seen, reference(recipe.clone(), 0..seen.len() as u64), "{ranks} ranks");
    }
}

#[test]
fn a_cursor_of_a_padded_pass_is_for_that_pass_alone() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let open =
        |plan: Value| Loader::open(padded(&source, json!({"plan": plan})), rank(0, 1)).unwrap();
    let cursor = open(json!({})).state();
    for (plan, field) in [
        (json!({"remainder": "fill"}), "plan.epochs is 1 there and absent here"),
        (json!({"epochs": 2}), "plan.epochs is 1 there and 2 here"),
    ] {
        let error = open(plan).load_state(&cursor).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}
