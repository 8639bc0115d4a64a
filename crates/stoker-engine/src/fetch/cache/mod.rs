//! The local cache: a folder that keeps what was read from stores, for the next epoch and run.
//!
//! It is an addition and never a condition. What it has is checked as it is read (name, version,
//! length, checksum), and what is not right is taken out and read from the store; what it can't
//! write is counted, and the run goes on. A folder that can't be used is an error when it is opened.
//!
//! Entries are appended to files of some hundred of them, the *segments* ([`segment`]): one writer
//! each, sealed when they are full. Which may be begun, and which go, is decided in [`folder`], by
//! what lies there and by locks that die with their holders. [`known`] has in memory where everything
//! lies. Writing waits in a [`queue`] whose bytes are part of `engine.memory`; reading and writing
//! are done on the `stoker-fetch-io` threads.
//!
//! **What is right.** An object whose version was learned when the data were opened (each shard) is
//! served in that version alone. Of others (images that lines name) nobody tells the version without
//! a request, so they are taken to be what they were.
//!
//! **What is kept.** What came first, until the folder is full; then the cache takes no more, unless
//! it has entries of data that nobody runs with. Epochs go through the data in circles: of a cache that
//! holds a third of them a third of the reads are served, where one that makes room for the newest
//! would serve none.

mod entry;
mod folder;
mod known;
mod queue;
mod segment;
mod serve;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::error::{DatasetError, DatasetErrorKind, Error, Result};
use crate::metrics::{CacheMeter, Metrics};
use crate::recipe;

use super::Room;

pub(super) use serve::{beginning, read};

use entry::{Entry, Name, Version};
use folder::Folder;
use known::{Known, Spot};
use queue::{Item, Next, Offer, Queue};
use segment::{Found, Writer};

/// How long nothing is written after the folder had no room or failed.
const PAUSE: Duration = Duration::from_secs(10);
/// How often a miss has us look for what others have written.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The cache of one fetcher.
#[derive(Debug)]
pub(super) struct Cache {
    folder: Mutex<Option<Arc<Folder>>>,
    largest: u64,
    known: Known,
    queue: Queue,
    writer: Mutex<Option<Writer>>,
    times: Mutex<Times>,
    metrics: Arc<Metrics>,
    /// Longest wait for the disk.
    patience: Duration,
    process: u32,
}

#[derive(Debug)]
struct Times {
    /// Nothing is written until then.
    paused: Option<Instant>,
    /// When the indexes were last looked at.
    looked: Instant,
}

/// Bytes of memory that a cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheMemory {
    /// For what waits to be written.
    pub queue: u64,
    /// For knowing where entries lie.
    pub places: u64,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    name: Name,
    /// The only version that will do.
    version: Option<Version>,
}

impl Cache {
    /// Opens the folder for `data`, and learns what is in it.
    pub(super) fn open(
        room: &Room,
        config: &recipe::Cache,
        data: u64,
        memory: CacheMemory,
    ) -> Result<Self> {
        let metrics = Arc::clone(&room.metrics);
        let opened = Self::at(config, room.pins.scope(data), memory, metrics);
        let opened = opened.map(|cache| Self { patience: room.config.read_timeout, ..cache });
        opened.map_err(|error| unusable(Path::new(&config.path), &error))
    }

    fn at(
        config: &recipe::Cache,
        scope: u64,
        CacheMemory { queue, places }: CacheMemory,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let (folder, evicted) = Folder::open(Path::new(&config.path), config.size, scope)?;
        let known = Known::within(places);
        metrics.fetch.cache.evicted.add(evicted);
        metrics.fetch.cache.damaged.add(known.refresh(&folder)?);
        Ok(Self {
            largest: folder.largest_entry().min(queue),
            folder: Mutex::new(Some(Arc::new(folder))),
            known,
            queue: Queue::new(queue),
            writer: Mutex::default(),
            times: Mutex::new(Times { paused: None, looked: Instant::now() }),
            metrics,
            patience: Duration::MAX,
            process: std::process::id(),
        })
    }

    /// Bytes that may wait to be written.
    pub(super) fn memory(&self) -> u64 {
        self.queue.limit
    }

    /// Writes what waits, as far as that takes no time, and ends.
    pub(super) fn close(self: &Arc<Self>, room: &Room) {
        // A forked child has neither the thread nor the right.
        if self.process == std::process::id() {
            if self.queue.close() && !self.send(room) {
                self.queue.closed();
            }
            let meter = self.meter();
            meter.dropped.add(self.queue.wait(&meter.queued_bytes));
            *lock(&self.folder) = None;
        }
    }

    fn meter(&self) -> &CacheMeter {
        &self.metrics.fetch.cache
    }

    /// Sends a thread for what waits; whether there is one to send.
    fn send(self: &Arc<Self>, room: &Room) -> bool {
        let cache = Arc::clone(self);
        let handle = room.runtime.handle();
        handle.map(|handle| drop(handle.spawn_blocking(move || cache.drain()))).is_ok()
    }

    /// Takes note of what was read from the store, in the version that came.
    fn offer(self: &Arc<Self>, room: &Room, wanted: Wanted, version: Version, bytes: &Bytes) {
        let meter = self.meter();
        let is_other = wanted.version.is_some_and(|wanted| wanted != version);
        if is_other || bytes.len() as u64 > self.largest || self.is_paused() {
            meter.refused.add(1);
            return;
        }
        let item = Item { name: wanted.name, version, bytes: bytes.clone() };
        match self.queue.offer(item, &meter.queued_bytes) {
            Offer::Taken => {}
            // Without a runtime it is closed, and what waits is given up there.
            Offer::First => drop(self.send(room)),
            Offer::Dropped => meter.dropped.add(1),
        }
    }

    fn is_paused(&self) -> bool {
        lock(&self.times).paused.is_some_and(|until| Instant::now() < until)
    }

    fn pause(&self) {
        let mut times = lock(&self.times);
        if times.paused.is_none_or(|until| until <= Instant::now()) {
            times.paused = Some(Instant::now() + PAUSE);
        }
    }

    /// Writes until nothing waits.
    fn drain(&self) {
        let meter = self.meter();
        let end = loop {
            let item = match self.queue.next() {
                Next::Item(item) => item,
                Next::Rest => break false,
                Next::End => break true,
            };
            match self.write(&item) {
                Ok(Some(true)) => {
                    meter.admitted.add(1);
                    meter.admitted_bytes.add(item.bytes.len() as u64);
                }
                // Another has written it.
                Ok(Some(false)) => {}
                Ok(None) => {
                    meter.refused.add(1);
                    self.pause();
                }
                Err(_) => {
                    meter.failed.add(1);
                    self.seal();
                    self.pause();
                }
            }
            self.queue.done(item.bytes.len() as u64, &meter.queued_bytes);
        };
        if end {
            self.seal();
            self.queue.closed();
        }
    }

    /// Writes an entry; `None` if there is no room for it, and false if it is there.
    fn write(&self, item: &Item) -> io::Result<Option<bool>> {
        if self.is_paused() {
            return Ok(None);
        }
        if self.known.find(item.name).is_some() {
            return Ok(Some(false));
        }
        if self.known.is_full() {
            return Ok(None);
        }
        let Some(folder) = lock(&self.folder).clone() else { return Ok(None) };
        let mut writer = lock(&self.writer);
        let length = item.bytes.len() as u64;
        if !writer.as_ref().is_some_and(|writer| writer.has_room(length)) {
            let full = writer.take();
            full.map_or(Ok(()), finish)?;
            let reserved = folder.reserve(Entry::cost(length), &|id| self.known.hits(id))?;
            self.meter().evicted.add(reserved.evicted);
            // Others may have begun some too, and some may be gone.
            self.look(&folder)?;
            let Some(files) = reserved.files else { return Ok(None) };
            *writer = Some(Writer::new(files));
        }
        let Some(writer) = &mut *writer else { return Ok(None) };
        let entry = writer.append(item.name, item.version, &item.bytes)?;
        self.known.insert(writer.id(), &entry);
        Ok(Some(true))
    }

    /// Ends the segment that is written to. If that fails it is as if we had been killed.
    fn seal(&self) {
        if let Some(writer) = lock(&self.writer).take()
            && writer.seal().is_err()
        {
            self.meter().failed.add(1);
        }
    }

    /// Learns what others have written.
    fn look(&self, folder: &Folder) -> io::Result<()> {
        lock(&self.times).looked = Instant::now();
        self.meter().damaged.add(self.known.refresh(folder)?);
        Ok(())
    }

    /// Has the indexes looked at, if that was long ago.
    fn look_soon(self: &Arc<Self>, room: &Room) {
        let mut times = lock(&self.times);
        if times.looked.elapsed() < LOOK_EVERY {
            return;
        }
        times.looked = Instant::now();
        drop(times);
        let (cache, folder) = (Arc::clone(self), lock(&self.folder).clone());
        if let (Some(folder), Ok(handle)) = (folder, room.runtime.handle()) {
            drop(handle.spawn_blocking(move || {
                if cache.look(&folder).is_err() {
                    cache.meter().failed.add(1);
                }
            }));
        }
    }

    /// The first `most` bytes of an entry, if it is there and whole.
    async fn take(
        self: &Arc<Self>,
        room: &Room,
        wanted: Wanted,
        spot: Spot,
        most: u64,
    ) -> Result<Option<Bytes>> {
        let (cache, patience) = (Arc::clone(self), self.patience);
        let reading = room.there(async move {
            let reading = spawn_blocking(move || cache.take_now(wanted, spot, most));
            tokio::time::timeout(patience, reading).await
        });
        if let Ok(Ok(found)) = reading.await? {
            return Ok(found);
        }
        // The disk does not answer.
        self.meter().failed.add(1);
        Ok(None)
    }

    fn take_now(&self, wanted: Wanted, spot: Spot, most: u64) -> Option<Bytes> {
        let Wanted { name, version } = wanted;
        let folder = lock(&self.folder).clone()?;
        let data = folder.data(spot.segment);
        let meter = self.meter();
        match segment::read(&data, (name, version), (spot.offset, spot.length), most) {
            Ok(Found::Whole(bytes)) => {
                self.known.served(spot);
                meter.hits.add(1);
                meter.hit_bytes.add(bytes.len() as u64);
                return Some(bytes);
            }
            Ok(Found::Damaged) => {
                meter.damaged.add(1);
                if segment::remove(&folder.index(spot.segment), name, spot.offset).is_err() {
                    meter.failed.add(1);
                }
            }
            Ok(Found::Gone) => {}
            // It may be there for the next one who asks.
            Err(_) => {
                meter.failed.add(1);
                return None;
            }
        }
        self.known.forget(name, spot);
        None
    }
}

/// Ends a segment that is full, and has it reach the disk when that has time.
fn finish(writer: Writer) -> io::Result<()> {
    let files = writer.seal()?;
    drop(spawn_blocking(move || {
        // What does not reach the disk is found damaged when it is read.
        drop(files.data.sync_data().and_then(|()| files.index.sync_data()));
    }));
    Ok(())
}

fn unusable(path: &Path, error: &io::Error) -> Error {
    let reason = format!("the cache can't be used: {error}");
    let hint = "fetch.cache.path names its folder: mend that, name another on a local disk, or leave \
                fetch.cache out";
    let (kind, hint) = (DatasetErrorKind::Disk, Some(hint.to_owned()));
    let uri = path.display().to_string();
    Error::Dataset(DatasetError { kind, line: None, reason, hint, uri })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
