use futures::FutureExt;

use super::*;

fn take(budget: &Arc<Budget>, batch: u64, bytes: u64) -> Option<Result<Permit>> {
    budget.take(batch, bytes).now_or_never()
}

fn budget(limit: u64) -> Arc<Budget> {
    Budget::new(limit, Arc::default())
}

#[test]
fn permits_stay_under_the_limit_and_come_back() {
    let budget = budget(100);
    let first = take(&budget, 0, 60).unwrap().unwrap();
    let second = take(&budget, 1, 40).unwrap().unwrap();
    assert!(take(&budget, 1, 1).is_none());
    drop(second);
    let mut third = take(&budget, 1, 40).unwrap().unwrap();
    third.shrink(10);
    take(&budget, 1, 30).unwrap().unwrap();
    drop((first, third));
    assert_eq!(budget.metrics.compressed_bytes.get(), 0);
    assert_eq!(budget.metrics.compressed_bytes.peak(), 100);
}

#[test]
fn an_early_batch_goes_before_later_ones() {
    let budget = budget(100);
    budget.set_head(1);
    let held = take(&budget, 1, 90).unwrap().unwrap();
    let mut late = Box::pin(budget.take(3, 20));
    assert!(late.as_mut().now_or_never().is_none());
    let mut early = Box::pin(budget.take(2, 50));
    assert!(early.as_mut().now_or_never().is_none());
    drop(held);
    assert!(early.as_mut().now_or_never().is_some());
    assert!(late.as_mut().now_or_never().is_some());
}

#[test]
fn the_head_is_never_starved() {
    let budget = budget(100);
    let _late = take(&budget, 5, 100).unwrap().unwrap();
    assert!(take(&budget, 1, 1).is_none(), "batch 0 is the head");
    take(&budget, 0, 100).expect("the head gets its permit at once").unwrap();
    budget.set_head(1);
    take(&budget, 1, 1).expect("now batch 1 is the head").unwrap();
}

#[test]
fn what_needs_more_than_everything_is_named() {
    let budget = budget(100);
    let need = |permit: &mut Permit, bytes| permit.need(bytes, || format!("{bytes} bytes"));
    let mut first = take(&budget, 0, 60).unwrap().unwrap();
    need(&mut first, 60).unwrap();
    let mut second = take(&budget, 0, 30).unwrap().unwrap();
    let error = need(&mut second, 50).unwrap_err().to_string();
    assert!(error.contains("50 bytes needs 110 B, and the limit is 100 B"), "{error}");
    assert!(error.contains("raise engine.memory"), "{error}");
}

#[test]
fn one_who_stops_waiting_leaves_no_trace() {
    let budget = budget(100);
    let held = take(&budget, 0, 100).unwrap().unwrap();
    assert!(take(&budget, 3, 10).is_none());
    drop(held);
    let state = budget.lock();
    assert_eq!((state.used, state.waiting.len(), state.needed.len()), (0, 0, 0));
}

#[test]
fn a_guess_that_is_too_large_refuses_nothing() {
    let budget = budget(100);
    let mut permits: Vec<_> =
        (0..10).map(|_| take(&budget, 0, 60).expect("batch 0 is the head").unwrap()).collect();
    for permit in &mut permits {
        permit.need(9, String::new).unwrap();
        permit.shrink(9);
    }
    assert_eq!(budget.lock().used, 90);
    drop(permits);
    let state = budget.lock();
    assert_eq!((state.used, state.needed.len()), (0, 0));
}

#[test]
fn one_who_stops_waiting_lets_the_next_one_through() {
    let budget = budget(100);
    let _held = take(&budget, 1, 60).unwrap().unwrap();
    let mut large = Box::pin(budget.take(2, 50));
    assert!(large.as_mut().now_or_never().is_none());
    let mut small = Box::pin(budget.take(3, 40));
    assert!(small.as_mut().now_or_never().is_none(), "it stands behind the large one");
    drop(large);
    assert!(small.as_mut().now_or_never().is_some());
}
