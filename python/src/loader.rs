//! The front door as Python sees it. Waiting is done in slices of [`PATIENCE`] with the GIL
//! released; between them [Python catches up](catch_up), so Ctrl-C never waits for a slow store.

use std::path::PathBuf;

use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stoker_engine::loader::{self as engine, Next};
use stoker_engine::sample::Rank;
use stoker_engine::vision::Finish;

use crate::batch::Batch;
use crate::error::raise;
use crate::home::Home;
use crate::made_of::{self, MadeOf, PATIENCE, patiently};
use crate::soon::catch_up;
use crate::trace::{self, Trace};

const IN_ALL_WORKERS: &str = "this loader was handed to several worker processes of a DataLoader, \
     and each would give the same batches again: iterate over the loader itself, which has threads of \
     its own, or set num_workers=0";

const NO_LIST: &str = "a loader gives its batches in order and by no index: iterate over it; it has \
     threads of its own, and is not wrapped in a torch.utils.data.DataLoader";

/// Finished batches of one rank, in order: an iterator.
///
/// The order is a pure function of the recipe and the data, whatever the threads and the number of
/// ranks. A loop goes on where the last one stopped; after the end of a finite run (`plan.epochs`)
/// it begins anew. In a forked child every use raises `RuntimeError`.
///
/// Args:
///     `recipe`: Path of a `.toml` or `.json` file, or the same document as a dict.
///     `rank`: This process in the data-parallel group, from 0; by default what torch.distributed
///         says if it is initialised, else Ray Train, else the environment's RANK, else 0.
///     `world_size`: Size of the data-parallel group; goes together with `rank`. It must divide
///         `plan.lanes`.
///     `group`: The data-parallel group, in place of `rank` and `world_size`: a process group of
///         torch.distributed, or a `DeviceMesh` whose dimensions say by their names which of them
///         are data parallel.
///     `overrides`: Values by path that replace the recipe's, such as `{"pack.batch-size": 8}`.
///
/// Raises:
///     `RecipeError`: The recipe has problems; all are told at once.
///     `DatasetError`: The source, its index or a line is not what it should be.
///     `FetchError`: The store could not be read.
///     `MachineError`: The machine refuses a thread or a file; the limit is named.
///     `TypeError`: The recipe is neither path nor dict, only one of `rank` and `world_size` was
///         given, or `group` is no group or not alone.
///     `ValueError`: `rank` is not in `range(world_size)`, `group` does not say which rank this
///         process has, or nothing does though there are several.
///
/// While batches are made, `next` also raises `SampleError`, `BudgetError` and `StoppedError`. Handed
/// to several workers of a `DataLoader`, which would all give the same, `iter` raises `RuntimeError`.
#[pyclass(frozen, weakref, module = "stoker")]
pub(crate) struct Loader {
    engine: Home<engine::Loader>,
    made_of: MadeOf,
    rank: Rank,
    finish: Finish,
    /// Made by a worker process of a DataLoader, which so knows what it wants.
    in_worker: bool,
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (recipe, *, rank=None, world_size=None, group=None, overrides=None))]
    fn new(
        recipe: &Bound<'_, PyAny>,
        rank: Option<i64>,
        world_size: Option<i64>,
        group: Option<&Bound<'_, PyAny>>,
        overrides: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let rank = made_of::rank(recipe.py(), rank, world_size, group)?;
        let made_of = MadeOf::read(recipe, overrides)?;
        let ranks_here = made_of::local_world_size(recipe.py())?;
        let engine = patiently(recipe.py(), {
            let made_of = made_of.clone();
            move |opening| {
                let mut recipe = made_of.recipe()?;
                recipe.engine.local_world_size.get_or_insert(ranks_here);
                engine::Loader::open_in(opening, recipe, rank)
            }
        })?;
        let in_worker = made_of::data_loader_workers(recipe.py())?.is_some();
        Ok(Self { finish: engine.finish(), engine: Home::new(engine), made_of, rank, in_worker })
    }

    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        let engine = this.engine.get()?;
        if !this.in_worker && made_of::data_loader_workers(slf.py())?.is_some_and(|all| all > 1) {
            return Err(PyRuntimeError::new_err(IN_ALL_WORKERS));
        }
        if engine.ended() {
            slf.py().detach(|| engine.rewind()).map_err(|error| raise(slf.py(), &error))?;
        }
        Ok(slf)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let engine = self.engine.get()?;
        loop {
            match py.detach(|| engine.next(PATIENCE)) {
                Ok(Next::Batch(batch)) => {
                    // Other threads of Python may have had the GIL since it was handed over.
                    engine.arrived();
                    return Ok(Some(Batch::new(*batch, self.finish)));
                }
                Ok(Next::Waiting) => catch_up(py)?,
                Ok(Next::End) => return Ok(None),
                Err(error) => return Err(raise(py, &error)),
            }
        }
    }

    /// The next batch if it is ready, else `None`; no wait is counted.
    fn _next_if_ready(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let engine = self.engine.get()?;
        match py.detach(|| engine.next_if_ready()).map_err(|error| raise(py, &error))? {
            Next::Batch(batch) => Ok(Some(Batch::new(*batch, self.finish))),
            Next::Waiting => Ok(None),
            Next::End => Err(PyStopIteration::new_err(())),
        }
    }

    /// For who takes it for a list, as `torch.utils.data.DataLoader` does.
    #[expect(clippy::unused_self, reason = "the protocol of Python's subscription")]
    fn __getitem__(&self, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(NO_LIST))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let engine = self.engine.get()?;
        made_of::length(py.detach(|| engine.len()), engine.is_endless())
    }

    #[expect(clippy::unused_self, reason = "the protocol of Python's bool()")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    /// Ends all threads, within a second; waiting calls raise `StoppedError`.
    ///
    /// From any thread, as often as you like. Batches that are already out stay valid; `report()`
    /// and `state_dict()` still answer.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine.get()?;
        py.detach(|| engine.close());
        Ok(())
    }

    /// Where to go on after the last batch that was handed over, or after the end: a small dict of
    /// numbers, strings and lists.
    ///
    /// A loader that loads it gives the same remaining batches, byte for byte, on any number of
    /// ranks that divides `plan.lanes`.
    ///
    /// Args:
    ///     `batches_ago`: As it was before the last so many batches were handed over, and before
    ///         the end was seen: for a trainer that takes batches before it trains on them.
    ///
    /// Raises:
    ///     `ValueError`: So many were not handed over since the loader was made or its state was
    ///         loaded; at most 1024 are remembered.
    #[pyo3(signature = (*, batches_ago=None))]
    fn state_dict<'py>(
        &self,
        py: Python<'py>,
        batches_ago: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine.get()?;
        made_of::state_dict(py, batches_ago, || engine.state(), |ago| engine.state_ago(ago))
    }

    /// Goes on where a state was taken: before iterating, in the middle or after the end.
    ///
    /// Raises:
    ///     `CursorError`: The state was taken with another recipe or other data, or is damaged.
    fn load_state_dict(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = state.py();
        let engine = self.engine.get()?;
        let cursor = made_of::cursor(state)?;
        py.detach(|| engine.load_state(&cursor)).map_err(|error| raise(py, &error))
    }

    /// What has been done so far, and who waited for whom: a `stoker.Report`, times in seconds,
    /// sizes in bytes.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        made_of::report(py, &self.engine.get()?.report())
    }

    /// The numbers of the report as a flat dict of floats, for W&B and TensorBoard; see
    /// `stoker.Report.stats`.
    #[pyo3(signature = (prefix="stoker/"))]
    fn stats<'py>(&self, py: Python<'py>, prefix: &str) -> PyResult<Bound<'py, PyAny>> {
        self.report(py)?.call_method1("stats", (prefix,))
    }

    /// Batches of this rank that are still to come.
    ///
    /// Raises:
    ///     `TypeError`: The run is endless, or how long it is is not known yet, as for `len`.
    fn left(&self, py: Python<'_>) -> PyResult<usize> {
        let engine = self.engine.get()?;
        made_of::length(py.detach(|| engine.left()), engine.is_endless())
    }

    /// Where it is read over HTTP, such as `127.0.0.1:9464`; None without `engine.metrics`.
    #[getter]
    fn metrics_address(&self) -> PyResult<Option<String>> {
        Ok(self.engine.get()?.metrics_address().map(|address| address.to_string()))
    }

    /// Records what the loader does from now on, and writes it to a file that Perfetto opens: a
    /// `stoker.Trace`, which is a context manager.
    ///
    /// Args:
    ///     `path`: The file, compressed if its name ends in `.gz`.
    ///     `steps`: After how many batches it ends by itself; without it, when it is stopped.
    ///
    /// Raises:
    ///     `OSError`: The file can't be made.
    ///     `RuntimeError`: Another trace is being recorded or written.
    ///     `ValueError`: `steps` is not 1 or more.
    #[pyo3(signature = (path, *, steps=None))]
    fn trace(&self, py: Python<'_>, path: PathBuf, steps: Option<i64>) -> PyResult<Trace> {
        let steps = steps.map(|steps| u64::try_from(steps).unwrap_or_default());
        let engine = self.engine.get()?;
        py.detach(move || engine.trace(&path, steps))
            .map(Trace::new)
            .map_err(|error| trace::raised(py, &error))
    }

    /// Which rank this loader feeds, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank.index
    }

    /// Of how many ranks.
    #[getter]
    fn world_size(&self) -> u32 {
        self.rank.of
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((Bound<'py, PyAny>,), Bound<'py, PyDict>)> {
        let recipe = self.made_of.recipe_argument(py)?;
        let named = PyDict::new(py);
        named.set_item("rank", self.rank())?;
        named.set_item("world_size", self.world_size())?;
        named.set_item("overrides", self.made_of.overrides(py)?)?;
        Ok(((recipe,), named))
    }

    fn __getstate__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.state_dict(py, None)
    }

    fn __setstate__(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.load_state_dict(state)
    }

    fn __repr__(&self) -> String {
        format!("Loader({}, rank={}, world_size={})", self.made_of, self.rank(), self.world_size())
    }
}
