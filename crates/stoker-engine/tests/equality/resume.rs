//! Resuming anywhere goes on with the same bytes.

use stoker_engine::loader::REMEMBERED;
use stoker_engine::plan::Cursor;

use super::*;

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

/// What a trainer that looks ahead saves: the state of the last batch that it trained on.
#[test]
fn the_state_of_some_batches_ago_is_the_one_of_then() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(&source, json!({"plan": {"epochs": 1}, "pack": {"batch-size": 5}}));
    let loader = Loader::open(recipe.clone(), rank(1, 2)).unwrap();
    let mut states = vec![loader.state()];
    let check = |loader: &Loader, states: &[Cursor]| {
        for (ago, state) in states.iter().rev().enumerate() {
            assert_eq!(loader.state_ago(ago).as_ref(), Some(state), "{ago} batches ago");
        }
        assert_eq!(loader.state_ago(states.len()), None);
    };
    check(&loader, &states);
    while let Next::Batch(_) = loader.next(PATIENCE).unwrap() {
        states.push(loader.state());
        check(&loader, &states);
    }
    // After the end the run begins anew, and those who look ahead still hold its last batches.
    loader.rewind().unwrap();
    *states.last_mut().unwrap() = loader.state();
    check(&loader, &states);
    drain(&loader, 2);
    assert_eq!(loader.state_ago(2).as_ref(), states.last());
    assert_eq!(loader.state_ago(3).as_ref(), states.iter().rev().nth(1));
    loader.load_state(&states[1]).unwrap();
    check(&loader, &states[1..2]);
}

/// Gone through again, a run whose end was seen begins anew; one that was stopped after its last
/// batch has its end yet to come. A run that was made longer goes on.
#[test]
fn a_state_says_whether_the_end_was_seen() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let open = |epochs: u32| {
        let recipe = json!({"plan": {"epochs": epochs}, "pack": {"batch-size": 6}});
        Loader::open(made(&source, recipe), rank(0, 1)).unwrap()
    };
    let loader = open(1);
    let batches = loader.len().unwrap();
    drain(&loader, batches as usize);
    let last = loader.state();
    assert!(!last.ended() && !loader.ended());
    assert!(matches!(loader.next(PATIENCE).unwrap(), Next::End));
    let end = loader.state();
    assert!(end.ended() && loader.ended());
    assert_eq!((end.batches(), loader.state_ago(0)), (batches, Some(last.clone())));
    for (state, seen) in [(&last, false), (&end, true)] {
        let resumed = open(1);
        resumed.load_state(state).unwrap();
        assert_eq!(resumed.state(), *state);
        assert_eq!(resumed.ended(), seen);
        assert!(matches!(resumed.next(PATIENCE).unwrap(), Next::End));
        let longer = open(2);
        longer.load_state(state).unwrap();
        assert!(!longer.ended());
        assert_eq!(drain(&longer, usize::MAX).len() as u64, batches);
    }
}

#[test]
fn states_of_long_ago_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let lines = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, lines.lines().next().unwrap()).unwrap();
    let recipe = made(&source, json!({"pack": {"batch-size": 1}, "engine": {"workers": 1}}));
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    for _ in 0..REMEMBERED + 3 {
        loader.next(PATIENCE).unwrap();
    }
    let batches = |ago| loader.state_ago(ago).map(|state| state.batches());
    assert_eq!((batches(0), batches(REMEMBERED)), (Some(REMEMBERED as u64 + 3), Some(3)));
    assert_eq!(batches(REMEMBERED + 1), None);
}

#[test]
fn resuming_on_another_number_of_ranks_goes_on_with_the_same_global_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(&source, json!({"plan": {"epochs": 1}, "pack": {"batch-size": 3}}));
    let names = |seen: Vec<Seen>| -> Vec<(String, Vec<(u32, u64)>)> {
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
        (json!({"vision": {"max-pixels": 32768}}), "vision"),
        (json!({"text": {"train-newline": false}}), "text"),
        (json!({"compat": "transformers-path"}), "compat"),
        (json!({"dataset": {"max-line": "1MiB"}}), "dataset.max-line"),
        (json!({"dataset": {"allow-http": true}}), "dataset.allow-http"),
    ] {
        let other = Loader::open(made(&source, more), rank(0, 1)).unwrap();
        let error = other.load_state(&cursor).unwrap_err().to_string();
        assert!(error.contains(&format!("does not fit: {field} is")), "{error}");
    }
    // What decides how fast batches come, and how their pixels are written down, is no part of it.
    for more in [
        json!({"engine": {"workers": 1}, "fetch": {"concurrency": 3}}),
        json!({"vision": {"pixels": "u8"}}),
    ] {
        Loader::open(made(&source, more), rank(0, 1)).unwrap().load_state(&cursor).unwrap();
    }
}
