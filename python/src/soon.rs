//! Has something done under Python's lock, without waiting for that lock: by Python itself, in the
//! main thread, before it runs on.
//!
//! Threads of the engine must not wait for the lock: whoever has it may be waiting for them. And a
//! thread of our own for this would have to end with the interpreter, which nobody outside of it can
//! tell in time. A main thread that waits for the engine does it meanwhile: [`catch_up`].
#![expect(unsafe_code, reason = "pending calls are a C interface")]

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

/// What is done later; what it raises, the main thread raises where it happens to be.
type Work = Box<dyn FnOnce(Python<'_>) -> PyResult<()> + Send>;

/// Has `work` done soon; any thread may ask, with Python's lock or without. False if it can't be:
/// the interpreter is ending, or has too many such calls (32) before it.
pub(crate) fn soon(work: Work) -> bool {
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
    // SAFETY: it is the box that `soon` gave away, and Python makes each pending call once.
    let work = unsafe { Box::from_raw(call.cast::<Work>()) };
    // Python has the thread attached; told so, pyo3 lets go at once of what the work held.
    let outcome = Python::try_attach(|py| work(py).map_err(|error| error.restore(py)));
    if outcome == Some(Err(())) { -1 } else { 0 }
}

/// Hears signals and does what is to be done soon, as Python does while it runs: for who waits
/// outside of it. In other threads than the main one it does nothing.
pub(crate) fn catch_up(py: Python<'_>) -> PyResult<()> {
    py.check_signals()?;
    // SAFETY: attached, and no error is set.
    if unsafe { ffi::Py_MakePendingCalls() } == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}
