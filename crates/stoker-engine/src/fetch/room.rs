//! What all clones of a fetcher share: its thread, its stores, and what is known of them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::Result;
use crate::metrics::Metrics;
use crate::recipe;
use crate::sample::{Location, Scheme};

use super::cache::Cache;
use super::descriptors;
use super::failure::{Failure, Tries};
use super::flight::Limits;
use super::lateness::Lateness;
use super::pins::Pins;
use super::random::Chance;
use super::runtime::{Aborting, Runtime};
use super::slots::Slots;
use super::store::{Opener, Store};
use super::traffic::Traffic;

pub(super) struct Room {
    pub(super) config: recipe::Fetch,
    pub(super) metrics: Arc<Metrics>,
    pub(super) runtime: Runtime,
    pub(super) opener: Opener,
    pub(super) stores: Mutex<HashMap<(Scheme, String), Arc<Store>>>,
    /// Requests that may be in flight, what is needed soonest first.
    pub(super) slots: Arc<Slots>,
    /// What is known of each store while it is read from.
    pub(super) traffic: Mutex<HashMap<(Scheme, String), Arc<Traffic>>>,
    pub(super) lanes: AtomicU64,
    pub(super) chance: Chance,
    /// Whether late requests are sent a second time; not so in some measurements.
    pub(super) hedged: bool,
    /// Open from [`Fetcher::open_cache`](super::Fetcher::open_cache) on.
    pub(super) cache: OnceLock<Arc<Cache>>,
    pub(super) pins: Pins,
    pub(super) lateness: Lateness,
}

/// Stores that are known at once, beyond those in use: data may name any number of web servers.
const KNOWN_STORES: usize = 256;

impl Room {
    pub(super) fn new(
        config: &recipe::Fetch,
        metrics: Arc<Metrics>,
        runtime: Runtime,
        opener: Opener,
        chance: Chance,
    ) -> Self {
        Self {
            config: config.clone(),
            slots: Slots::new(descriptors::requests(config.concurrency), Arc::clone(&metrics)),
            metrics,
            runtime,
            opener,
            stores: Mutex::default(),
            traffic: Mutex::default(),
            lanes: AtomicU64::new(0),
            chance,
            hedged: true,
            cache: OnceLock::new(),
            pins: Pins::default(),
            lateness: Lateness::default(),
        }
    }

    /// Awaits a future that is run on the fetch thread, and stopped if this one is dropped.
    pub(super) async fn there<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        Aborting(self.runtime.handle()?.spawn(future)).await
    }

    /// How long the next attempt may take.
    pub(super) fn limits(&self, tries: &mut Tries<'_>) -> Limits {
        let recipe::Fetch { read_timeout: silence, deadline, attempts, .. } = self.config;
        // So that all attempts take half the time, if each of them drips.
        let patience = deadline / (2 * attempts.max(1));
        Limits { silence, until: tries.until(), patience, is_early: tries.are_early() }
    }

    /// What is known of the store of an object.
    pub(super) fn traffic(&self, object: &Location) -> Arc<Traffic> {
        let key = (object.scheme, object.authority.clone());
        let mut known = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > KNOWN_STORES && !known.contains_key(&key) {
            known.retain(|_, traffic| Arc::strong_count(traffic) > 1);
        }
        let begin = || {
            let lane = self.lanes.fetch_add(1, Ordering::Relaxed);
            let (slots, metrics) = (Arc::clone(&self.slots), Arc::clone(&self.metrics));
            Arc::new(Traffic::new(lane, self.config.concurrency, slots, metrics))
        };
        // Nothing is kept behind the end: the gauges are at zero.
        if self.slots.is_closed() {
            begin()
        } else {
            known.entry(key).or_insert_with(begin).clone()
        }
    }

    /// The store of an object, made at its first use.
    pub(super) fn store(&self, object: &Location) -> Result<Arc<Store>, Failure> {
        // Servers of the web are all asked in the same way, and data may name any number of them.
        let is_web = matches!(object.scheme, Scheme::Http | Scheme::Https);
        let authority = if is_web { String::new() } else { object.authority.clone() };
        let key = (object.scheme, authority);
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(&key) {
            return Ok(Arc::clone(store));
        }
        let store = Arc::new(self.opener.open(object)?);
        stores.insert(key, Arc::clone(&store));
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::environment::Environment;

    #[test]
    fn data_that_name_many_web_servers_leave_one_store_for_each_kind() {
        let (config, metrics) = (recipe::Fetch::default(), Arc::<Metrics>::default());
        let opener = Opener::new(&config, Environment::default(), Arc::clone(&metrics));
        let room = Room::new(&config, metrics, Runtime::default(), opener, Chance::default());
        for number in 0..1000 {
            for scheme in ["http", "https"] {
                let object = format!("{scheme}://{number}.example/a.jpg");
                room.store(&Location::parse(&object).unwrap()).unwrap();
            }
        }
        assert_eq!(room.stores.lock().unwrap().len(), 2);
    }
}
