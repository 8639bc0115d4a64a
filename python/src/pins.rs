//! Blocks that the driver of a device was told of, so that it reads them without the CPU: registered
//! once, when a batch in them is first on its way to the device, and unregistered before they are
//! unmapped.
//!
//! Both are calls into Python, as it is torch that has the driver. Registering is done by the thread
//! that moves the batch. Unregistering is due where a block is let go of, on any thread and perhaps
//! under the engine's locks; so that only takes the mapping over, and Python [does the rest
//! soon](crate::soon).
//!
//! Ctrl-C may come within either call, when nobody knows what the driver has done already. A block is
//! then taken for registered, and unregistering it asked for once more: of one that the driver does
//! not have it says so.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use stoker_engine::loader::{Keeper, Mapping};

use crate::batch::Batch;
use crate::soon::soon;

/// Tells a driver of the memory of batches.
#[pyclass(frozen, module = "stoker._native")]
pub(crate) struct Pins {
    register: Py<PyAny>,
    books: Arc<Books>,
}

struct Books {
    unregister: Py<PyAny>,
    /// Blocks that nobody uses any more.
    over: Mutex<Vec<Mapping>>,
    process: u32,
}

#[pymethods]
impl Pins {
    #[new]
    fn new(register: Py<PyAny>, unregister: Py<PyAny>) -> Self {
        let books = Books { unregister, over: Mutex::default(), process: process::id() };
        Self { register, books: Arc::new(books) }
    }

    fn pin(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        self.books.settle(py)?;
        let batch = batch.engine();
        let Some((address, length)) = batch.lease().block() else { return Ok(()) };
        let registered = Arc::new(AtomicBool::new(false));
        let pin = Pin { books: Arc::clone(&self.books), registered: Arc::clone(&registered) };
        // As long as `batch` is held the block can't be let go of.
        if batch.lease().keep(Box::new(pin)) {
            let told = self.register.call1(py, (address, length));
            let refused = told.as_ref().is_err_and(|error| !interrupts(py, error));
            registered.store(!refused, Ordering::Release);
            told?;
        }
        Ok(())
    }
}

/// Whether an error came from outside of what was called, such as Ctrl-C.
fn interrupts(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}

/// The keeper of one block.
struct Pin {
    books: Arc<Books>,
    registered: Arc<AtomicBool>,
}

impl Keeper for Pin {
    fn take_over(self: Box<Self>, mapping: Mapping) {
        if !self.registered.load(Ordering::Acquire) {
            return;
        }
        if process::id() != self.books.process {
            // It was the parent who registered it, and a forked child can't use the driver.
            return;
        }
        // The books move on, so that the last hold on them is let go of under Python's lock.
        let Self { books, registered: _ } = *self;
        books.over().push(mapping);
        // If not, the next block does, or the end of the process.
        let _asked = soon(Box::new(move |py| books.settle(py)));
    }
}

impl Books {
    /// Unregisters and unmaps what nobody uses any more. Ctrl-C is raised when all of it is done.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let over = std::mem::take(&mut *self.over());
        let mut outcome = Ok(());
        for mapping in over {
            let unregister = || self.unregister.call1(py, (mapping.address(),));
            let told = unregister().or_else(|error| {
                if !interrupts(py, &error) {
                    return Err(error);
                }
                outcome = Err(error);
                unregister()
            });
            if let Err(error) = told {
                // A driver that still knows the address would take what comes to lie there for it.
                std::mem::forget(mapping);
                error.write_unraisable(py, Some(self.unregister.bind(py)));
            }
        }
        outcome
    }

    fn over(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        // Reached where Python was not there to do it any more: the process ends.
        self.over().drain(..).for_each(std::mem::forget);
    }
}
