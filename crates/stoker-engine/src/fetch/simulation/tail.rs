//! How many requests a store is sent at once, found out in worlds whose answer is known.

use std::future::ready;

use futures::stream::{self, StreamExt};
use tokio::time::Instant;

use super::store::Fault;
use super::*;
use crate::sample::Extent;

/// Reads objects of 100 KB, as many at a time as may be; how many a second.
async fn rate(world: &World, from: u64, count: u64) -> f64 {
    let begin = Instant::now();
    let reads = stream::iter(from..from + count).map(async |number| {
        let extent = Extent { object: object(number * 4_000_000 + 100_000), range: None };
        world.fetcher.read(&extent, |_| ready(Ok(()))).await.unwrap();
    });
    reads.buffer_unordered(1000).collect::<Vec<_>>().await;
    count as f64 / begin.elapsed().as_secs_f64()
}

#[test]
fn a_slow_tail_is_not_taken_for_congestion() {
    let weather = Weather::fair(Profile::Standard);
    for (seed, concurrency) in [(1, 64), (2, 256), (3, 8)] {
        let config = recipe::Fetch { concurrency, ..recipe::Fetch::default() };
        world(seed, &config, weather.clone(), async |world| {
            rate(&world, 0, 2000).await;
            let then = rate(&world, 2000, 60_000).await;
            assert_eq!(world.metrics.fetch.limit.get(), u64::from(concurrency));
            assert_eq!(world.metrics.fetch.limit.peak(), u64::from(concurrency));
            // A request takes 41 ms in the mean, and a little less as late ones are repeated.
            let most = f64::from(concurrency) / 0.041;
            assert!(then > 0.95 * most, "{concurrency}: {then} of {most} a second");
        });
    }
}

#[test]
fn a_store_that_throttles_is_sent_about_what_it_bears() {
    for most in [300.0, 800.0] {
        let weather = Weather { most: Some(most), ..Weather::fair(Profile::Standard) };
        let config = recipe::Fetch { attempts: 100, ..recipe::Fetch::default() };
        world(4, &config, weather, async |world| {
            rate(&world, 0, 4000).await;
            let (asked, throttled) = (world.store.asked(), world.metrics.fetch.throttled.get());
            let rate = rate(&world, 4000, 20_000).await;
            let asked = (world.store.asked() - asked) as f64;
            let throttled = (world.metrics.fetch.throttled.get() - throttled) as f64;
            println!("{most}: {rate:.0} a second, {:.3} of {asked} refused", throttled / asked);
            assert!(rate > 0.75 * most, "{rate} of {most} a second");
            assert!(throttled < 0.2 * asked, "{throttled} of {asked} refused");
        });
    }
}

/// One in twenty says that it is busy, however few are asked: that is no reason to ask fewer.
#[test]
fn a_few_busy_answers_cost_little() {
    let (share_of_faults, faults) = (0.05, vec![Fault::Status(503, false)]);
    let weather = Weather { share_of_faults, faults, ..Weather::fair(Profile::Standard) };
    world(5, &recipe::Fetch::default(), weather, async |world| {
        let rate = rate(&world, 0, 20_000).await;
        assert!(rate > 0.67 * 64.0 / 0.041, "{rate}");
    });
}

/// The store is four times slower from some moment on, whatever it is sent: half the requests would
/// give half the rate.
#[test]
fn a_store_that_becomes_slower_by_itself_keeps_its_requests() {
    let weather = Weather::fair(Profile::Standard);
    world(6, &recipe::Fetch::default(), weather, async |world| {
        rate(&world, 0, 5000).await;
        world.store.weather.lock().unwrap().profile = Profile::Slower(4.0);
        rate(&world, 5000, 2000).await;
        let rate = rate(&world, 7000, 10_000).await;
        assert!(rate > 0.9 * 64.0 / (4.0 * 0.041), "{rate}");
    });
}
