//! Work goes on ahead of a trainer that takes batches which are ready and then does something else.

use std::thread::sleep;
use std::time::Instant;

use stoker_engine::metrics::Room;

use super::*;

/// Reads of the source so far.
fn reads(loader: &Loader) -> u64 {
    let report = loader.report();
    report.rooms.iter().find(|it| it.room == Room::Fetch).map_or(0, |it| it.items)
}

/// The same, once there have been no more for a while.
fn settled(loader: &Loader) -> u64 {
    let mut seen = (reads(loader), Instant::now());
    while seen.1.elapsed() < Duration::from_millis(150) {
        sleep(Duration::from_millis(5));
        let now = reads(loader);
        if now != seen.0 {
            seen = (now, Instant::now());
        }
    }
    seen.0
}

fn take(loader: &Loader) {
    assert!(matches!(loader.next(PATIENCE).unwrap(), Next::Batch(_)));
}

#[test]
fn each_batch_that_is_taken_has_another_brought_in_also_after_a_rest() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe =
        made(&source, json!({"pack": {"batch-size": 2}, "engine": {"workers": 1, "prefetch": 4}}));
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    take(&loader);
    let mut before = settled(&loader);
    // The third rest is longer than a trainer that takes nothing is looked after.
    for rest in [0, 30, 1500, 0] {
        sleep(Duration::from_millis(rest));
        assert_eq!(settled(&loader), before, "no more than that is brought in by itself");
        take(&loader);
        let asked = Instant::now();
        while reads(&loader) == before {
            assert!(asked.elapsed() < PATIENCE, "nothing was brought in after a rest of {rest} ms");
            sleep(Duration::from_millis(1));
        }
        before = settled(&loader);
    }
}
