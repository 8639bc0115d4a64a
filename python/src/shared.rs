//! Batches over memory that belongs to somebody else: Python's buffer protocol, in both directions.
//!
//! A batch shows its memory as a read-only buffer, so that it can be pickled out-of-band; one that
//! is unpickled lies over the buffer that it is given, such as an object in Ray's shared memory,
//! and holds it for as long as a tensor over it lives.
#![expect(unsafe_code, reason = "the buffer protocol is a C interface")]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use stoker_engine::loader::{self as engine, Memory};

use crate::home::Home;

/// A buffer of another object, held.
struct Held {
    buffer: ManuallyDrop<PyBuffer<u8>>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        let start = self.buffer.buf_ptr().cast::<u8>();
        // SAFETY: the buffer is contiguous bytes (checked in `memory`), which its owner keeps in
        // place while it is held. Nobody writes to it: such batches are handed on as read-only, and
        // the stores that they come from seal what they hold.
        unsafe { std::slice::from_raw_parts(start, self.buffer.len_bytes()) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A tensor may outlive the interpreter; then there is nobody to give the buffer back to.
        let released = Python::try_attach(|_| {
            // SAFETY: this is the only place that drops it.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        });
        let _gone = released.is_none();
    }
}

/// The buffer as memory for a batch.
pub(crate) fn memory(buffer: PyBuffer<u8>) -> PyResult<Memory> {
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the memory of a batch is one piece"));
    }
    Ok(Box::new(Held { buffer: ManuallyDrop::new(buffer) }))
}

/// The memory of a batch as a read-only buffer.
#[pyclass(frozen, module = "stoker._native")]
pub(crate) struct Shown(pub(crate) Arc<Home<engine::Batch>>);

#[pymethods]
impl Shown {
    #[expect(clippy::needless_pass_by_value, reason = "the protocol of Python's buffers")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: i32,
    ) -> PyResult<()> {
        const READ_ONLY: i32 = 1;
        let bytes: &[u8] = slf.get().0.anywhere().lease();
        let (start, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as isize);
        // SAFETY: Python gives a `Py_buffer` to fill. The bytes stay where they are as long as the
        // batch, which lives as long as `slf`, which the view keeps.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, READ_ONLY, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
