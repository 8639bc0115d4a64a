//! The addresses behind a store's name, each with its share of the connections.
//!
//! S3 answers with up to eight of its many addresses, for a few seconds. Whoever always takes the first
//! leaves the load on one machine of theirs, and whoever asks for each connection anew may get the same
//! one again. So names are asked for again every few seconds, what was answered in the last minutes is
//! remembered, and each connection goes to the next of these addresses. One that can't be connected to
//! is left aside for a while, unless there is no other.
//!
//! A connection is given one address of the family that the system prefers, so that it is known which
//! one failed, and one of the other family, if there is one, for machines that can't reach the first.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

/// How long an answer is good for: that is how long S3's are.
const FRESH: Duration = Duration::from_secs(5);
/// How long an address is used after the last answer that had it.
const KEPT: Duration = Duration::from_mins(5);
/// How long an address is left aside that can't be connected to.
const ASIDE: Duration = Duration::from_mins(1);
/// How long a name server may take where something is known.
const PATIENCE: Duration = Duration::from_secs(1);
/// Addresses of one name that are remembered.
const MOST: usize = 64;

/// Connections that take longer count as failed if they are given up.
const SLOW: Duration = Duration::from_secs(1);

/// Whom a connection was told to go to.
type Given = Arc<Mutex<Option<(String, IpAddr)>>>;

tokio::task_local! {
    static GIVEN: Given;
}

type Found = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names.
#[derive(Clone)]
pub(super) struct Names {
    known: Arc<Mutex<HashMap<String, Known>>>,
    /// Held by whoever asks about a name of which nothing is known: the others wait for it.
    asking: Arc<tokio::sync::Mutex<()>>,
    look_up: Arc<dyn Fn(String) -> Found + Send + Sync>,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Known {
    /// In the order in which they were first met.
    addresses: Vec<Address>,
    asked: Option<Instant>,
    /// How many connections there were.
    turn: usize,
}

#[derive(Debug)]
struct Address {
    ip: IpAddr,
    answered: Instant,
    failed: Option<Instant>,
}

impl Default for Names {
    /// As the system resolves them.
    fn default() -> Self {
        Self::asking(|name| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((name, 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            })
        })
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Names {
    fn asking(look_up: impl Fn(String) -> Found + Send + Sync + 'static) -> Self {
        Self { known: Arc::default(), asking: Arc::default(), look_up: Arc::new(look_up) }
    }

    /// The addresses for one connection, the one to try first in front.
    async fn next(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        if self.is_unknown(name) {
            let _turn = self.asking.lock().await;
            // Somebody else may have asked meanwhile.
            if self.is_unknown(name) {
                self.ask(name).await?;
            }
        } else if self.is_due(name, Instant::now()) {
            // Without an answer it goes on with what is known.
            drop(tokio::time::timeout(PATIENCE, self.ask(name)).await);
        }
        Ok(self.of(name, |known| known.next(Instant::now())))
    }

    async fn ask(&self, name: &str) -> io::Result<()> {
        let found = (self.look_up)(name.to_owned()).await?;
        self.of(name, |known| known.learn(found, Instant::now()));
        Ok(())
    }

    fn is_unknown(&self, name: &str) -> bool {
        self.of(name, |known| known.addresses.is_empty())
    }

    /// Whether to ask again. Who is told so, does; nobody else is, for a while.
    fn is_due(&self, name: &str, now: Instant) -> bool {
        self.of(name, |known| {
            let due = known.asked.is_none_or(|asked| now.duration_since(asked) >= FRESH);
            if due {
                known.asked = Some(now);
            }
            due
        })
    }

    /// Leaves an address aside.
    fn failed(&self, name: &str, address: IpAddr) {
        self.of(name, |known| known.fail(address, Instant::now()));
    }

    /// What is known of a name.
    fn of<T>(&self, name: &str, with: impl FnOnce(&mut Known) -> T) -> T {
        let mut names = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        with(names.entry(name.to_owned()).or_insert_with(Known::begun_anywhere))
    }
}

impl Known {
    /// Many processes start at the same time, and each begins with another address.
    fn begun_anywhere() -> Self {
        let turn = RandomState::new().hash_one(0) as usize % MOST;
        Self { turn, ..Self::default() }
    }

    fn learn(&mut self, found: Vec<IpAddr>, now: Instant) {
        self.asked = Some(now);
        for address in found {
            match self.addresses.iter_mut().find(|known| known.ip == address) {
                Some(known) => known.answered = now,
                None => self.addresses.push(Address { ip: address, answered: now, failed: None }),
            }
        }
        self.addresses.retain(|known| now.duration_since(known.answered) < KEPT);
        let surplus = self.addresses.len().saturating_sub(MOST);
        self.addresses.drain(..surplus);
    }

    fn fail(&mut self, address: IpAddr, now: Instant) {
        if let Some(known) = self.addresses.iter_mut().find(|known| known.ip == address) {
            known.failed = Some(now);
        }
    }

    fn next(&mut self, now: Instant) -> Vec<IpAddr> {
        self.turn += 1;
        let preferred = self.addresses.first().map(|known| known.ip.is_ipv4());
        let (first, other): (Vec<_>, Vec<_>) =
            self.addresses.iter().partition(|known| Some(known.ip.is_ipv4()) == preferred);
        [first, other].iter().filter_map(|family| self.one_of(family, now)).collect()
    }

    /// The one whose turn it is among those that did not fail of late, or among all.
    fn one_of(&self, family: &[&Address], now: Instant) -> Option<IpAddr> {
        let failed =
            |known: &Address| known.failed.is_some_and(|at| now.duration_since(at) < ASIDE);
        let sound: Vec<_> = family.iter().filter(|known| !failed(known)).collect();
        let all = family.iter();
        let from = if sound.is_empty() { all.collect() } else { sound };
        let count = from.len().max(1);
        from.get(self.turn % count).map(|known| known.ip)
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let names = self.clone();
        Box::pin(async move {
            let addresses = names.next(name.as_str()).await?;
            if let Some(first) = addresses.first() {
                let given = (name.as_str().to_owned(), *first);
                // Somebody who is not connecting needs not be told.
                GIVEN.try_with(|it| *lock(it) = Some(given)).unwrap_or_default();
            }
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

/// Tells [`Names`] which connections failed.
#[derive(Clone, Debug)]
pub(super) struct Watched(pub(super) Names);

/// A connector that is watched.
#[derive(Clone, Debug)]
pub(super) struct Connecting<S> {
    inner: S,
    names: Names,
}

impl<S> Layer<S> for Watched {
    type Service = Connecting<S>;

    fn layer(&self, inner: S) -> Connecting<S> {
        Connecting { inner, names: self.0.clone() }
    }
}

impl<S, R> Service<R> for Connecting<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connecting = self.inner.call(request);
        let given = Given::default();
        let told = Arc::clone(&given);
        let watch = Watch { names: self.names.clone(), given, since: Instant::now(), end: None };
        Box::pin(GIVEN.scope(told, async move {
            // All of it, so that it is dropped with the connection.
            let mut watch = watch;
            let connected = connecting.await;
            watch.end = Some(connected.is_ok());
            connected
        }))
    }
}

/// A connection in the making. One that is given up early says nothing of its address; one that
/// is given up for its time does.
struct Watch {
    names: Names,
    given: Given,
    since: Instant,
    /// Whether it is there, once that is known.
    end: Option<bool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let is_there = self.end.unwrap_or_else(|| self.since.elapsed() < SLOW);
        if !is_there && let Some((name, address)) = lock(&self.given).take() {
            self.names.failed(&name, address);
        }
    }
}

fn lock(given: &Given) -> MutexGuard<'_, Option<(String, IpAddr)>> {
    given.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
