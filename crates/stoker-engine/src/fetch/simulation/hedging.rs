//! What second requests gain, for answers that are late and bodies that stop, and that a store which is
//! slow as a whole gets none.

use std::future::ready;

use futures::stream::{self, StreamExt};

use super::store::Fault;
use super::*;
use crate::sample::Extent;

/// Reads so many objects of 300 KB, some at a time, from that number on; seconds from the first
/// request to the last byte, and what they would have been without a second one.
async fn read(world: &World, from: u64, count: u64, at_once: usize) -> (Vec<f64>, Vec<f64>) {
    let reads = stream::iter(from..from + count).map(async |number| {
        let key = number * 4_000_000 + 300_000;
        let extent = Extent { object: object(key), range: None };
        let bytes = world.fetcher.read(&extent, |_| ready(Ok(()))).await.unwrap();
        assert_eq!(bytes.len(), 300_000);
        let (first, alone) = world.store.first(key).unwrap();
        (first.elapsed().as_secs_f64(), alone)
    });
    let (mut with, mut without): (Vec<_>, Vec<_>) = reads.buffer_unordered(at_once).unzip().await;
    with.sort_by(f64::total_cmp);
    without.sort_by(f64::total_cmp);
    (with, without)
}

fn p99(sorted: &[f64]) -> f64 {
    sorted[sorted.len() * 99 / 100]
}

#[test]
fn the_slowest_of_a_hundred_take_half_as_long_for_one_request_in_twenty_more() {
    for (seed, at_once) in [(1, 16), (2, 60), (3, 200)] {
        let weather = Weather::fair(Profile::Standard);
        world(seed, &recipe::Fetch::default(), weather, async |world| {
            read(&world, 0, 1000, at_once).await;
            let (with, without) = read(&world, 1000, 20_000, at_once).await;
            let (requests, hedges) = (world.store.asked(), world.metrics.fetch.hedges.get());
            let (with, without) = (p99(&with), p99(&without));
            println!("{at_once} at once: p99 {with:.3} s for {without:.3} s, {hedges} hedges");
            assert!((0.25..0.30).contains(&without), "the profile: {without}");
            assert!(with <= 0.5 * without, "{with} {without}");
            assert!(requests <= 21_000 * 105 / 100, "{requests}");
            assert!(world.metrics.fetch.hedges_won.get() > hedges / 2, "{hedges}");
            assert_eq!(world.metrics.fetch.retries.get(), 0);
        });
    }
}

#[test]
fn a_store_that_becomes_slow_as_a_whole_is_not_asked_twice() {
    for times in [3.0, 10.0] {
        let weather = Weather::fair(Profile::Standard);
        world(5, &recipe::Fetch::default(), weather, async |world| {
            read(&world, 0, 3000, 60).await;
            world.store.weather.lock().unwrap().profile = Profile::Slower(times);
            let before = world.metrics.fetch.hedges.get();
            read(&world, 3000, 1000, 60).await;
            let second = world.metrics.fetch.hedges.get() - before;
            assert!(second <= 20, "{times}: {second}");
            // When that has become usual, its tail is cut too.
            read(&world, 4000, 6000, 60).await;
            let before = world.metrics.fetch.hedges.get();
            read(&world, 10_000, 2000, 60).await;
            let second = world.metrics.fetch.hedges.get() - before;
            assert!((40..=120).contains(&second), "{times}: {second}");
        });
    }
}

#[test]
fn large_reads_are_not_repeated_for_a_late_first_byte() {
    let weather = Weather::fair(Profile::Standard);
    world(9, &recipe::Fetch::default(), weather, async |world| {
        let reads = stream::iter(0..500).map(async |number| {
            let object = object(number * 4_000_000 + 3_000_000);
            let extent = Extent { object, range: Some(0..3_000_000) };
            world.fetcher.read(&extent, |_| ready(Ok(()))).await.unwrap();
        });
        reads.buffer_unordered(32).collect::<Vec<_>>().await;
        assert_eq!((world.metrics.fetch.hedges.get(), world.store.asked()), (0, 500));
    });
}

/// Those that read ahead read in bursts: of many bodies that begin at once so many stop at once, and
/// those of the last burst when nothing else is read any more.
#[test]
fn bodies_that_stop_cost_far_less_than_the_read_timeout_also_many_at_once() {
    let (share_of_faults, faults) = (0.05, vec![Fault::Stall]);
    let weather = Weather { share_of_faults, faults, ..Weather::fair(Profile::Standard) };
    for seed in 0..20 {
        world(seed, &recipe::Fetch::default(), weather.clone(), async |world| {
            let mut from = 0;
            for burst in [400, 400, 8, 400] {
                let (with, _) = read(&world, from, burst, 64).await;
                from += burst;
                let latest = with.last().unwrap();
                assert!(*latest < 6.0, "seed {seed}, before {from}: {latest} s");
            }
            let stalls = world.metrics.fetch.stalls.get();
            assert_eq!(world.metrics.fetch.retries.get(), stalls);
            assert!((30..120).contains(&stalls), "{stalls}");
        });
    }
}

/// One object that always comes slowly, among others that do not: it is asked for again some times, and
/// then borne.
#[test]
fn an_object_that_always_comes_slowly_is_read_though_the_store_is_well() {
    world(4, &recipe::Fetch::default(), Weather::fair(Profile::Standard), async |world| {
        read(&world, 0, 2000, 16).await;
        let slow = 5000 * 4_000_000 + 300_000;
        world.store.slow_down(slow);
        let extent = Extent { object: object(slow), range: None };
        let one = world.fetcher.read(&extent, |_| ready(Ok(())));
        let (bytes, _) = tokio::join!(one, read(&world, 10_000, 20_000, 16));
        assert_eq!(bytes.unwrap().len(), 300_000);
        assert_eq!(world.metrics.fetch.retries.get(), 4);
    });
}

/// Half the bodies pause for some seconds, whoever asks: to ask again would be of no use.
#[test]
fn a_store_of_which_bodies_pause_is_asked_again_for_few() {
    let (share_of_faults, faults) = (0.5, vec![Fault::Pause]);
    let weather = Weather { share_of_faults, faults, ..Weather::fair(Profile::Standard) };
    world(3, &recipe::Fetch::default(), weather, async |world| {
        read(&world, 0, 2000, 64).await;
        let asked = world.store.asked();
        assert!(asked <= 2200, "{asked}");
    });
}
