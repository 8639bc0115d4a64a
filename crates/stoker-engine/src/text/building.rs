//! Something large that is made on a thread of its own, and waited for when it is needed.
#![expect(unsafe_code, reason = "the allocator is asked in C")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::error::Result;
use crate::thread::{self, Priority};

/// Being made, or made.
pub(super) struct Building<T> {
    /// Nothing if making it panicked, which the thread has told of.
    made: Arc<OnceLock<Option<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + Sync + 'static> Building<T> {
    /// Has it made by a thread of that name, which gives back all memory that this took and that is
    /// not in use any more.
    pub(super) fn start(
        name: &str,
        priority: Priority,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self> {
        let place = Arc::new(OnceLock::new());
        let filled = Arc::clone(&place);
        let thread = thread::start(name, priority, move || {
            // What it leaves half made is dropped, and seen by nobody.
            let found = catch_unwind(AssertUnwindSafe(make));
            assert!(filled.set(found.ok()).is_ok(), "it is made once");
            give_back();
        })?;
        Ok(Self { made: place, thread: Some(thread) })
    }

    /// What was made, if it is.
    pub(super) fn made(&self) -> Option<&T> {
        self.made.get().map(|made| made.as_ref().expect("what makes it does not panic"))
    }

    /// What was made, once it is.
    pub(super) fn wait(&self) -> &T {
        self.made.wait().as_ref().expect("what makes it does not panic")
    }
}

impl<T> Drop for Building<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Nobody needs it any more, so nobody asks how it went.
            drop(thread.join());
        }
    }
}

/// Gives memory that is free to the system. glibc's allocator keeps what a thread has freed below
/// anything that is still in use: tens of megabytes of a tokenizer's file, for good.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    // SAFETY: it may be called at any time, by any thread; there is nothing to keep.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn all_who_wait_get_what_was_made_once() {
        let (go, told) = sync_channel(0);
        let building = Building::start("stoker-test", Priority::Nicer, move || {
            told.recv().unwrap();
            String::from("made")
        });
        let building = building.unwrap();
        std::thread::scope(|scope| {
            let waiting = [(); 3].map(|()| scope.spawn(|| building.wait().as_ptr() as usize));
            go.send(()).unwrap();
            let found = waiting.map(|one| one.join().unwrap());
            assert_eq!(found, [building.wait().as_ptr() as usize; 3]);
        });
        assert_eq!(building.wait(), "made");
    }

    #[test]
    fn nothing_of_it_is_left_when_it_is_dropped() {
        let done = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&done);
        let building = Building::start("stoker-test", Priority::Nicer, move || {
            set.store(true, Ordering::Release);
        });
        drop(building.unwrap());
        assert!(done.load(Ordering::Acquire));
    }

    #[test]
    fn memory_that_making_it_took_goes_back_to_the_system() {
        let resident = || -> usize {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        // Many small pieces, of which the last one stays: nothing below it is at an end of the heap.
        let building = Building::start("stoker-test", Priority::Nicer, move || {
            let mut pieces: Vec<_> = (0..256_u32 << 10).map(|_| vec![1_u8; 1 << 10]).collect();
            (resident(), pieces.pop())
        });
        let mut building = building.unwrap();
        let &(most, _) = building.wait();
        building.thread.take().unwrap().join().unwrap();
        assert!(resident() + (128 << 10) < most, "{} of {most} KiB are left", resident());
    }

    #[test]
    #[should_panic = "does not panic"]
    fn who_waits_for_what_panicked_hears_of_it() {
        Building::start("stoker-test", Priority::Nicer, || -> u8 { panic!("it can't be made") })
            .unwrap()
            .wait();
    }
}
