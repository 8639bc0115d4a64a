//! Somebody who has to know before a block is unmapped: the driver of a device that reads it, say.
//!
//! Blocks are unmapped by whoever has the last hold on them: a thread of the engine that makes room,
//! under the pool's lock, or the trainer's. None of them may wait for a driver, or for an
//! interpreter's lock. So a block with a keeper is not unmapped there: its mapping is given to the
//! keeper, which drops it when it likes. Until then it is memory beyond `engine.memory`.

use std::fmt;
use std::sync::OnceLock;

use memmap2::MmapMut;

/// Takes over the mapping of a block that nobody uses any more. It is asked once, on any thread, and
/// must not wait.
pub trait Keeper: Send + Sync {
    /// Unmapped when `mapping` is dropped.
    fn take_over(self: Box<Self>, mapping: Mapping);
}

/// The memory of a block that was used up.
#[derive(Debug)]
pub struct Mapping(pub(super) MmapMut);

impl Mapping {
    /// The address of its first byte, which no other mapping has until it is dropped.
    pub fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

/// The keeper of a block, once it has one.
#[derive(Default)]
pub(super) struct Kept(OnceLock<Box<dyn Keeper>>);

impl Kept {
    /// False where there is one already.
    pub(super) fn by(&self, keeper: Box<dyn Keeper>) -> bool {
        self.0.set(keeper).is_ok()
    }

    /// Gives the mapping to the keeper; without one it is unmapped.
    pub(super) fn end(&mut self, mapping: Mapping) {
        if let Some(keeper) = self.0.take() {
            keeper.take_over(mapping);
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.get().is_some()).finish()
    }
}
