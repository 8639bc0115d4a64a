//! What is known to lie in a cache: 24 bytes an entry in memory, learned from the indexes. As many are
//! known as there is memory for; of others nothing is served, and no more are written then.
//!
//! Others write while we read, so the indexes are looked at again now and then, each from where we
//! left off. A slot that makes no sense yet may be one that is being written; it is damaged only if
//! there is a sound one behind it, or the segment is sealed.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::entry::{Entry, Header, Name, SLOT, Slot};
use super::folder::Folder;

/// Slots that are read at once.
const AT_ONCE: usize = 4096;

/// Bytes that an entry takes in the table, at most: half of it is empty after it grew, and while it
/// grows there are two.
const COST: u64 = 80;

/// The entries that are known.
#[derive(Debug, Default)]
pub(super) struct Known {
    state: Mutex<State>,
    /// How far each index was read; held by whoever reads them.
    progress: Mutex<HashMap<u64, Progress>>,
}

#[derive(Debug, Default)]
struct State {
    /// How many there may be.
    most: usize,
    entries: HashMap<u64, Place>,
    segments: Vec<Segment>,
    numbers: HashMap<u64, u32>,
}

#[derive(Debug)]
struct Segment {
    id: u64,
    /// How often it served us.
    hits: u64,
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    segment: u32,
    offset: u32,
    length: u32,
}

/// Where an entry lies, for those who read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Bytes of the index behind which we have not looked.
    read: u64,
    /// Whether it does not grow any more.
    done: bool,
}

impl Known {
    /// As much as that many bytes of memory hold.
    pub(super) fn within(bytes: u64) -> Self {
        let most = usize::try_from(bytes / COST).unwrap_or(usize::MAX);
        Self { state: Mutex::new(State { most, ..State::default() }), ..Self::default() }
    }

    /// Whether no more entries will be known.
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.entries.len() >= state.most
    }

    /// Where an entry lies, if there is one.
    pub(super) fn find(&self, name: Name) -> Option<Spot> {
        let state = self.lock();
        state.entries.get(&name.short()).map(|place| state.spot(*place))
    }

    pub(super) fn insert(&self, segment: u64, entry: &Entry) {
        let mut state = self.lock();
        let segment = state.number(segment);
        state.insert(segment, entry);
    }

    /// Counts a hit.
    pub(super) fn served(&self, spot: Spot) {
        let mut state = self.lock();
        if let Some(number) = state.numbers.get(&spot.segment).copied() {
            state.segments[number as usize].hits += 1;
        }
    }

    /// How often a segment served us.
    pub(super) fn hits(&self, segment: u64) -> u64 {
        let state = self.lock();
        state.numbers.get(&segment).map_or(0, |number| state.segments[*number as usize].hits)
    }

    /// Forgets an entry, unless it lies elsewhere by now.
    pub(super) fn forget(&self, name: Name, spot: Spot) {
        let mut state = self.lock();
        let place = state.entries.get(&name.short()).copied();
        if place.is_some_and(|place| state.spot(place) == spot) {
            state.entries.remove(&name.short());
        }
    }

    /// Reads what was added to the indexes since; how many damaged slots that showed. Nothing if
    /// somebody is at it already.
    pub(super) fn refresh(&self, folder: &Folder) -> io::Result<u64> {
        let Ok(mut progress) = self.progress.try_lock() else { return Ok(0) };
        let ids = folder.ids()?;
        progress.retain(|id, _| ids.binary_search(id).is_ok());
        self.drop_all_but(&ids);
        let mut damaged = 0;
        for id in ids {
            let so_far = progress.entry(id).or_insert(Progress { read: SLOT, done: false });
            if so_far.done {
                continue;
            }
            match self.read_on(&folder.index(id), id, so_far) {
                Ok(more) => damaged += more,
                // Evicted under our eyes.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    fn read_on(&self, index: &Path, id: u64, progress: &mut Progress) -> io::Result<u64> {
        let file = File::open(index)?;
        let mut header = [0; SLOT as usize];
        if file.read_at(&mut header, 0)? < header.len() {
            return Ok(0);
        }
        let header = Header::from_bytes(&header);
        let (mut damaged, mut place, mut unsound) = (0, progress.read, 0);
        let mut slots = vec![0; AT_ONCE * SLOT as usize];
        loop {
            let count = file.read_at(&mut slots, place)?;
            let whole = count - count % SLOT as usize;
            if whole == 0 {
                break;
            }
            let mut state = self.lock();
            let number = state.number(id);
            for slot in slots[..whole].chunks_exact(SLOT as usize) {
                place += SLOT;
                let Some(slot) = Slot::from_bytes(slot) else {
                    unsound += 1;
                    continue;
                };
                damaged += std::mem::take(&mut unsound);
                progress.read = place;
                match slot {
                    Slot::Entry(entry) => state.insert(number, &entry),
                    Slot::Removed(entry) => state.remove(number, &entry),
                }
            }
        }
        if header.is_some_and(|header| header.sealed) {
            progress.done = true;
            damaged += unsound;
        }
        Ok(damaged)
    }

    /// Forgets the entries of segments that are gone; those that are there are sorted.
    fn drop_all_but(&self, ids: &[u64]) {
        let mut state = self.lock();
        let State { entries, segments, numbers, .. } = &mut *state;
        let before = numbers.len();
        let is_there = |id: &u64| ids.binary_search(id).is_ok();
        numbers.retain(|id, _| is_there(id));
        if numbers.len() < before {
            entries.retain(|_, place| is_there(&segments[place.segment as usize].id));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self, id: u64) -> u32 {
        let Self { segments, numbers, .. } = self;
        *numbers.entry(id).or_insert_with(|| {
            segments.push(Segment { id, hits: 0 });
            (segments.len() - 1) as u32
        })
    }

    fn spot(&self, place: Place) -> Spot {
        let segment = self.segments[place.segment as usize].id;
        Spot { segment, offset: place.offset.into(), length: place.length.into() }
    }

    fn insert(&mut self, segment: u32, entry: &Entry) {
        let (offset, length) = (u32::try_from(entry.offset), u32::try_from(entry.length));
        let has_room = self.entries.len() < self.most;
        if let (Ok(offset), Ok(length), true) = (offset, length, has_room) {
            self.entries.insert(entry.name.short(), Place { segment, offset, length });
        }
    }

    fn remove(&mut self, segment: u32, entry: &Entry) {
        let is_it =
            |place: &Place| (place.segment, u64::from(place.offset)) == (segment, entry.offset);
        if self.entries.get(&entry.name.short()).is_some_and(is_it) {
            self.entries.remove(&entry.name.short());
        }
    }
}
