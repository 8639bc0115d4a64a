//! Something that is made on a thread of its own, and waited for when it is needed.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Being made, or made.
pub(super) struct Building<T> {
    made: OnceLock<T>,
    /// Until somebody waits for it.
    thread: Mutex<Option<JoinHandle<T>>>,
}

impl<T: Send + 'static> Building<T> {
    /// Has it made by a thread of that name.
    pub(super) fn start(
        thread: &str,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let thread = Builder::new().name(thread.to_owned()).spawn(make)?;
        Ok(Self { made: OnceLock::new(), thread: Mutex::new(Some(thread)) })
    }

    /// What was made, once it is.
    pub(super) fn wait(&self) -> &T {
        self.made.get_or_init(|| {
            let thread = self.take().expect("whoever takes the thread sets what it has made");
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

impl<T> Building<T> {
    fn take(&self) -> Option<JoinHandle<T>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Drop for Building<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.take() {
            // Nobody needs it any more, so nobody asks how it went.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn all_who_wait_get_what_was_made_once() {
        let (go, told) = sync_channel(0);
        let building = Building::start("stoker-test", move || {
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
        let building = Building::start("stoker-test", move || set.store(true, Ordering::Release));
        drop(building.unwrap());
        assert!(done.load(Ordering::Acquire));
    }
}
