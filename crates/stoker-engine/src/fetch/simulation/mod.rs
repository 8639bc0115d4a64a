//! The whole room under a clock that jumps, against a store in memory: no socket, no thread, all
//! chance from one seed. What happens in hours here takes milliseconds, and happens again with the
//! same seed.
//!
//! A read that would hang is seen: when nothing moves, the clock jumps to the end of the world.

mod body;
mod faults;
mod hedging;
mod store;
mod tail;

use std::sync::Arc;

use object_store::client::HttpClient;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Duration, timeout};

use super::random::Chance;
use super::runtime::Runtime;
use super::store::Opener;
use super::{Fetcher, Room};
use crate::metrics::Metrics;
use crate::recipe;
use crate::sample::{Location, Scheme};

use store::{Profile, SimStore, Weather};

/// When a world ends in which nothing moves any more.
const END: Duration = Duration::from_hours(24 * 365);

/// A fetcher before a store.
struct World {
    fetcher: Fetcher,
    metrics: Arc<Metrics>,
    store: Arc<SimStore>,
    chance: Chance,
}

/// Runs a world of that seed to its end.
fn world<T>(
    seed: u64,
    config: &recipe::Fetch,
    weather: Weather,
    life: impl AsyncFnOnce(World) -> T,
) -> T {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (metrics, store) = (Arc::<Metrics>::default(), SimStore::new(seed, weather));
        let config = recipe::Fetch {
            endpoint: Some("http://store".into()),
            anonymous: true,
            ..config.clone()
        };
        let client = HttpClient::new(store::Door(Arc::clone(&store)));
        let (runtime, opener) = (Runtime::lent(Handle::current()), Opener::lent(&config, client));
        let chance = Chance::seeded(seed ^ 1);
        let room = Room::new(&config, Arc::clone(&metrics), runtime, opener, chance);
        let fetcher = Fetcher::of(room);
        let world = World { fetcher, metrics, store, chance: Chance::seeded(seed ^ 2) };
        let ended = timeout(END, life(world)).await;
        ended.unwrap_or_else(|_| panic!("seed {seed}: a read waits for ever"))
    })
}

fn object(key: u64) -> Arc<Location> {
    let (authority, key) = ("bucket".to_owned(), key.to_string());
    Arc::new(Location { scheme: Scheme::S3, authority, key })
}

impl Chance {
    /// A whole number below that one.
    fn below(&self, limit: u64) -> u64 {
        ((self.share() * limit as f64) as u64).min(limit - 1)
    }

    fn seconds(&self, most: f64) -> Duration {
        Duration::from_secs_f64(self.share() * most)
    }

    fn choose<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
