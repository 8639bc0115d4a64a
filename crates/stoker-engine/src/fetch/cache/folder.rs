//! The folder of a cache: who may write how much, and what goes to make room.
//!
//! Nothing is remembered outside of the files, so nothing can be wrong after a crash. What the
//! folder holds is what its segments may grow to, added up under the folder's lock whenever one is
//! begun. All locks are `flock`s: the kernel gives them back when a process dies, however it does,
//! and they are seen across containers that do not see each other's processes.
//!
//! - `lock` is held, for an instant, by whoever begins a segment or deletes one.
//! - `<scope>.run` is held, shared, by all who run with that data (the *scope*).
//! - `<id>.index` is held by the one who writes to that segment.
//!
//! Room is made of segments whose scope nobody runs with. Those of living scopes stay: training goes
//! through its data in circles, and whoever evicts for it deletes what is wanted soonest.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::entry::{Header, SLOT};

/// The part of the user's folder that is ours; another format gets another name.
const OURS: &str = "stoker-cache-1";
/// A segment is so large a part of the cache: few enough to be listed, small enough to be missed.
const PART: u64 = 64;
/// Largest segment, unless one entry is larger: what is lost at once.
const LARGEST: u64 = 1 << 30;
/// How long to wait for the folder's lock, which is held for milliseconds: at the start, and in
/// between, where those who write can wait for the next occasion.
const AT_START: Duration = Duration::from_secs(5);
const IN_BETWEEN: Duration = Duration::from_millis(200);

/// The folder, held open by one loader.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    limit: u64,
    scope: u64,
    /// Says that the scope is alive.
    _run: File,
}

/// The files of a segment that is ours to write.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) id: u64,
    /// Locked.
    pub(super) index: File,
    pub(super) data: File,
    pub(super) header: Header,
}

/// What came of asking for room.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// `None` if there is no room that may be had.
    pub(super) files: Option<Files>,
    /// Entries that had to go.
    pub(super) evicted: u64,
}

/// A segment as it is found.
#[derive(Debug)]
struct Found {
    id: u64,
    header: Header,
    /// Entries, those included that are damaged.
    entries: u64,
    /// What it has or may grow to.
    bytes: u64,
    /// Whether somebody writes to it.
    is_written: bool,
    changed: SystemTime,
}

impl Folder {
    /// Opens a folder, makes it if need be, and leaves it tidy and within its limit.
    pub(super) fn open(path: &Path, limit: u64, scope: u64) -> io::Result<(Self, u64)> {
        let path = path.join(OURS);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let _guard = lock(&path, AT_START)?;
        let run = private().create(true).truncate(false).open(run_file(&path, scope))?;
        // Holds against those who look whether the scope is alive: they have the folder's lock.
        run.try_lock_shared().map_err(io::Error::from)?;
        // A full disk or a broken one shows now, and the time of the file is that of the last run.
        run.write_all_at(&scope.to_le_bytes(), 0)?;
        run.sync_data()?;
        let folder = Self { path, limit, scope, _run: run };
        let mut found = folder.survey()?;
        let evicted = folder.make_room(&mut found, 0, &|_| 0, true)?;
        folder.forget_scopes(&found)?;
        Ok((folder, evicted))
    }

    /// The largest entry that is taken: one must not push out all others.
    pub(super) fn largest_entry(&self) -> u64 {
        (self.limit / 8).min(u32::MAX.into())
    }

    pub(super) fn index(&self, id: u64) -> PathBuf {
        self.path.join(format!("{id:016x}.index"))
    }

    pub(super) fn data(&self, id: u64) -> PathBuf {
        self.path.join(format!("{id:016x}.data"))
    }

    /// The segments that there are, sorted.
    pub(super) fn ids(&self) -> io::Result<Vec<u64>> {
        let names = self.names()?.into_iter().filter(|(_, kind)| kind == "index");
        let mut ids: Vec<u64> = names.map(|(id, _)| id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Begins a segment with room for `least` bytes at least; `hits` says how often a segment
    /// served us.
    pub(super) fn reserve(&self, least: u64, hits: &dyn Fn(u64) -> u64) -> io::Result<Reserved> {
        let _guard = lock(&self.path, IN_BETWEEN)?;
        let least = least + SLOT;
        let usual = (self.limit / PART).min(LARGEST);
        let wanted = usual.max(least);
        let mut found = self.survey()?;
        let evicted = self.make_room(&mut found, wanted, hits, false)?;
        let used: u64 = found.iter().map(|segment| segment.bytes).sum();
        let capacity = self.limit.saturating_sub(used).min(wanted);
        if capacity < least.max(usual / 8) {
            return Ok(Reserved { files: None, evicted });
        }
        let header = Header { scope: self.scope, capacity, sealed: false };
        Ok(Reserved { files: Some(self.create(header)?), evicted })
    }

    fn create(&self, header: Header) -> io::Result<Files> {
        let id = RandomState::new().hash_one(std::process::id());
        // The index comes first and goes first: data without one are what a killed process left.
        let index = private().create_new(true).open(self.index(id))?;
        index.try_lock().map_err(io::Error::from)?;
        index.write_all_at(&header.to_bytes(), 0)?;
        let data = private().create_new(true).open(self.data(id))?;
        Ok(Files { id, index, data, header })
    }

    /// All segments. What the dead have left is sealed as it is, or removed where it is nothing.
    /// The folder's lock is held.
    fn survey(&self) -> io::Result<Vec<Found>> {
        let names = self.names()?;
        let mut found = Vec::new();
        for (id, _) in names.iter().filter(|(_, kind)| kind == "index") {
            if let Some(segment) = self.look_at(*id)? {
                found.push(segment);
            }
        }
        for (id, _) in names.iter().filter(|(_, kind)| kind == "data") {
            if !names.iter().any(|(other, kind)| other == id && kind == "index") {
                remove(&self.data(*id))?;
            }
        }
        Ok(found)
    }

    fn look_at(&self, id: u64) -> io::Result<Option<Found>> {
        let index = private().open(self.index(id))?;
        let about = index.metadata()?;
        let data = match fs::metadata(self.data(id)) {
            Ok(data) => Some(data.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let bytes = about.len() + data.unwrap_or(0);
        let mut slot = [0; SLOT as usize];
        let header =
            index.read_exact_at(&mut slot, 0).ok().and_then(|()| Header::from_bytes(&slot));
        let is_written = match header {
            Some(header) if header.sealed => false,
            _ => !is_free(&index)?,
        };
        let header = match header.filter(|_| is_written || data.is_some()) {
            Some(header) => header,
            // Damaged while it is written to, and mended when it is sealed: nobody knows how far it
            // may grow, so there is no room until then.
            None if is_written => Header { scope: self.scope, capacity: self.limit, sealed: false },
            None => {
                self.remove(id)?;
                return Ok(None);
            }
        };
        if !header.sealed && !is_written {
            let header = Header { capacity: bytes, sealed: true, ..header };
            index.write_all_at(&header.to_bytes(), 0)?;
        }
        let bytes = if is_written { header.capacity.max(bytes) } else { bytes };
        let entries = (about.len() / SLOT).saturating_sub(1);
        Ok(Some(Found { id, header, entries, bytes, is_written, changed: about.modified()? }))
    }

    /// Deletes segments until `wanted` bytes more have room, as far as that may be. `all`: those of
    /// living scopes too, as the limit was lowered. Returns how many entries went.
    fn make_room(
        &self,
        found: &mut Vec<Found>,
        wanted: u64,
        hits: &dyn Fn(u64) -> u64,
        all: bool,
    ) -> io::Result<u64> {
        let mut used: u64 = found.iter().map(|segment| segment.bytes).sum();
        let unknown = |one: &Found| one.is_written && one.bytes >= self.limit;
        if used + wanted <= self.limit || found.iter().any(unknown) {
            return Ok(0);
        }
        let mut scopes = HashMap::new();
        for segment in &*found {
            let scope = segment.header.scope;
            scopes.entry(scope).or_insert_with(|| self.scope_of(scope));
        }
        let may_go = |segment: &Found| {
            !segment.is_written && (all || !scopes[&segment.header.scope].is_alive)
        };
        // What serves nobody first; the data that was not run for longest; what serves least. The
        // last in line goes first.
        let order = |segment: &Found| {
            let scope = &scopes[&segment.header.scope];
            let hits = hits(segment.id);
            Reverse((!may_go(segment), scope.is_alive, hits > 0, scope.last, hits, segment.changed))
        };
        found.sort_by_cached_key(order);
        let mut evicted = 0;
        while used + wanted > self.limit {
            let Some(last) = found.pop_if(|segment| may_go(segment)) else { break };
            self.remove(last.id)?;
            used -= last.bytes;
            evicted += last.entries;
        }
        Ok(evicted)
    }

    fn scope_of(&self, scope: u64) -> Scope {
        let path = run_file(&self.path, scope);
        let (mut is_alive, mut last) = (scope == self.scope, UNIX_EPOCH);
        if let Ok(file) = File::open(path) {
            is_alive = is_alive || !is_free(&file).unwrap_or(false);
            last = file.metadata().and_then(|about| about.modified()).unwrap_or(last);
        }
        Scope { is_alive, last }
    }

    /// Removes the files of scopes that nobody runs with and nothing is kept of.
    fn forget_scopes(&self, found: &[Found]) -> io::Result<()> {
        for (scope, _) in self.names()?.into_iter().filter(|(_, kind)| kind == "run") {
            let is_kept = found.iter().any(|segment| segment.header.scope == scope);
            if !is_kept && !self.scope_of(scope).is_alive {
                remove(&run_file(&self.path, scope))?;
            }
        }
        Ok(())
    }

    fn remove(&self, id: u64) -> io::Result<()> {
        remove(&self.index(id))?;
        remove(&self.data(id))
    }

    /// Our files, as number and kind; whatever else lies there is none of our business.
    fn names(&self) -> io::Result<Vec<(u64, String)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.split_once('.'));
            let Some((id, kind)) = name.filter(|(id, _)| id.len() == 16) else { continue };
            if let Ok(id) = u64::from_str_radix(id, 16) {
                names.push((id, kind.to_owned()));
            }
        }
        Ok(names)
    }
}

/// Data that entries were written for.
struct Scope {
    is_alive: bool,
    /// When it was last run with.
    last: SystemTime,
}

fn run_file(folder: &Path, scope: u64) -> PathBuf {
    folder.join(format!("{scope:016x}.run"))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// The folder's lock, until it is dropped.
fn lock(folder: &Path, patience: Duration) -> io::Result<File> {
    let file = private().create(true).truncate(false).open(folder.join("lock"))?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if since.elapsed() < patience => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => {
                let reason = "another process holds the folder's lock and does not go on";
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Whether nobody holds a file. If so we hold it, until it is closed.
fn is_free(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
