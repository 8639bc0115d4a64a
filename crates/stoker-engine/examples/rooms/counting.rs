//! An allocator that counts what each thread asks of it.
#![expect(unsafe_code, reason = "an allocator's trait is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting.
pub(crate) struct Counting;

/// What a thread has asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Times that it asked for memory, or for more of it.
    pub(crate) allocations: u64,
    /// Bytes in all.
    pub(crate) bytes: u64,
}

impl Asked {
    /// What this thread has asked for since it began.
    pub(crate) fn so_far() -> Self {
        ASKED.get()
    }

    /// What it has asked for since then.
    pub(crate) fn since(before: Self) -> Self {
        let now = Self::so_far();
        let (allocations, bytes) = (now.allocations, now.bytes);
        Self { allocations: allocations - before.allocations, bytes: bytes - before.bytes }
    }
}

thread_local! {
    static ASKED: Cell<Asked> = const { Cell::new(Asked { allocations: 0, bytes: 0 }) };
}

fn count(bytes: usize) {
    let Asked { allocations, bytes: before } = ASKED.get();
    ASKED.set(Asked { allocations: allocations + 1, bytes: before + bytes as u64 });
}

// SAFETY: every call is handed on to the system's allocator as it came; counting allocates nothing,
// as the counter is a constant that has nothing to drop.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) };
    }
}
