//! A running loader, seen from outside while it runs: over HTTP where the recipe asks for it
//! (`http`), and by `stoker top` on the same machine with nothing asked for (`socket`).
//!
//! Both are tasks on the fetch thread. They only read what is counted anyway, so nobody who looks
//! can hold up the engine, and they end with that thread when the loader is closed. Who reads slowly
//! is cut off after some seconds, and only so many are served at once.

mod http;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(not(target_os = "linux"))]
#[path = "live/no_socket.rs"]
mod socket;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket2::SockRef;

use crate::engine::Rooms;
use crate::error::Result;
use crate::metrics::{Metrics, Report};
use crate::sample::Rank;

pub use socket::{Name, running};

/// How long somebody may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long nobody is let in after the system refused to: mostly as no descriptor is left.
const PAUSE: Duration = Duration::from_millis(200);

/// A loader at some moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Glance {
    /// The process that it is in.
    pub pid: u32,
    /// Which rank it feeds, from 0.
    pub rank: u32,
    /// Of how many.
    pub world_size: u32,
    /// Seconds since it was opened.
    pub age_seconds: f64,
    /// Where its data come from, shortened.
    pub source: String,
    /// Where it is read over HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// What it has done since it was opened.
    pub report: Report,
}

/// What lets a loader be seen.
#[derive(Debug)]
pub(super) struct Live {
    address: Option<SocketAddr>,
}

impl Live {
    /// Begins to listen, until the rooms' fetcher is closed. That no socket of this machine can be
    /// had is no reason not to load; that the address which the recipe names can't be had is one.
    pub(super) fn start(rooms: &Rooms, rank: Rank) -> Result<Self> {
        let engine = &rooms.recipe.engine;
        let ranks_here = engine.local_world_size.unwrap_or(1);
        let http = engine.metrics.map(|address| http::listen(address, ranks_here)).transpose()?;
        let address = http.as_ref().and_then(|listener| listener.local_addr().ok());
        let watched = Arc::new(Watched {
            metrics: Arc::clone(&rooms.metrics),
            rank,
            opened: Instant::now(),
            source: rooms.recipe.sources(),
            address,
        });
        if let Some(listener) = http {
            drop(rooms.fetcher.spawn(http::serve(listener, Arc::clone(&watched))));
        }
        if let Some(listener) = socket::listen() {
            drop(rooms.fetcher.spawn(socket::serve(listener, watched)));
        }
        Ok(Self { address })
    }

    /// Where it is read over HTTP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

/// What there is to see. It does not hold the fetcher, whose thread holds it.
struct Watched {
    metrics: Arc<Metrics>,
    rank: Rank,
    opened: Instant,
    source: String,
    address: Option<SocketAddr>,
}

impl Watched {
    fn glance(&self) -> Glance {
        Glance {
            pid: std::process::id(),
            rank: self.rank.index,
            world_size: self.rank.of,
            age_seconds: self.opened.elapsed().as_secs_f64(),
            source: self.source.clone(),
            metrics: self.address,
            report: self.metrics.report(),
        }
    }
}

/// A listening socket. A child that was forked has it too, and closing it here would leave it open
/// there, with nobody to answer: so it is shut, which is true for all.
struct Ending<L: AsFd>(L);

impl<L: AsFd> Drop for Ending<L> {
    fn drop(&mut self) {
        // What is not listening any more need not be shut.
        SockRef::from(&self.0).shutdown(std::net::Shutdown::Both).unwrap_or_default();
    }
}
