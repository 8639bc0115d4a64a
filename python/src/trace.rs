//! A trace of some steps, as Python sees it: a context manager that ends it.

use std::io;
use std::path::PathBuf;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use stoker_engine::loader::{self as engine, TraceError};

use crate::error::raise;
use crate::home::Home;

/// A trace that is recorded or was written.
///
/// It ends by itself after the number of steps that were asked for, when it is stopped, at the end of
/// a `with` block, or when its loader is closed.
#[pyclass(frozen, module = "stoker")]
pub(crate) struct Trace(Home<engine::Trace>);

impl Trace {
    pub(crate) fn new(trace: engine::Trace) -> Self {
        Self(Home::new(trace))
    }
}

#[pymethods]
impl Trace {
    /// Ends the recording, if it goes on, and waits until the file is written.
    ///
    /// Returns:
    ///     Batches that were handed over meanwhile, and events that were left out for want of memory.
    ///
    /// Raises:
    ///     `OSError`: It could not be written.
    fn stop(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let trace = self.0.get()?;
        let written = py.detach(|| trace.stop()).map_err(|error| raised(py, &error))?;
        Ok((written.steps, written.dropped))
    }

    /// Whether the file is written, or will never be.
    #[getter]
    fn ended(&self) -> PyResult<bool> {
        Ok(self.0.get()?.ended())
    }

    /// Its file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.0.anywhere().path().to_owned()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.stop(py).map(drop)
    }

    fn __repr__(&self) -> String {
        format!("Trace({})", self.0.anywhere().path().display())
    }
}

/// What Python's programs expect to be raised.
pub(crate) fn raised(py: Python<'_>, error: &TraceError) -> PyErr {
    match error {
        TraceError::Busy => PyRuntimeError::new_err(error.to_string()),
        TraceError::NoSteps => PyValueError::new_err(error.to_string()),
        TraceError::File(_, kind, _) => io::Error::new(*kind, error.to_string()).into(),
        TraceError::Machine(error) => raise(py, error),
    }
}
