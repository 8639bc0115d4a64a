//! Has something done under Python's lock, without waiting for that lock: by Python itself, in the
//! main thread, before it runs on.
//!
//! Threads of the engine must not wait for the lock: whoever has it may be waiting for them. And a
//! thread of our own for this would have to end with the interpreter, which nobody outside of it can
//! tell in time.
#![expect(unsafe_code, reason = "pending calls are a C interface")]

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

/// Has `work` done soon; any thread may ask, with Python's lock or without. False if it can't be:
/// the interpreter is ending, or has too many such calls (32) before it.
pub(crate) fn soon(work: Box<dyn FnOnce(Python<'_>) + Send>) -> bool {
    // Two boxes, as a pointer to a trait object is two words.
    let call = Box::into_raw(Box::new(work));
    // SAFETY: no lock is needed for either of them; `run` is given the box once.
    let taken = unsafe {
        ffi::Py_IsInitialized() != 0 && ffi::Py_AddPendingCall(Some(run), call.cast()) == 0
    };
    if !taken {
        // SAFETY: it was not taken, so it is still ours.
        drop(unsafe { Box::from_raw(call) });
    }
    taken
}

extern "C" fn run(call: *mut c_void) -> c_int {
    // SAFETY: it is the box that `soon` gave away, and Python makes each pending call once, attached.
    unsafe {
        let work = Box::from_raw(call.cast::<Box<dyn FnOnce(Python<'_>) + Send>>());
        work(Python::assume_attached());
    }
    0
}
