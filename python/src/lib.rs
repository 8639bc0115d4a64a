//! The Python door: translation only, no logic that the engine could hold.
//!
//! `loader` waits for the engine with the GIL released and hears signals; `batch` shows a batch
//! as a mapping of tensors; `dlpack` lets them leave without a copy; `home` keeps a forked child
//! from touching threads that it does not have; `remote` has the two halves of a loader for batches
//! that are made elsewhere, `shared` lets them lie in others' memory; `pins` tells a device's driver of
//! their blocks, and `soon` has Python do what can't wait for its lock; `error` maps the engine's errors to Python's;
//! `trace` is a trace of some steps; `demo` lends the demo its store and its data.

mod batch;
mod demo;
mod dlpack;
mod error;
mod home;
mod json;
mod loader;
mod made_of;
mod pins;
mod remote;
mod shared;
mod soon;
mod tensor;
mod trace;

use pyo3::prelude::*;

/// Only what Rust allocates here: Python's objects, torch's tensors and what C libraries take stay with
/// the process's own allocator. Why: `docs/decisions/0018-an-allocator-of-our-own.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The compiled half of the package `stoker`.
#[pymodule]
mod _native {
    use pyo3::buffer::PyBuffer;
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    use crate::made_of;

    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::loader::Loader;
    #[pymodule_export]
    use crate::pins::Pins;
    #[pymodule_export]
    use crate::remote::{Front, Maker};
    #[pymodule_export]
    use crate::tensor::Tensor;
    #[pymodule_export]
    use crate::trace::Trace;

    /// A batch of the parts that it was pickled as.
    #[pyfunction]
    fn _batch(header: &str, memory: PyBuffer<u8>) -> PyResult<Batch> {
        Batch::of_parts(header, memory)
    }

    /// A recipe with its overrides, for another process or host.
    #[pyfunction]
    #[pyo3(signature = (recipe, overrides=None))]
    fn _document<'py>(
        recipe: &Bound<'py, PyAny>,
        overrides: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        made_of::portable(recipe, overrides)
    }

    /// What a report with these numbers says.
    #[pyfunction]
    fn _report_words(numbers: &Bound<'_, PyAny>) -> PyResult<String> {
        made_of::words(numbers)
    }

    /// What this evidence of a `Maker` and its consumer tells.
    #[pyfunction]
    fn _advice<'py>(evidence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        made_of::advice(evidence)
    }

    /// The metric families of a report with these numbers.
    #[pyfunction]
    fn _families<'py>(
        numbers: &Bound<'py, PyAny>,
        rank: u32,
        world_size: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        made_of::families(numbers, rank, world_size)
    }

    /// A report with these numbers as a page of HTML.
    #[pyfunction]
    fn _report_page(numbers: &Bound<'_, PyAny>, title: Option<&str>) -> PyResult<String> {
        made_of::page(numbers, title)
    }

    /// How all pages of stoker look, as CSS.
    #[pyfunction]
    fn _page_style() -> &'static str {
        stoker_engine::metrics::page_style()
    }

    /// Runs the `stoker` command (`argv[0]` is its name) and gives its exit code back.
    #[pyfunction]
    fn cli(py: Python<'_>, argv: Vec<String>) -> u8 {
        py.detach(|| stoker_cli::main(argv))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::demo::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
