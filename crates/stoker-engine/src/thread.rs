//! Threads that work beside a trainer's, which launch the work that keeps a device busy, in moments
//! that are short and must not wait.

use std::thread::{Builder, JoinHandle};

use crate::error::{Error, Result};

/// By how much a thread that gives way is nicer than the one that starts it: where both want a core, it
/// gets a tenth of it.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

/// How urgent it is what a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// As that of the thread that starts it, which soon waits for it.
    Usual,
    /// It gives way to the trainer's threads.
    Nicer,
}

/// Starts a thread of that name.
pub(crate) fn start(
    name: &str,
    priority: Priority,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let run = move || {
        if priority == Priority::Nicer {
            give_way();
        }
        run();
    };
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| Error::no_thread(name, &error))
}

/// Lowers the priority of this thread. Linux has one for each thread, and anybody may lower it.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Ok(usual) = rustix::process::getpriority_process(None) {
        // Where it is refused, work goes on at the usual one.
        let _lowered = rustix::process::setpriority_process(None, (usual + NICER).min(19));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;

    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn a_thread_gives_way_if_it_is_to_and_the_one_that_started_it_does_not() {
        let ours = getpriority_process(None).unwrap();
        for (priority, expected) in
            [(Priority::Usual, ours), (Priority::Nicer, (ours + NICER).min(19))]
        {
            let (tell, told) = mpsc::sync_channel(1);
            let run = move || tell.send(getpriority_process(None).unwrap()).unwrap();
            start("stoker-test", priority, run).unwrap().join().unwrap();
            assert_eq!(told.recv().unwrap(), expected);
            assert_eq!(getpriority_process(None).unwrap(), ours);
        }
    }
}
