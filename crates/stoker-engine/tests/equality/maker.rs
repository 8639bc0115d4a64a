//! A maker makes any batch, in any order and for many at once, and gives up what nobody wants; the
//! front counts what is handed over as a loader does.

use std::collections::BTreeSet;
use std::thread;

use stoker_engine::loader::{Front, Maker};

use super::*;

fn make(maker: &Maker, sequence: u64) -> Seen {
    see(&maker.make(sequence, PATIENCE).unwrap().expect("a batch in time"))
}

#[test]
fn any_batch_is_made_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(&source, json!({"pack": {"batch-size": 3}, "engine": {"workers": 2}}));
    let maker = Maker::open(recipe.clone()).unwrap();
    let order = [7, 0, 3, 3, 1_000_000, 1, 7];
    let seen: Vec<_> = order.iter().map(|&sequence| make(&maker, sequence)).collect();
    assert_eq!(seen, reference(recipe, order.into_iter()));
}

/// The memory holds three batches at most, and twelve are asked for at once, the last one first.
#[test]
fn many_may_ask_at_once_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let more = json!({"pack": {"batch-size": 2}, "engine": {"memory": "16MiB", "workers": 2}});
    let recipe = made(&source, more);
    let maker = Maker::open(recipe.clone()).unwrap();
    let seen: Vec<_> = thread::scope(|scope| {
        let ask = |sequence| {
            scope.spawn({
                let maker = &maker;
                move || make(maker, sequence)
            })
        };
        let asked: Vec<_> = (0..12).rev().map(ask).collect();
        asked.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(seen, reference(recipe, 0..12));
    assert_eq!(maker.report().memory.leased_bytes, 0);
}

#[test]
fn what_is_no_longer_ahead_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(&source, json!({"engine": {"workers": 1}}));
    let maker = Maker::open(recipe.clone()).unwrap();
    maker.look_ahead(&(0..6).collect());
    assert_eq!(make(&maker, 2), reference(recipe.clone(), 2..3)[0]);
    maker.look_ahead(&BTreeSet::from([4]));
    maker.look_ahead(&BTreeSet::from([20]));
    assert_eq!(make(&maker, 20), reference(recipe.clone(), 20..21)[0]);
    maker.look_ahead(&BTreeSet::new());
    assert_eq!(make(&maker, 0), reference(recipe, 0..1)[0], "what was given up is begun anew");
    let compressed = || maker.report().memory.compressed_bytes;
    let since = std::time::Instant::now();
    while compressed() > 0 {
        assert!(since.elapsed() < PATIENCE, "{} bytes are still held", compressed());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_front_that_is_fed_by_a_maker_counts_as_a_loader_does() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(&source, json!({"plan": {"epochs": 1}, "pack": {"batch-size": 5}}));
    let maker = Maker::open(recipe.clone()).unwrap();
    let front = Front::open(recipe.clone(), rank(1, 2)).unwrap();
    let loader = Loader::open(recipe, rank(1, 2)).unwrap();
    assert_eq!(front.len(), loader.len());
    while let Some(sequence) = front.sequence_at(0) {
        let batch = maker.make(sequence, PATIENCE).unwrap().unwrap();
        // As it arrives from another process.
        let memory = Box::new(batch.lease().to_vec());
        let batch = Batch::from_parts(&batch.header(), memory).unwrap();
        assert!(batch.lease().is_shared());
        let batch = front.hand_over(Box::new(batch), Duration::ZERO).unwrap().unwrap();
        let Next::Batch(expected) = loader.next(PATIENCE).unwrap() else { panic!("a batch") };
        assert_eq!(see(&batch), see(&expected));
        assert_eq!(batch.cursor(), expected.cursor());
        assert_eq!(front.state(), loader.state());
    }
    assert!(matches!(loader.next(PATIENCE).unwrap(), Next::End));
    let (front, loader) = (front.report(), loader.report());
    assert_eq!(
        (front.samples, front.images, front.tokens),
        (loader.samples, loader.images, loader.tokens)
    );
    assert_eq!((front.replaced, front.neutralised), (loader.replaced, loader.neutralised));
}

#[test]
fn a_front_refuses_a_batch_that_is_not_next() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(&source, json!({}));
    let maker = Maker::open(recipe.clone()).unwrap();
    let front = Front::open(recipe, rank(0, 1)).unwrap();
    let batch = maker.make(1, PATIENCE).unwrap().unwrap();
    let error = front.hand_over(batch, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("batch 1 came where Some(0) comes next"), "{error}");
}

#[test]
fn a_batch_that_came_over_broken_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let maker = Maker::open(made(&source, json!({}))).unwrap();
    let batch = maker.make(0, PATIENCE).unwrap().unwrap();
    let short = Box::new(batch.lease()[..1000].to_vec());
    let error = Batch::from_parts(&batch.header(), short).unwrap_err().to_string();
    assert!(error.contains("does not end within its 1000 bytes"), "{error}");
    let header = batch.header().replace("labels", "labours");
    let error =
        Batch::from_parts(&header, Box::new(batch.lease().to_vec())).unwrap_err().to_string();
    assert!(error.contains("no batch has a tensor \"labours\""), "{error}");
}
