//! Raw memory of batches: mapped once, huge-paged where the system allows, faulted in before use,
//! and handed to several threads in disjoint slots.
//!
//! This file holds all of the engine's unsafe memory handling. The rule that makes it sound: a
//! [`Block`] is either whole, with one owner, or split, in which case every byte belongs to at most
//! one [`Slot`] ([`Draft::split`] checks that the ranges do not overlap, [`Slot::cut`] makes disjoint
//! ones of one that is given up), and only when all slots are dropped does [`Seal::lease`] give the
//! block to readers.
#![expect(unsafe_code, reason = "threads fill disjoint parts of one mapping")]

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use memmap2::{Advice, MmapMut};

use super::keeper::{Keeper, Kept, Mapping};
use super::pool::Held;
use crate::error::{Bytes, Error, Result};

/// Size of a page. Where the system's are larger, whose pages are at the ends is not known, which is no
/// matter: that pages come changes nothing in them.
const PAGE: usize = 4096;

/// A mapping of its own.
#[derive(Debug)]
pub(super) struct Block {
    /// There until the block is dropped.
    map: Option<MmapMut>,
    start: *mut u8,
    capacity: usize,
    /// Its pages are still to come from the system.
    fresh: bool,
    kept: Kept,
}

// SAFETY: `start` points into `map`, which is owned by the block and moves with it; the pointer is
// only used through `Slot` and `Lease`, under the rule at the head of this file.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block only gives out its length and pointer.
unsafe impl Sync for Block {}

impl Block {
    /// Maps `capacity` bytes. Their pages come with [`Slot::fault_in`].
    pub(super) fn map(capacity: usize) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::machine(
                format!("{} for a batch can't be mapped", Bytes(capacity as u64)),
                &error,
            )
        };
        let mut map = MmapMut::map_anon(capacity).map_err(failed)?;
        // Advice: a kernel without it gives the same memory, only slower.
        let _huge = map.advise(Advice::HugePage);
        let start = map.as_mut_ptr();
        Ok(Self { map: Some(map), start, capacity, fresh: true, kept: Kept::default() })
    }

    /// It has been filled.
    pub(super) fn filled(&mut self) {
        self.fresh = false;
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            self.kept.end(Mapping(map));
        }
    }
}

/// A block that is being filled, with one owner.
#[derive(Debug)]
pub(super) struct Draft {
    held: Held,
    bytes: usize,
}

impl Draft {
    /// `held` has a block of at least `bytes` bytes.
    pub(super) fn new(held: Held, bytes: usize) -> Self {
        assert!(held.block().capacity() >= bytes, "the pool gives blocks that are large enough");
        Self { held, bytes }
    }

    /// Splits the block into slots. The ranges are in rising order and do not overlap.
    pub(super) fn split(self, ranges: &[Range<usize>]) -> (Vec<Slot>, Seal) {
        let mut end = 0;
        for range in ranges {
            let ordered = end <= range.start && range.start <= range.end;
            assert!(ordered && range.end <= self.bytes, "slots are disjoint parts of the block");
            end = range.end;
        }
        let held = Arc::new(self.held);
        let slot = |range: &Range<usize>| Slot { held: Arc::clone(&held), range: range.clone() };
        let slots = ranges.iter().map(slot).collect();
        (slots, Seal { held, bytes: self.bytes })
    }
}

/// A part of a block that one thread fills.
#[derive(Debug)]
pub(super) struct Slot {
    held: Arc<Held>,
    range: Range<usize>,
}

impl Slot {
    /// Whether it is of a block that was never used.
    pub(super) fn is_fresh(&self) -> bool {
        self.held.block().fresh
    }

    /// Has the system give all of its pages at once: one after the other, while they are written to,
    /// they cost several times more than the image that is written.
    pub(super) fn fault_in(&mut self) {
        let range = self.range.clone();
        let map = self.held.block().map.as_ref().expect("it is there until the block is dropped");
        // Those at the ends are a neighbour's too.
        let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
        if start < end && map.advise_range(Advice::PopulateWrite, start, end - start).is_err() {
            // A kernel without that advice.
            self.touch();
        }
    }

    /// Writes to each page.
    fn touch(&mut self) {
        self.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
    }

    /// Cuts it into parts of so many bytes each; the last one has what is left.
    pub(super) fn cut(self, bytes: usize) -> Vec<Self> {
        assert!(bytes > 0, "parts have bytes");
        let Range { start, end } = self.range;
        let part = |start: usize| Self {
            held: Arc::clone(&self.held),
            range: start..end.min(start + bytes),
        };
        (start..end).step_by(bytes).map(part).collect()
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.held.block().start;
        // SAFETY: the range lies in the block (checked in `split`, kept in `cut`), which lives as long
        // as `held`; no other slot has these bytes, and no lease exists while this slot does.
        unsafe { std::slice::from_raw_parts(start.add(self.range.start), self.range.len()) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.held.block().start;
        // SAFETY: as in `deref`; `&mut self` makes this the only access through the slot.
        unsafe { std::slice::from_raw_parts_mut(start.add(self.range.start), self.range.len()) }
    }
}

/// What remains of a draft while its slots are filled.
#[derive(Debug)]
pub(super) struct Seal {
    held: Arc<Held>,
    bytes: usize,
}

impl Seal {
    /// The filled block; all slots have been dropped.
    pub(super) fn lease(self) -> Lease {
        let mut held =
            Arc::into_inner(self.held).expect("all slots are dropped when they are filled");
        held.block_mut().filled();
        Lease(From::Pool { held, bytes: self.bytes })
    }
}

/// Memory of a batch that was made elsewhere: it stays where it is, unchanged, as long as this lives.
pub type Memory = Box<dyn AsRef<[u8]> + Send + Sync>;

/// A finished batch's memory. It goes back to where it came from when the lease is dropped; whoever
/// has a tensor over it keeps the lease.
pub struct Lease(From);

enum From {
    /// The pool of the engine that made it.
    Pool { held: Held, bytes: usize },
    /// Elsewhere; others may be reading it.
    Elsewhere(Memory),
}

impl Lease {
    /// Memory that was filled elsewhere.
    pub(super) fn shared(memory: Memory) -> Self {
        Self(From::Elsewhere(memory))
    }

    /// The first byte. Unless the memory is shared, it is the holder's until the lease is dropped:
    /// the engine neither reads nor writes it any more.
    pub fn as_ptr(&self) -> *mut u8 {
        match &self.0 {
            From::Pool { held, .. } => held.block().start,
            From::Elsewhere(memory) => (**memory).as_ref().as_ptr().cast_mut(),
        }
    }

    /// Address and length in bytes of the whole block that a batch lies in, which begins where it
    /// does; `None` for memory from elsewhere.
    pub fn block(&self) -> Option<(usize, usize)> {
        match &self.0 {
            From::Pool { held, .. } => Some((held.block().start.addr(), held.block().capacity())),
            From::Elsewhere(_) => None,
        }
    }

    /// From now on `keeper` is to know before the block is unmapped, however often it is used again
    /// until then. False where there is a keeper already, and for memory from elsewhere.
    pub fn keep(&self, keeper: Box<dyn Keeper>) -> bool {
        match &self.0 {
            From::Pool { held, .. } => held.block().kept.by(keeper),
            From::Elsewhere(_) => false,
        }
    }

    /// Whether others may be reading the memory, so that it must not be written.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, From::Elsewhere(_))
    }

    /// Counts the memory as the trainer's from now on.
    pub(super) fn hand_over(&mut self) {
        if let From::Pool { held, .. } = &mut self.0 {
            held.hand_over();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: the block has at least `bytes` bytes, all of them initialised (mappings start
            // zeroed), and lives as long as `held`; the slots that wrote them are dropped.
            From::Pool { held, bytes } => unsafe {
                std::slice::from_raw_parts(held.block().start, *bytes)
            },
            From::Elsewhere(memory) => (**memory).as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn the_pages_of_a_slot_come_and_nothing_of_its_neighbours_changes() {
        type Get = fn(&mut Slot);
        for get in [Slot::fault_in as Get, Slot::touch as Get] {
            let bytes = 5 * PAGE;
            let pool = Pool::new(64 << 20, Arc::default());
            let take = || pool.take_now(0, bytes).unwrap().draft(bytes).unwrap();
            let ranges = [0..100, 100..PAGE + 7, PAGE + 7..3 * PAGE + 1, 3 * PAGE + 1..bytes];
            let (mut slots, seal) = take().split(&ranges);
            for (slot, number) in slots.iter_mut().zip(1..) {
                assert!(slot.is_fresh());
                get(slot);
                slot.fill(number);
            }
            drop(slots);
            let lease = seal.lease();
            for (range, expected) in ranges.into_iter().zip(1..) {
                assert!(lease[range].iter().all(|byte| *byte == expected));
            }
            drop(lease);
            let (slots, _seal) = take().split(std::slice::from_ref(&(0..bytes)));
            assert!(!slots[0].is_fresh(), "the block is used again, and has its pages");
        }
    }

    #[test]
    fn a_block_that_was_given_up_before_it_was_filled_still_needs_its_pages() {
        let pool = Pool::new(64 << 20, Arc::default());
        let take = || pool.take_now(0, PAGE).unwrap().draft(PAGE).unwrap();
        drop(take());
        let (slots, _seal) = take().split(std::slice::from_ref(&(0..PAGE)));
        assert!(slots[0].is_fresh());
    }

    #[test]
    fn memory_that_the_machine_does_not_give_is_an_error_that_says_how_much() {
        let error = Block::map(1 << 60).unwrap_err().to_string();
        let head = "1048576.0 TiB for a batch can't be mapped: Cannot allocate memory (os error 12); \
                    raise the limit on memory";
        assert!(error.starts_with(head), "{error}");
    }
}
