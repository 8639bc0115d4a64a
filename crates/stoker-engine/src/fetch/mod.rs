//! Room `fetch`: bytes.
//!
//! [`Fetcher`] reads objects from S3 and what speaks its protocol, from GCS, Azure, HTTP(S) and
//! local files. `object_store` finds credentials and signs; the requests are our own, as what
//! matters for training lies in them: raw keys as the store has them, one count of attempts, bodies
//! that resume at the byte where they broke off, and memory that is asked for before a body is read.
//!
//! All I/O happens on one named thread with a small tokio runtime, started at the first use and
//! shared by all clones. It ends with the last clone or with [`Fetcher::close`], whatever is in
//! flight. A process that was forked off gets [`Error::Stopped`] rather than a hang.

mod address;
mod attempt;
mod cache;
mod checksum;
mod client;
mod cloud;
mod congestion;
mod credentials;
mod descriptors;
mod door;
mod environment;
mod failure;
mod file;
mod flight;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod headers;
mod hedge;
mod joint;
mod lateness;
mod list;
mod look;
mod names;
mod opened;
mod pins;
mod quota;
mod random;
mod read;
mod reader;
mod refusal;
mod request;
mod room;
mod runtime;
mod s3;
mod send;
mod slots;
mod split;
mod store;
mod traffic;
mod watch;

#[cfg(test)]
mod simulation;

use std::fmt;
use std::future::{Future, ready};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::task::JoinHandle;

pub use cache::CacheMemory;
pub use door::{Credentials, Door, Greeting, Pace};
pub use environment::Environment;
pub use joint::Joint;
pub use reader::Reader;
pub use slots::Urgency;

use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::recipe;
use crate::sample::{Extent, Location};

use cache::Cache;
use random::Chance;
use room::Room;
use runtime::Runtime;
use store::Opener;

/// Reads objects. Clones share its thread, its connections and its limits.
#[derive(Clone)]
pub struct Fetcher {
    room: Arc<Room>,
    urgency: Urgency,
}

/// What a store knows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Bytes.
    pub size: u64,
    /// Entity tag, or a file's modification time as text.
    pub version: Option<String>,
}

impl Fetcher {
    /// A fetcher with the credentials that this process's environment leads to; its thread starts
    /// at the first use.
    pub fn new(config: &recipe::Fetch, metrics: Arc<Metrics>) -> Result<Self> {
        Self::with_environment(config, metrics, Environment::of_process())
    }

    /// A fetcher with the credentials that another environment leads to.
    pub fn with_environment(
        config: &recipe::Fetch,
        metrics: Arc<Metrics>,
        environment: Environment,
    ) -> Result<Self> {
        let opener = Opener::new(config, environment, Arc::clone(&metrics));
        Ok(Self::of(Room::new(config, metrics, Runtime::default(), opener, Chance::default())))
    }

    /// One that sends no second requests, to measure what they gain.
    #[cfg(feature = "testing")]
    pub fn unhedged(config: &recipe::Fetch, metrics: Arc<Metrics>) -> Result<Self> {
        let opener = Opener::new(config, Environment::of_process(), Arc::clone(&metrics));
        let room = Room::new(config, metrics, Runtime::default(), opener, Chance::default());
        Ok(Self::of(Room { hedged: false, ..room }))
    }

    fn of(room: Room) -> Self {
        Self { room: Arc::new(room), urgency: Urgency::NOW }
    }

    /// The same fetcher, for reads that are needed for what `urgency` says; without it, at once.
    #[must_use]
    pub fn at(&self, urgency: impl Into<Urgency>) -> Self {
        Self { room: Arc::clone(&self.room), urgency: urgency.into() }
    }

    /// Opens the local cache, if the recipe names one; until then nothing is kept, so that the one
    /// pass in which an index is built leaves nothing behind. `data` is the identity of the data that
    /// are read from now on.
    pub fn open_cache(&self, data: u64, memory: CacheMemory) -> Result<()> {
        if let Some(config) = &self.room.config.cache {
            let cache = Cache::open(&self.room, config, data, memory)?;
            self.room.cache.get_or_init(|| Arc::new(cache));
        }
        Ok(())
    }

    /// How long late reads take, of late: what is brought in ahead should last as long.
    pub fn lateness(&self) -> std::time::Duration {
        self.room.lateness.of_late()
    }

    /// Bytes that the local cache may hold in memory of what it is to write.
    pub fn cache_memory(&self) -> u64 {
        self.room.cache.get().map_or(0, |cache| cache.memory())
    }

    /// Size and version. Awaited anywhere; the I/O is done on the fetch thread.
    pub async fn stat(&self, object: &Location) -> Result<ObjectInfo> {
        look::stat(&self.room, self.urgency, object).await
    }

    /// Reads an extent; `admit` is told the size before the body is read, and may wait or refuse.
    ///
    /// Awaited anywhere; the I/O is done on the fetch thread. Where the size is not known from the
    /// extent, it is known from the answer's headers; if `admit` is not ready then, the answer is
    /// dropped and the object asked for again afterwards, so that no connection waits for memory.
    /// A server that does not tell the size (plain HTTP only) is taken to send
    /// [`UNTOLD`](Self::UNTOLD) bytes, and refused if it sends more.
    pub async fn read<F, W>(&self, extent: &Extent, admit: F) -> Result<Bytes>
    where
        F: Fn(u64) -> W,
        W: Future<Output = Result<()>>,
    {
        match self.room.cache.get() {
            Some(cache) => cache::read(self, cache, extent, admit).await,
            None => self.read_store(extent, admit).await.map(|(bytes, _)| bytes),
        }
    }

    /// Reads an extent from its store, whatever the cache has; tells which version it was.
    async fn read_store<F, W>(&self, extent: &Extent, admit: F) -> Result<(Bytes, Option<String>)>
    where
        F: Fn(u64) -> W,
        W: Future<Output = Result<()>>,
    {
        read::read(&self.room, self.urgency, extent, None, admit).await
    }

    /// Reads the first bytes of an extent, `most` of them at most, and tells the size of all of it
    /// ([`UNTOLD`](Self::UNTOLD) where the server does not), with one request. Nothing comes from a
    /// server that does not know ranges and whose object is larger (plain HTTP only).
    pub async fn beginning(&self, extent: &Extent, most: u64) -> Result<(Bytes, u64)> {
        if let Some(cache) = self.room.cache.get()
            && let Some(found) = cache::beginning(&self.room, cache, extent, most).await?
        {
            return Ok(found);
        }
        let Extent { object, range } = extent;
        let Some(range) = range else {
            return look::beginning(&self.room, self.urgency, object, most).await;
        };
        let size = range.end.saturating_sub(range.start);
        let range = Some(range.start..range.start + size.min(most));
        let part = Extent { object: Arc::clone(object), range };
        let (bytes, _) = self.read_store(&part, |_| ready(Ok(()))).await?;
        Ok((bytes, size))
    }

    /// Bytes that an object of untold size is taken to have.
    pub const UNTOLD: u64 = 16 << 20;

    /// The same from a thread that is not the runtime's.
    pub fn read_blocking(&self, extent: &Extent) -> Result<Bytes> {
        let (fetcher, extent) = (self.clone(), extent.clone());
        self.block(async move { fetcher.read(&extent, |_| ready(Ok(()))).await })
    }

    /// Which of some extents of objects (of some there may be none) one request should bring
    /// together, since they lie near each other: each is in at most one joint, and those that are
    /// in none are read by themselves. A joint has at most `most` bytes. With a local cache there are
    /// none: it keeps what was read, and what joints are is another thing in the next epoch.
    pub fn joints(&self, extents: &[Option<Extent>], most: u64) -> Vec<Joint> {
        if self.room.cache.get().is_some() {
            return Vec::new();
        }
        joint::joints(extents, most, |object| self.room.traffic(object).gap())
    }

    /// Size and version from a thread that is not the runtime's.
    pub fn stat_blocking(&self, object: &Location) -> Result<ObjectInfo> {
        let (fetcher, object) = (self.clone(), object.clone());
        self.block(async move { fetcher.stat(&object).await })
    }

    /// Size and version of many objects, in their order, from a thread that is not the runtime's.
    pub fn stat_all_blocking(&self, objects: &[Arc<Location>]) -> Result<Vec<ObjectInfo>> {
        let (fetcher, objects) = (self.clone(), objects.to_vec());
        self.block(async move {
            // As many as may be in flight: more would only wait in a queue of their own.
            let at_once = fetcher.room.config.concurrency.max(1) as usize;
            let found = objects.into_iter().map(|object| {
                let fetcher = fetcher.clone();
                async move { fetcher.stat(&object).await }
            });
            stream::iter(found).buffered(at_once).try_collect().await
        })
    }

    /// All objects of a bucket or container whose keys begin as the key of `prefix` does, with
    /// their sizes and versions, from a thread that is not the runtime's.
    pub fn list_blocking(&self, prefix: &Location) -> Result<Vec<(Location, ObjectInfo)>> {
        let (fetcher, prefix) = (self.clone(), prefix.clone());
        let urgency = self.urgency;
        let found = self.block(async move { list::list(&fetcher.room, urgency, &prefix).await })?;
        for (object, info) in &found {
            self.room.pins.set(&Arc::new(object.clone()), info);
        }
        Ok(found)
    }

    /// Reads a whole object from front to back with bounded memory (large ranges, one ahead).
    ///
    /// An object that changes meanwhile is an error. Errors of the reader carry an [`Error`].
    pub fn reader(&self, object: &Arc<Location>) -> Result<Reader> {
        Reader::open(self, object)
    }

    /// Runs a future on the runtime; dropping the handle does not stop it.
    ///
    /// A future that owns a `Fetcher` keeps the thread alive: end it, or call [`Self::close`].
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.room.runtime.spawn(future)
    }

    /// Ends the thread and everything in flight, for all clones: their calls return
    /// [`Error::Stopped`] from now on.
    pub fn close(&self) {
        if let Some(cache) = self.room.cache.get() {
            cache.close(&self.room);
        }
        self.room.slots.close();
        self.room.runtime.close();
        self.room.traffic.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Waits on this thread for a future on the fetch thread.
    fn block<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if self.room.runtime.is_here() {
            return Err(Error::Bug("a blocking read on the fetch thread".to_owned()));
        }
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.room.runtime.handle()?.spawn(async move {
            // The receiver waits just below.
            drop(sender.send(future.await));
        });
        // The sender is gone without a word only if the runtime is.
        receiver.recv().unwrap_or(Err(Error::Stopped))
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("config", &self.room.config).finish_non_exhaustive()
    }
}
