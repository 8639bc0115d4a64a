//! The promises of the order. Mixtures and blocks have theirs in files of their own; `golden` holds
//! the order against a model that was written from the documentation.

mod blocks;
mod golden;
mod mixtures;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::recipe::Share;

/// A dataset in one shard.
fn source(rows: u64, share: Share) -> Source {
    Source { rows, shards: vec![0], share }
}

fn plan(rows: u64, config: &recipe::Plan, batch_size: u32) -> Plan {
    let sources = [source(rows, Share::Rows)];
    Plan::new(config, batch_size, &sources, Identity::default()).unwrap()
}

fn config(seed: u64, lanes: u32, epochs: Option<u64>) -> recipe::Plan {
    recipe::Plan { seed, epochs, lanes, ..recipe::Plan::default() }
}

proptest! {
    #[test]
    fn every_epoch_holds_every_row_once(rows in 1_u64..3000, seed: u64, epoch in 0_u64..1_000_000) {
        let plan = plan(rows, &config(seed, 64, None), 8);
        let seen: BTreeSet<u64> =
            (0..rows).map(|i| plan.sample_at(Position(epoch * rows + i)).row).collect();
        prop_assert_eq!(seen.len() as u64, rows);
        prop_assert_eq!(seen.last().copied(), Some(rows - 1));
    }

    #[test]
    fn any_number_of_ranks_sees_the_same_global_sequence(
        rows in 1_u64..500, seed: u64, batch_size in 1_u32..9, steps in 1_u64..9,
        start in 0_u64..200, ranks in prop::sample::select(vec![1_u32, 2, 4, 8, 16, 32, 64]),
    ) {
        let plan = plan(rows, &config(seed, 64, None), batch_size);
        let mut by_rank = Vec::new();
        for step in 0..steps {
            for rank in 0..ranks {
                let batch = plan.batch(start + step * u64::from(ranks) + u64::from(rank));
                by_rank.extend(plan.positions(batch).unwrap());
            }
        }
        let first = start * u64::from(batch_size);
        let straight: Vec<_> = (first..first + by_rank.len() as u64).map(Position).collect();
        prop_assert_eq!(by_rank, straight);
    }

    #[test]
    fn a_lane_is_served_by_one_rank(start in 0_u64..1000, ranks in prop::sample::select(vec![2_u32, 4, 8])) {
        let plan = plan(1000, &config(1, 64, None), 4);
        for rank in 0..ranks {
            let lanes: BTreeSet<u32> = (0..200)
                .map(|step| plan.batch(start + step * u64::from(ranks) + u64::from(rank)).lane)
                .collect();
            let classes: BTreeSet<u32> = lanes.iter().map(|lane| lane % ranks).collect();
            prop_assert_eq!(classes.len(), 1);
        }
    }
}

#[test]
fn epochs_and_seeds_differ() {
    let order = |seed, epoch: u64| -> Vec<u64> {
        let plan = plan(100, &config(seed, 64, None), 8);
        (0..100).map(|i| plan.sample_at(Position(epoch * 100 + i)).row).collect()
    };
    assert_ne!(order(1, 0), order(1, 1));
    assert_ne!(order(1, 0), order(2, 0));
    assert_eq!(order(1, 5), order(1, 5));
}

#[test]
fn unshuffled_is_the_order_of_the_source() {
    let config = recipe::Plan { shuffle: Shuffle::None, ..recipe::Plan::default() };
    let plan = plan(7, &config, 8);
    let rows: Vec<u64> = (0..14).map(|p| plan.sample_at(Position(p)).row).collect();
    assert_eq!(rows, [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn spares_are_other_rows_and_always_the_same() {
    let plan = plan(1000, &config(3, 64, None), 8);
    let spares: BTreeSet<u64> = (1..20).map(|a| plan.spare(Position(17), a).row).collect();
    assert!(spares.len() > 15, "attempts should reach different rows: {spares:?}");
    assert_eq!(plan.spare(Position(17), 3), plan.spare(Position(17), 3));
}

#[test]
fn every_rank_gets_the_same_number_of_batches() {
    let plan = plan(10, &config(0, 4, Some(2)), 3);
    assert_eq!(plan.batches(), Some(7));
    for ranks in [1, 2, 4] {
        let rank = Rank { index: 0, of: ranks };
        assert_eq!(plan.batches_per_rank(0, rank), Some(7_u64.div_ceil(u64::from(ranks))));
        assert_eq!(plan.batches_per_rank(7, rank), Some(0));
    }
}

#[test]
fn ranks_that_do_not_divide_the_lanes_are_refused() {
    let plan = plan(10, &config(0, 64, None), 3);
    let error = plan.check_rank(Rank { index: 0, of: 3 }).unwrap_err().to_string();
    assert!(error.contains("plan.lanes: 3 ranks do not divide 64 lanes"), "{error}");
    let error = plan.check_rank(Rank { index: 4, of: 4 }).unwrap_err().to_string();
    assert!(error.contains("rank 4 of 4 does not exist"), "{error}");
    plan.check_rank(Rank { index: 3, of: 4 }).unwrap();
}

#[test]
fn a_foreign_cursor_is_refused_by_the_name_of_what_differs() {
    let here = plan(10, &config(0, 64, None), 3);
    let there = plan(10, &config(9, 64, None), 3);
    let error = here.check_cursor(&there.cursor(5, 40, 0)).unwrap_err().to_string();
    assert!(error.contains("plan.seed is 9 there and 0 here"), "{error}");
    here.check_cursor(&here.cursor(5, 40, 0)).unwrap();
}

#[test]
fn a_damaged_cursor_is_refused() {
    for json in ["", "[1]", "null", "{\"version\": 2"] {
        let error = Cursor::from_json(json).unwrap_err().to_string();
        assert!(error.starts_with("the cursor can't be read: "), "{json}: {error}");
    }
}

#[test]
fn a_damaged_cursor_is_refused_by_the_name_of_the_field() {
    let plan = plan(10, &config(0, 64, None), 3);
    let whole = serde_json::to_value(plan.cursor(5, 40, 0)).unwrap();
    let refusal = |cursor: &serde_json::Value| {
        let read = Cursor::from_json(&cursor.to_string());
        read.and_then(|cursor| plan.check_cursor(&cursor)).unwrap_err().to_string()
    };
    for name in ["version", "batches", "samples", "bad_samples", "ended", "plan"] {
        let mut cursor = whole.clone();
        cursor.as_object_mut().unwrap().remove(name);
        let error = refusal(&cursor);
        assert!(error.contains(&format!("does not fit: {name} is absent there")), "{error}");
        for wrong in [json!(-1), json!(0.5), json!("7"), json!(null), json!(u64::MAX), json!([3])] {
            cursor[name] = wrong;
            let error = refusal(&cursor);
            let expected = format!("does not fit: {name} is {} there", cursor[name]);
            assert!(error.contains(&expected), "{error}");
        }
    }
    let mut cursor = whole.clone();
    cursor["lanes"] = json!(64);
    let error = refusal(&cursor);
    assert!(error.contains("does not fit: lanes is 64 there and absent here"), "{error}");
    cursor["version"] = json!(1);
    let error = refusal(&cursor);
    assert!(error.contains("version is 1 there and 2 here; it was saved by another"), "{error}");
    cursor = whole;
    cursor["plan"]["plan.seed"] = json!("x".repeat(500));
    cursor["plan"] = json!([cursor["plan"]]);
    let error = refusal(&cursor);
    assert!(error.contains("plan is [{") && error.len() < 300, "{error}");
}

#[test]
fn a_cursor_survives_json_and_is_small() {
    let plan = plan(u64::MAX / 8, &config(u64::MAX, 64, None), 3);
    let cursor = plan.cursor(1 << 44, 1 << 44, 12);
    let json = serde_json::to_string(&cursor).unwrap();
    assert!(json.len() < 4096, "{} bytes", json.len());
    assert_eq!(Cursor::from_json(&json).unwrap(), cursor);
}
