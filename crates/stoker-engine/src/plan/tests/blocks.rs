//! The promises of `shuffle = "block"`.

use super::*;

/// A dataset in shards of these sizes.
fn sharded(sizes: &[u64]) -> Source {
    let mut rows = 0;
    let mut shards = Vec::new();
    for size in sizes {
        shards.push(rows);
        rows += size;
    }
    Source { rows, shards, share: Share::Rows }
}

fn block(source: &Source, seed: u64, window: u32) -> Plan {
    let config =
        recipe::Plan { shuffle: Shuffle::Block, window: Some(window), ..config(seed, 64, None) };
    Plan::new(&config, 4, std::slice::from_ref(source), Identity::default()).unwrap()
}

fn rows(plan: &Plan, positions: std::ops::Range<u64>) -> Vec<u64> {
    positions.map(|position| plan.sample_at(Position(position)).row).collect()
}

proptest! {
    #[test]
    fn every_epoch_holds_every_row_once_in_blocks_too(
        sizes in prop::collection::vec(0_u64..3000, 1..8), seed: u64, window in 1_u32..6, epoch in 0_u64..1000,
    ) {
        let source = sharded(&sizes);
        prop_assume!(source.rows > 0);
        let plan = block(&source, seed, window);
        let first = epoch * source.rows;
        let seen: BTreeSet<u64> = rows(&plan, first..first + source.rows).into_iter().collect();
        prop_assert_eq!(seen.len() as u64, source.rows);
        prop_assert_eq!(seen.last().copied(), Some(source.rows - 1));
    }
}

#[test]
fn no_more_shards_are_open_than_the_window_has_blocks() {
    let source = sharded(&[700; 50]);
    let shard_of = |row: &u64| row / 700;
    for window in [1, 3, 8] {
        let plan = block(&source, 9, window);
        let rows = rows(&plan, 0..source.rows);
        let mut closed = BTreeSet::new();
        for window in rows.chunks(700 * window as usize) {
            let open: BTreeSet<u64> = window.iter().map(shard_of).collect();
            assert!(open.is_disjoint(&closed), "a shard is opened twice in an epoch");
            closed.extend(open);
        }
        assert_eq!(closed.len(), 50);
    }
}

#[test]
fn rows_are_mixed_within_the_window_and_blocks_over_the_epoch() {
    let source = sharded(&[1000; 64]);
    let plan = block(&source, 1, 16);
    let order = rows(&plan, 0..source.rows);
    let shards = |rows: &[u64]| rows.iter().map(|row| row / 1000).collect::<BTreeSet<u64>>();
    assert!(shards(&order[..200]).len() > 12, "the first samples come from most of the window");
    let first = shards(&order[..16_000]);
    assert!(first.iter().any(|shard| *shard > 48), "the window's blocks come from everywhere");
    assert_ne!(order, rows(&plan, source.rows..2 * source.rows), "epochs differ");
    assert_ne!(order, rows(&block(&source, 2, 16), 0..source.rows), "seeds differ");
}

#[test]
fn a_large_shard_is_many_blocks() {
    let plan = block(&sharded(&[1 << 30]), 1, 1);
    let order = rows(&plan, 0..1024);
    let (least, most) = (order.iter().min().unwrap(), order.iter().max().unwrap());
    assert!(most - least < 1024, "{least}..={most}");
}

#[test]
fn another_window_and_other_shards_are_other_plans() {
    let here = block(&sharded(&[500, 500]), 0, 4);
    let cases = [
        (block(&sharded(&[500, 500]), 0, 5), "plan.window is 5 there and 4 here"),
        (block(&sharded(&[400, 600]), 0, 4), "plan.blocks"),
    ];
    for (there, expected) in cases {
        let error = here.check_cursor(&there.cursor(0, 0, 0)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
