//! Ctrl-C. While a command drains or serves, the first one asks it to end in order; at all other
//! times, and the second time, it ends the process at once, also inside Python, whose own handler
//! would only take note. The handler that was there before comes back when a guard is dropped. A
//! command that was started with Ctrl-C ignored, as a shell's background jobs are, goes on ignoring it.

#![expect(unsafe_code, reason = "signal handlers are set by a system call")]

use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the handler, which may do no more than that.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A way of hearing Ctrl-C, until it is dropped.
pub(crate) struct Guard {
    noted: &'static AtomicBool,
    before: libc::sigaction,
}

/// Ctrl-C ends the process.
pub(crate) fn ends_the_process() -> Guard {
    set(libc::SIG_DFL)
}

/// The first Ctrl-C is noted, the second ends the process.
pub(crate) fn is_noted() -> Guard {
    INTERRUPTED.store(false, Ordering::Relaxed);
    set(note as extern "C" fn(libc::c_int) as libc::sighandler_t)
}

impl Guard {
    /// Whether there was a Ctrl-C since.
    pub(crate) fn heard(&self) -> bool {
        self.noted.load(Ordering::Relaxed)
    }
}

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

fn set(handler: libc::sighandler_t) -> Guard {
    // SAFETY: a zeroed `sigaction` is a valid one (no flags, no mask, default handler).
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
    // SAFETY: both point to live structs; the handler only stores to an atomic, which is
    // async-signal-safe. It fails only for signals that do not exist.
    unsafe { libc::sigaction(libc::SIGINT, &raw const action, &raw mut before) };
    if before.sa_sigaction == libc::SIG_IGN {
        // Whoever started us in the background wants Ctrl-C to reach only what is in front.
        // SAFETY: `before` is what the system gave us.
        unsafe { libc::sigaction(libc::SIGINT, &raw const before, std::ptr::null_mut()) };
    }
    Guard { noted: &INTERRUPTED, before }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: `before` is what the system gave us.
        unsafe { libc::sigaction(libc::SIGINT, &raw const self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_noted_and_the_former_handler_comes_back() {
        let outer = is_noted();
        assert!(!outer.heard());
        {
            let inner = is_noted();
            // SAFETY: the handler is set.
            unsafe { libc::raise(libc::SIGINT) };
            assert!(inner.heard());
        }
        let again = is_noted();
        assert!(!again.heard());
        drop(again);
        // SAFETY: the outer handler is back, else this would end the process.
        unsafe { libc::raise(libc::SIGINT) };
        assert!(outer.heard());
    }
}
