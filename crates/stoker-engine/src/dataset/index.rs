//! The index of a dataset: those of its shards, one after the other.
//!
//! What is held in memory is some hundred bytes a shard, whatever the number of rows. Missing
//! indexes are built by a few threads at once; each is whole when its shard was read, so a run that
//! was broken off goes on with the shards that are left. Shards that can't be used don't keep the
//! others from being indexed: all of them are named in the end.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::build::{Progress, Source, build, no_samples};
use super::mds::Columns;
use super::sidecar::{Place, Sidecar};
use super::turn::Turn;
use super::writer::sweep;
use super::{Store, failure};
use crate::error::{DatasetError, DatasetErrorKind, Error, Result, files_allowed, too_many_files};
use crate::sample::Location;

/// Shards that are indexed at once. Each holds two ranges of 8 MiB in flight; together they fill a
/// network card.
const BUILDERS: usize = 8;
/// How often the progress is told while shards are indexed.
const TOLD_EVERY: Duration = Duration::from_millis(50);
/// Most index files that are open at once.
const OPEN: usize = 128;
/// Up to so many bytes the bodies of all indexes are checked when they are opened; of larger ones
/// each is checked when its shard is first used.
const CHECKED: u64 = 256 << 20;
/// Unusable shards that an error names.
const NAMED: usize = 10;

/// A shard with its index.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) location: Arc<Location>,
    /// What its rows are read from: the shard, or what was taken out of it.
    pub(super) data: Arc<Location>,
    pub(super) sidecar: Sidecar,
    /// What its rows are made of, where another file says so.
    pub(super) columns: Option<Arc<Columns>>,
    is_checked: AtomicBool,
}

/// The shards of a dataset with their indexes.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) parts: Vec<Part>,
    /// The first row of each shard, and at the end the number of all.
    begins: Vec<u64>,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    open: HashMap<usize, Arc<File>>,
    order: VecDeque<usize>,
}

impl Index {
    /// Opens the indexes of all shards (at least one), and builds those that are missing or unsound.
    pub(super) fn open(
        store: &(impl Store + Sync),
        sources: Vec<Source>,
        index_dir: Option<&str>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let places = sources.iter().map(|source| source.places(index_dir));
        let places = places.collect::<Result<Vec<_>>>()?;
        let mut found: Vec<Option<Found>> = sources.iter().map(|_| None).collect();
        let mut is_checked = find_missing(&sources, &places, &mut found);
        if found.iter().any(Option::is_none) {
            let total = sources[0].total;
            let keys = sources.iter().map(Source::key);
            let _turn = Turn::take(&places[0], keys, &mut || progress(0, total));
            let folders: BTreeSet<&Path> = places.iter().map(|it| it[0].folder.as_path()).collect();
            folders.into_iter().for_each(sweep);
            // Somebody else may have built it meanwhile.
            is_checked &= find_missing(&sources, &places, &mut found);
            build_missing(store, &sources, &places, &mut found, progress)?;
        }
        let rows: u64 = found.iter().flatten().map(|(sidecar, _)| sidecar.header.rows).sum();
        if rows == 0 {
            return Err(no_samples(sources[0].location.shown()));
        }
        let (mut parts, mut files) = (Vec::new(), Files::default());
        for (shard, (source, found)) in sources.into_iter().zip(found).enumerate() {
            let (sidecar, file) = found.expect("it was found or built");
            let data = match &sidecar.lines {
                Some(path) => Arc::new(Location::of_file(path)),
                None => Arc::clone(&source.location),
            };
            if let Some(file) = file {
                files.keep(shard, Arc::new(file));
            }
            let is_checked = AtomicBool::new(is_checked);
            let Source { location, columns, .. } = source;
            parts.push(Part { location, data, sidecar, columns, is_checked });
        }
        Ok(Self::of(parts, files))
    }

    fn of(parts: Vec<Part>, files: Files) -> Self {
        let mut begins = vec![0];
        let mut rows = 0;
        for part in &parts {
            rows += part.sidecar.header.rows;
            begins.push(rows);
        }
        Self { parts, begins, files: Mutex::new(files) }
    }

    pub(super) fn rows(&self) -> u64 {
        self.begins[self.parts.len()]
    }

    /// The shard that a row stands in, and its number there.
    pub(super) fn place(&self, row: u64) -> Option<(usize, u64)> {
        if row >= self.rows() {
            return None;
        }
        // Of shards that begin at the same row, the last is the one that is not empty.
        let shard = self.begins.partition_point(|begin| *begin <= row) - 1;
        Some((shard, row - self.begins[shard]))
    }

    /// The first row of each shard, and the number of all rows.
    pub(super) fn begins(&self) -> &[u64] {
        &self.begins
    }

    /// The index file of a shard.
    pub(super) fn file(&self, shard: usize) -> io::Result<Arc<File>> {
        let lock = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = lock().open.get(&shard) {
            return Ok(Arc::clone(file));
        }
        let part = &self.parts[shard];
        let open = || {
            if part.is_checked.load(Ordering::Relaxed) {
                part.sidecar.open()
            } else {
                part.sidecar.open_sound()
            }
        };
        let file = open().or_else(|error| {
            // The other files can be opened again; a row that can't be read would count as bad.
            too_many_files(&error).ok_or(error)?;
            *lock() = Files::default();
            open()
        })?;
        part.is_checked.store(true, Ordering::Relaxed);
        let file = Arc::new(file);
        lock().keep(shard, Arc::clone(&file));
        Ok(file)
    }
}

impl Files {
    fn keep(&mut self, shard: usize, file: Arc<File>) {
        if self.open.insert(shard, file).is_none() {
            self.order.push_back(shard);
        }
        if self.order.len() > most_open()
            && let Some(oldest) = self.order.pop_front()
        {
            self.open.remove(&oldest);
        }
    }
}

/// An index, and its file if it stays open: a few do, so that a job keeps the index that it began
/// with.
type Found = (Sidecar, Option<File>);

/// Of each dataset; few where the process may have few files open, as there may be many datasets.
fn most_open() -> usize {
    const SHARE: u64 = 32;
    files_allowed().map_or(OPEN, |allowed| OPEN.min(allowed.div_ceil(SHARE) as usize))
}

/// Looks for the indexes that were not found yet; whether those that were are known to be sound.
fn find_missing(sources: &[Source], places: &[Vec<Place>], found: &mut [Option<Found>]) -> bool {
    let kept = |(sidecar, file)| (sidecar, Some(file).filter(|_| sources.len() <= most_open()));
    let missing = (0..sources.len()).filter(|shard| found[*shard].is_none());
    let missing: Vec<usize> = missing.collect();
    for &shard in &missing {
        let source = &sources[shard];
        found[shard] = Sidecar::find(&places[shard], source.kind(), source.key()).map(kept);
    }
    let bytes: u64 = found.iter().flatten().map(|(sidecar, _)| sidecar.bytes).sum();
    let is_checked = bytes <= CHECKED;
    if is_checked {
        for shard in missing {
            found[shard].take_if(|found| !is_sound(found));
        }
    }
    is_checked
}

fn is_sound((sidecar, file): &Found) -> bool {
    let sound = match file {
        Some(file) => sidecar.is_sound(file),
        None => sidecar.open().and_then(|file| sidecar.is_sound(&file)),
    };
    sound.is_ok_and(|sound| sound)
}

/// Builds what is not there, a few at a time.
fn build_missing(
    store: &(impl Store + Sync),
    sources: &[Source],
    places: &[Vec<Place>],
    found: &mut [Option<Found>],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let missing = (0..sources.len()).filter(|shard| found[*shard].is_none());
    let builders = Builders {
        sources,
        places,
        missing: missing.collect(),
        next: AtomicUsize::new(0),
        so_far: Arc::default(),
    };
    let count = builders.missing.len().min(BUILDERS);
    if count == 0 {
        return Ok(());
    }
    std::thread::scope(|scope| {
        let (sender, results) = sync_channel(BUILDERS);
        for number in 0..count {
            let (sender, builders) = (sender.clone(), &builders);
            let name = format!("stoker-index-{number}");
            let work = move || builders.work(store, &sender);
            let started = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, work);
            if let Err(error) = started {
                builders.so_far.stopped.store(true, Ordering::Relaxed);
                return Err(Error::no_thread(&name, &error));
            }
        }
        drop(sender);
        builders.gather(&results, found, progress)
    })
}

/// What a builder sends: a shard, and what became of it.
type Built = (usize, Result<(Sidecar, File)>);

/// The builders and what they share.
struct Builders<'a> {
    sources: &'a [Source],
    places: &'a [Vec<Place>],
    missing: Vec<usize>,
    /// Place in `missing` of the next shard to take.
    next: AtomicUsize,
    so_far: Arc<Progress>,
}

impl Builders<'_> {
    /// Builds one shard after the other, as long as there are any.
    fn work(&self, store: &impl Store, sender: &SyncSender<Built>) {
        while !self.so_far.stopped.load(Ordering::Relaxed)
            && let Some(&shard) = self.missing.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            let (source, places) = (&self.sources[shard], &self.places[shard]);
            let may_be_empty = self.sources.len() > 1;
            let built = catch_unwind(AssertUnwindSafe(|| {
                build(store, source, places, &self.so_far, may_be_empty)
            }));
            let built = built.unwrap_or_else(|_| Err(panicked(source)));
            if sender.send((shard, built)).is_err() {
                return;
            }
        }
    }

    /// Takes what is built until all is, and tells how far that is. What is wrong with shards is
    /// told in the end; anything else stops all builders.
    fn gather(
        &self,
        results: &Receiver<Built>,
        found: &mut [Option<Found>],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let total: u64 = self.sources.iter().map(|source| source.info.size).sum();
        let left: u64 = self.missing.iter().map(|shard| self.sources[*shard].info.size).sum();
        let (mut failed, mut stop) = (Vec::new(), None);
        loop {
            let (shard, built) = match results.recv_timeout(TOLD_EVERY) {
                Ok(built) => built,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let read = self.so_far.bytes.load(Ordering::Relaxed).min(left);
                    progress(total - left + read, total);
                    continue;
                }
            };
            match built {
                Ok((sidecar, file)) => {
                    let is_kept = self.sources.len() <= OPEN;
                    found[shard] = Some((sidecar, Some(file).filter(|_| is_kept)));
                }
                Err(Error::Dataset(error)) if error.kind == DatasetErrorKind::Data => {
                    failed.push((shard, error));
                }
                Err(error) => {
                    self.so_far.stopped.store(true, Ordering::Relaxed);
                    stop.get_or_insert(error);
                }
            }
        }
        if let Some(error) = stop {
            return Err(error);
        }
        failed.sort_by_key(|(shard, _)| *shard);
        refuse(failed, self.sources.len())?;
        progress(total, total);
        Ok(())
    }
}

/// What is said of a shard whose reader panicked.
fn panicked(source: &Source) -> Error {
    let reason = "a bug in stoker, met by this shard: its reader panicked";
    failure(source.location.shown(), reason, Some("please report it with the shard"))
}

/// One error for all shards that can't be used.
fn refuse(mut failed: Vec<(usize, DatasetError)>, shards: usize) -> Result<()> {
    let count = failed.len();
    if count <= 1 {
        return failed.pop().map_or(Ok(()), |(_, error)| Err(Error::Dataset(error)));
    }
    let named = failed.iter().take(NAMED).map(|(_, error)| Error::Dataset(error.clone()));
    let named: Vec<String> = named.map(|error| error.to_string()).collect();
    let uri = failed[0].1.uri.clone();
    let reason = format!(
        "{count} of {shards} shards can't be used, the first of them:\n  {}\nbeginning with",
        named.join("\n  ")
    );
    let (kind, line, hint) = (DatasetErrorKind::Data, None, None);
    Err(Error::Dataset(DatasetError { kind, line, reason, hint, uri }))
}
