//! The server: a listener on a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use s3s::service::S3Service;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

use crate::backend::Backend;
use crate::faults::{Faults, InvalidFaults, Script, connection};
use crate::issuer::Issuer;
use crate::profile::Profile;
use crate::service;
use crate::shaping::{Line, Shaping};

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; by default a free port of the loopback device.
    pub address: SocketAddr,
    /// How long requests take.
    pub profile: Profile,
    /// Chooses the draws of the profile.
    pub seed: u64,
    /// The one key pair that may sign requests.
    pub credentials: Credentials,
    /// Who gives out credentials that end, besides that pair.
    pub issuer: Option<Arc<Issuer>>,
    /// Whether unsigned requests are served too.
    pub unsigned: bool,
    /// How long each answer is held back, in place of the profile's draws: to tell a store's wait
    /// from all else in a measurement.
    pub first_byte: Option<Duration>,
    /// Bytes per second of each response, in place of the profile's.
    pub rate: Option<u64>,
    /// Bytes per second of all responses together.
    pub total_bandwidth: Option<u64>,
    /// What goes wrong.
    pub faults: Faults,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            profile: Profile::None,
            seed: 0,
            credentials: Credentials::default(),
            issuer: None,
            unsigned: false,
            first_byte: None,
            rate: None,
            total_bandwidth: None,
            faults: Faults::default(),
        }
    }
}

/// A key pair. The default one is public and protects nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: String,
}

impl Default for Credentials {
    fn default() -> Self {
        Self { access_key_id: "stoker".to_owned(), secret_access_key: "stoker-secret".to_owned() }
    }
}

/// The server could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The faults can't be made.
    #[error(transparent)]
    Faults(#[from] InvalidFaults),
    /// An object can't be stored.
    #[error("can't store {bucket}/{key}: {source}")]
    Put {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Why.
        source: io::Error,
    },
}

/// What the server did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests of any kind, refused ones included.
    pub requests: u64,
    /// Bytes of objects sent.
    pub bytes: u64,
    /// Most object reads at the same time, from their arrival to their last byte.
    pub peak_in_flight: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    in_flight: AtomicU64,
    peak_in_flight: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// One read in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Counters>);

impl InFlight {
    pub(crate) fn begin(counters: &Arc<Counters>) -> Self {
        let now = counters.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        counters.peak_in_flight.fetch_max(now, Ordering::Relaxed);
        Self(Arc::clone(counters))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running server; it stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    backend: Arc<Backend>,
    counters: Arc<Counters>,
    script: Arc<Script>,
    shaping: Arc<Shaping>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server. It answers as soon as this returns.
    pub fn start(config: &Config, backend: Backend) -> Result<Self, Error> {
        let address = config.address;
        let script = Arc::new(Script::new(&config.faults)?);
        let failed = |source| Error::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let backend = Arc::new(backend);
        let counters = Arc::new(Counters::default());
        let shaping = Arc::new(Shaping::new(config));
        let store = service::Store {
            backend: Arc::clone(&backend),
            shaping: Arc::clone(&shaping),
            line: config.total_bandwidth.map(|bandwidth| Arc::new(Line::new(bandwidth))),
            counters: Arc::clone(&counters),
        };
        let service = store.serve(&config.credentials, config.issuer.as_deref(), config.unsigned);
        let (stop, stopped) = oneshot::channel();
        let (counted, shared) = (Arc::clone(&counters), Arc::clone(&script));
        let thread = thread::Builder::new()
            .name("stoker-s3".to_owned())
            .spawn(move || {
                // Whatever ends the wait, a message or the server's drop, ends the server; the
                // runtime's drop then cuts all connections.
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = accept(listener, service, counted, shared) => {}
                    }
                });
            })
            .map_err(failed)?;
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(Self { address, backend, counters, script, shaping, stop, thread })
    }

    /// The address for clients, such as `http://127.0.0.1:41234`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stores an object without the detour over HTTP; its bucket is made if it is new.
    pub fn put(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) -> Result<(), Error> {
        let stored = self
            .backend
            .create_bucket(bucket)
            .and_then(|()| self.backend.put(bucket, key, bytes.into()));
        stored.map(drop).map_err(|source| Error::Put {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            source,
        })
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        Stats {
            requests: self.counters.requests.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            peak_in_flight: self.counters.peak_in_flight.load(Ordering::Relaxed),
        }
    }

    /// Has other things go wrong from now on. The counts of faults begin anew, and so do the numbers
    /// of requests that rules go by.
    pub fn set_faults(&self, faults: &Faults) -> Result<(), Error> {
        self.script.set(faults).map_err(Error::Faults)
    }

    /// Has the latencies of another profile from now on: a store that becomes slow as a whole.
    pub fn set_profile(&self, profile: Profile) {
        self.shaping.set_profile(profile);
    }

    /// How often each fault happened, by its [name](crate::Fault::name), since these faults were
    /// set. Those that no rule names are `slow-down` (the throttle), `close-after` (a connection's
    /// last request) and `idle-close`.
    pub fn injected(&self) -> BTreeMap<String, u64> {
        self.script.injector().injected()
    }

    /// Serves until the process ends: what a command does after it has started a server.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_default();
        }
    }

    /// Stops at once: open connections are cut.
    pub fn close(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_default();
        }
    }
}

async fn accept(
    listener: std::net::TcpListener,
    service: S3Service,
    counters: Arc<Counters>,
    script: Arc<Script>,
) {
    let Ok(address) = listener.local_addr() else { return };
    let Ok(mut listener) = TcpListener::from_std(listener) else { return };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (script, counters) = (Arc::clone(&script), Arc::clone(&counters));
                    let count = move || {
                        counters.requests.fetch_add(1, Ordering::Relaxed);
                    };
                    tokio::spawn(connection(stream, service.clone(), script, count));
                }
                // Accepting fails for one connection (reset) or for want of descriptors: go on, but
                // not in a busy loop.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            lasts = script.refusal() => {
                drop(listener);
                script.refused();
                tokio::time::sleep(lasts).await;
                listener = loop {
                    match TcpListener::bind(address).await {
                        Ok(listener) => break listener,
                        Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                };
            }
        }
    }
}
