//! A forked child has its parent's memory but none of its threads. Whatever would wait for such a
//! thread, or for a lock that it held, would wait for ever; so a [`Home`] remembers the process
//! that it was made in, and in a child its value is neither asked for nor dropped.

use std::process;

use pyo3::PyResult;
use pyo3::exceptions::PyRuntimeError;

/// A value that belongs to one process.
pub(crate) struct Home<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Home<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: process::id() }
    }

    /// The value, for reading memory that a child has too.
    pub(crate) fn anywhere(&self) -> &T {
        self.value.as_ref().expect("it is taken only when it is dropped")
    }

    /// The value, in the process that it belongs to.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.here().ok_or_else(|| {
            PyRuntimeError::new_err(
                "this loader was made before a fork, and its threads stayed with the parent; \
                 make the loader in the child, or use spawn",
            )
        })
    }

    /// The value, in the process that it belongs to; `None` in a child.
    pub(crate) fn here(&self) -> Option<&T> {
        (process::id() == self.process).then(|| self.anywhere())
    }
}

impl<T> Drop for Home<T> {
    fn drop(&mut self) {
        if process::id() != self.process {
            std::mem::forget(self.value.take());
        }
    }
}
