//! Runs of packed samples that end: every row as often as asked for, all ranks in step, the same
//! wherever the run is broken off.

use std::collections::BTreeMap;

use stoker_engine::error::Outcome;
use stoker_engine::loader::{self, Front, Maker};
use stoker_engine::plan::Cursor;

use super::passes::steps;
use super::*;

/// About four samples a batch, 64 batches a window: a window for each five passes and a half.
fn run(source: &Path, more: Value) -> Recipe {
    let mut recipe = json!({
        "plan": {"lanes": 8, "seed": 3, "epochs": 1},
        "vision": {"pixels": "u8", "max-pixels": 16384},
        "pack": {"max-tokens": 400},
        "engine": {"workers": 2},
    });
    common::merge(&mut recipe, more);
    made(source, recipe)
}

const ENDS: [&str; 3] = ["fill", "pad", "drop"];

/// How often each row comes.
fn rows<'a>(batches: impl IntoIterator<Item = &'a Seen>) -> BTreeMap<u64, usize> {
    let mut rows = BTreeMap::new();
    for (_, row) in batches.into_iter().flat_map(|batch| &batch.samples) {
        *rows.entry(*row).or_default() += 1;
    }
    rows
}

/// The length of the global sequence, as one rank that goes through it finds it.
fn length(recipe: &Recipe) -> usize {
    let loader = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    let batches = drain(&loader, usize::MAX).len();
    assert_eq!(loader.len(), Some(batches as u64), "it is known by now");
    batches
}

#[test]
fn every_row_comes_as_often_as_asked_for_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    for (epochs, end, worlds) in
        [(1, "pad", [1, 8]), (7, "pad", [2, 4]), (1, "drop", [1, 8]), (2, "drop", [2, 4])]
    {
        let recipe = run(&source, json!({"plan": {"epochs": epochs, "remainder": end}}));
        let batches = length(&recipe);
        let all = reference(recipe.clone(), 0..batches as u64 + 8);
        let (all, behind) = all.split_at(batches);
        if end == "pad" {
            let expected = (0..common::SAMPLES as u64).map(|row| (row, epochs)).collect();
            assert_eq!(rows(all), expected);
        }
        assert!(all.iter().all(|batch| !batch.samples.is_empty()));
        for ranks in worlds {
            let rounds = match end {
                "drop" => batches / ranks as usize,
                _ => batches.div_ceil(ranks as usize),
            };
            let seen = steps(&recipe, ranks, None);
            assert_eq!(seen.len(), rounds, "{epochs} epochs, {end}, {ranks} ranks");
            let seen: Vec<Seen> = seen.into_iter().flatten().collect();
            let (had, filled) = seen.split_at(seen.len().min(batches));
            assert_eq!(had, &all[..had.len()], "{epochs} epochs, {end}, {ranks} ranks");
            assert_eq!(filled, &behind[..filled.len()], "{epochs} epochs, {end}, {ranks} ranks");
        }
    }
}

#[test]
fn the_last_window_is_as_full_as_others_and_holds_no_more_than_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = run(&source, json!({"plan": {"remainder": "pad"}}));
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let batches = drain(&loader, usize::MAX).len() as f64;
    let report = loader.report();
    assert_eq!(report.samples, common::SAMPLES as u64);
    let full = report.tokens as f64 / (400.0 * batches);
    assert_eq!(report.packing, Some(full));
    assert!(full > 0.8, "{full}: a window of 64 batches would be a fifth as full");
}

/// Behind the end, batches are padding that looks like others.
#[test]
fn a_padded_pass_masks_what_is_behind_its_end_and_what_is_bad() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = run(&source, json!({"plan": {"remainder": "pad"}}));
    let batches = length(&recipe);
    let all = reference(recipe.clone(), 0..batches as u64 + 8);
    let bad = common::BAD.map(|(row, _)| row as u64);
    for batch in &all[..batches] {
        let good = batch.samples.iter().map(|(_, row)| !bad.contains(row));
        assert_eq!(batch.mask, good.collect::<Vec<_>>());
    }
    for batch in &all[batches..] {
        assert!(batch.samples.is_empty() && batch.bad.is_empty() && !batch.mask.is_empty());
        assert!(batch.mask.iter().all(|counts| !counts));
        let values = |name: &str| {
            let bytes = &batch.tensors.iter().find(|tensor| tensor.0 == name).unwrap().2;
            let values = bytes.as_chunks::<8>().0.iter().map(|value| i64::from_ne_bytes(*value));
            values.collect::<Vec<_>>()
        };
        assert!(values("labels").iter().all(|label| *label == -100));
        assert!((200..=400).contains(&values("input_ids").len()), "it costs what others cost");
    }
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let mut told = Vec::new();
    while let Next::Batch(batch) = loader.next(PATIENCE).unwrap() {
        told.extend(batch.bad_samples().iter().map(|bad| (bad.id.row as usize, bad.outcome)));
    }
    told.sort_by_key(|told| told.0);
    assert_eq!(told, common::BAD.map(|(row, _)| (row, Outcome::Neutralised)));
}

#[test]
fn what_fills_up_the_last_round_is_of_the_epoch_after() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = run(&source, json!({}));
    let batches = length(&recipe);
    let seen: Vec<Seen> = steps(&recipe, 8, None).into_iter().flatten().collect();
    assert_eq!(seen.len(), batches.next_multiple_of(8));
    assert!(seen.len() > batches, "there is something to fill up: {batches}");
    // The same samples one by one, in the order of the plan.
    let plain = json!({"pack": {"max-tokens": null, "batch-size": 1}, "plan": {"epochs": null}});
    let in_order: Vec<Seen> = reference(run(&source, plain), 0..2 * common::SAMPLES as u64);
    assert_eq!(rows(&seen[..batches]), rows(&in_order[..common::SAMPLES]));
    let after = rows(&in_order[common::SAMPLES..]);
    for batch in &seen[batches..] {
        assert!(!batch.samples.is_empty());
        // The one that shows to be bad when it is decoded keeps its place here too.
        let corrupt = common::BAD[4].0 as u64;
        let good = batch.samples.iter().map(|(_, row)| *row != corrupt);
        assert_eq!(batch.mask, good.collect::<Vec<_>>());
        assert!(batch.samples.iter().all(|(_, row)| after.contains_key(row)));
    }
}

/// A cursor after each batch, and one after the end.
fn cursors(recipe: &Recipe) -> (Vec<Cursor>, Cursor) {
    let straight = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    let mut cursors = vec![straight.state()];
    while let Next::Batch(batch) = straight.next(PATIENCE).unwrap() {
        assert_eq!(batch.cursor(), Some(&straight.state()));
        cursors.push(straight.state());
    }
    (cursors, straight.state())
}

fn resumed(recipe: &Recipe, index: u32, of: u32, cursor: &Cursor) -> Loader {
    let loader = Loader::open(recipe.clone(), rank(index, of)).unwrap();
    let json = serde_json::to_string(cursor).unwrap();
    loader.load_state(&Cursor::from_json(&json).unwrap()).unwrap();
    assert_eq!(loader.state(), *cursor);
    loader
}

#[test]
fn a_run_goes_on_from_any_batch_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    for end in ENDS {
        let more = json!({"plan": {"epochs": 6, "remainder": end}, "engine": {"prefetch": 2}});
        let recipe = run(&source, more);
        let (cursors, ended) = cursors(&recipe);
        let batches = cursors.len() - 1;
        assert!(batches > 64, "{batches}: more than a window");
        let all = reference(recipe.clone(), 0..batches as u64 + 8);
        // The first, some, those around the border of the windows, and the last ones.
        let places = [0, 1, 37, 62, 63, 64, 65].into_iter().chain(batches - 9..=batches);
        let ranks = [(0, 2), (1, 2), (0, 8), (7, 8)];
        let loaders =
            ranks.map(|(index, of)| (index, of, resumed(&recipe, index, of, &cursors[0])));
        for place in places {
            for (index, ranks, loader) in &loaders {
                let left = batches - place;
                let rounds = match end {
                    "drop" => left / *ranks as usize,
                    _ => left.div_ceil(*ranks as usize),
                };
                loader.load_state(&cursors[place]).unwrap();
                let seen = drain(loader, usize::MAX);
                let own = all[place..].iter().skip(*index as usize).step_by(*ranks as usize);
                let words = format!("{end}: {index} of {ranks} from {place} of {batches}");
                assert!(seen.iter().eq(own.take(rounds)), "{words}");
                assert!(loader.ended(), "{words}");
            }
        }
        // After the end was seen, the next time begins anew.
        for (index, ranks) in [(0, 1), (3, 4)] {
            let loader = resumed(&recipe, index, ranks, &ended);
            assert!(loader.ended());
            loader.rewind().unwrap();
            assert_eq!(drain(&loader, 1), all[index as usize..][..1]);
        }
    }
}

/// What a rank of eight saved after each of its steps is good for one that is alone.
#[test]
fn the_states_of_a_rank_among_many_are_those_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    for end in ENDS {
        let recipe = run(&source, json!({"plan": {"remainder": end}}));
        let batches = length(&recipe);
        let all = reference(recipe.clone(), 0..batches as u64);
        let among = Loader::open(recipe.clone(), rank(5, 8)).unwrap();
        let mut step = 0;
        while let Next::Batch(batch) = among.next(PATIENCE).unwrap() {
            step += 1;
            let alone = resumed(&recipe, 0, 1, batch.cursor().unwrap());
            let rest = all.get(8 * step..).unwrap_or_default();
            assert_eq!(drain(&alone, usize::MAX), rest, "{end} after step {step}");
        }
        assert!(step > 0 || end == "drop");
    }
}

/// A run that is gone through again is the same again, though its end is known by then.
#[test]
fn a_second_time_is_like_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    for (end, index, of) in [("fill", 6, 8), ("pad", 0, 1), ("pad", 7, 8)] {
        let recipe = run(&source, json!({"plan": {"remainder": end}}));
        let loader = Loader::open(recipe, rank(index, of)).unwrap();
        let first = drain(&loader, usize::MAX);
        assert!(loader.ended() && !first.is_empty());
        loader.rewind().unwrap();
        assert_eq!(drain(&loader, usize::MAX), first);
    }
}

#[test]
fn a_front_learns_from_a_makers_batches_where_the_run_ends() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    for (end, index, of) in [("fill", 7, 8), ("pad", 2, 4), ("drop", 0, 1), ("drop", 7, 8)] {
        let recipe = run(&source, json!({"plan": {"remainder": end}}));
        let (maker, front) = (
            Maker::open(recipe.clone()).unwrap(),
            Front::open(recipe.clone(), rank(index, of)).unwrap(),
        );
        let expected = {
            let loader = Loader::open(recipe, rank(index, of)).unwrap();
            drain(&loader, usize::MAX)
        };
        for _ in 0..2 {
            let mut seen = Vec::new();
            while let Some(sequence) = front.sequence_at(0) {
                maker.learn(front.window().expect("samples are packed"));
                let batch = maker.make(sequence, PATIENCE).unwrap().expect("a batch in time");
                // As it arrives from another process.
                let memory = Box::new(batch.lease().to_vec());
                let batch = Box::new(Batch::from_parts(&batch.header(), memory).unwrap());
                match front.hand_over(batch, Duration::ZERO).unwrap() {
                    Some(batch) => seen.push(see(&batch)),
                    None => assert_eq!(front.sequence_at(0), None),
                }
            }
            assert_eq!(seen, expected, "{end}: {index} of {of}");
            assert_eq!(front.len(), Some(expected.len() as u64));
            front.rewind();
        }
        assert_eq!(
            maker.report().samples,
            front.report().samples,
            "what is none counts for nothing"
        );
    }
}

#[test]
fn how_many_batches_there_are_is_known_once_all_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    // Bad samples are not kept as measured, so only those that show when decoded may stay.
    let sound = folder.path().join("sound.jsonl");
    let text = std::fs::read_to_string(&source).unwrap();
    let bad = &common::BAD[..4];
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(row, _)| bad.iter().all(|(bad, _)| bad != row));
    std::fs::write(&sound, lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n")).unwrap();
    for end in ENDS {
        let recipe = run(&sound, json!({"plan": {"epochs": 7, "remainder": end, "lanes": 4}}));
        let before = Loader::open(recipe.clone(), rank(0, 4)).unwrap();
        if end == ENDS[0] {
            assert_eq!((before.len(), before.is_endless()), (None, false));
            loader::measure(recipe.clone(), &mut |_, _| {}).unwrap();
        }
        let known = before.len().expect("all is measured");
        assert_eq!(drain(&before, usize::MAX).len() as u64, known, "{end}");
    }
    let partly = run(&source, json!({}));
    loader::measure(partly.clone(), &mut |_, _| {}).unwrap();
    let bad = Loader::open(partly, rank(0, 1)).unwrap();
    assert_eq!(bad.len(), None, "bad samples have no size, and may be mended");
}

#[test]
fn a_cursor_of_a_packed_run_is_for_runs_of_that_length() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let open = |plan: Value| Loader::open(run(&source, json!({"plan": plan})), rank(0, 1)).unwrap();
    let cursor = open(json!({})).state();
    for (plan, field) in [
        (json!({"epochs": 2}), "plan.epochs is 1 there and 2 here"),
        (json!({"epochs": null}), "plan.epochs is 1 there and absent here"),
    ] {
        let error = open(plan).load_state(&cursor).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
    open(json!({"remainder": "drop"})).load_state(&cursor).unwrap();
}
