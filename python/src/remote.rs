//! The two halves of a loader, for batches that are made elsewhere: `stoker.ray` puts Ray between
//! them. Waiting is as in `loader`.

use std::collections::BTreeSet;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use stoker_engine::loader as engine;
use stoker_engine::sample::{Position, Rank, WindowStart};
use stoker_engine::vision::Finish;

use crate::batch::Batch;
use crate::error::raise;
use crate::home::Home;
use crate::json;
use crate::made_of::{self, MadeOf, PATIENCE, patiently};

/// Makes any batch of a recipe's global sequence, on demand: what a data worker runs.
#[pyclass(frozen, module = "stoker._native")]
pub(crate) struct Maker {
    engine: Home<engine::Maker>,
    finish: Finish,
}

#[pymethods]
impl Maker {
    #[new]
    #[pyo3(signature = (recipe, *, overrides=None))]
    fn new(recipe: &Bound<'_, PyAny>, overrides: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let made_of = MadeOf::read(recipe, overrides)?;
        let engine = patiently(recipe.py(), move |opening| {
            engine::Maker::open_in(opening, made_of.recipe()?)
        })?;
        Ok(Self { finish: engine.finish(), engine: Home::new(engine) })
    }

    #[pyo3(signature = (sequence, ahead=Vec::new(), window=None))]
    fn make(
        &self,
        py: Python<'_>,
        sequence: u64,
        ahead: Vec<u64>,
        window: Option<(u64, u64)>,
    ) -> PyResult<Batch> {
        let engine = self.engine.get()?;
        if let Some((number, position)) = window {
            engine.learn(WindowStart { number, position: Position(position) });
        }
        let mut ahead: BTreeSet<u64> = ahead.into_iter().collect();
        ahead.insert(sequence);
        py.detach(|| engine.look_ahead(&ahead));
        loop {
            match py.detach(|| engine.make(sequence, PATIENCE)) {
                Ok(Some(batch)) => return Ok(Batch::new(*batch, self.finish)),
                Ok(None) => py.check_signals()?,
                Err(error) => return Err(raise(py, &error)),
            }
        }
    }

    fn sizes_known(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let engine = self.engine.get()?;
        Ok(py.detach(|| engine.sizes_known()))
    }

    fn add_sizes(&self, py: Python<'_>, dataset: usize, sizes: &[u8]) -> PyResult<()> {
        let engine = self.engine.get()?;
        py.detach(|| engine.add_sizes(dataset, sizes)).map_err(|error| raise(py, &error))
    }

    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        made_of::report(py, &self.engine.get()?.report())
    }

    fn evidence<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.engine.get()?.evidence())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine.get()?;
        py.detach(|| engine.close());
        Ok(())
    }
}

/// What one rank is to have, and has had, of batches that are made elsewhere.
#[pyclass(frozen, module = "stoker._native")]
pub(crate) struct Front {
    engine: Home<engine::Front>,
    rank: Rank,
    finish: Finish,
}

#[pymethods]
impl Front {
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
        let engine = patiently(recipe.py(), move |opening| {
            let mut recipe = made_of.recipe()?;
            recipe.engine.local_world_size.get_or_insert(ranks_here);
            engine::Front::open_in(opening, recipe, rank)
        })?;
        Ok(Self { finish: engine.finish(), engine: Home::new(engine), rank })
    }

    fn sequence_at(&self, steps: u64) -> PyResult<Option<u64>> {
        Ok(self.engine.get()?.sequence_at(steps))
    }

    fn window(&self) -> PyResult<Option<(u64, u64)>> {
        let start = self.engine.get()?.window();
        Ok(start.map(|WindowStart { number, position }| (number, position.0)))
    }

    fn hand_over(&self, py: Python<'_>, batch: &Batch, blocked: f64) -> PyResult<Option<Batch>> {
        let blocked = Duration::try_from_secs_f64(blocked)
            .map_err(|error| PyValueError::new_err(format!("blocked = {blocked}: {error}")))?;
        let delivered = self.engine.get()?.hand_over(Box::new(batch.engine()), blocked);
        let delivered = delivered.map_err(|error| raise(py, &error))?;
        Ok(delivered.map(|batch| Batch::new(*batch, self.finish)))
    }

    #[pyo3(signature = (*, batches_ago=None))]
    fn state_dict<'py>(
        &self,
        py: Python<'py>,
        batches_ago: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine.get()?;
        made_of::state_dict(py, batches_ago, || engine.state(), |ago| engine.state_ago(ago))
    }

    fn end(&self) -> PyResult<()> {
        self.engine.get()?.end();
        Ok(())
    }

    #[getter]
    fn ended(&self) -> PyResult<bool> {
        Ok(self.engine.get()?.ended())
    }

    fn load_state_dict(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let engine = self.engine.get()?;
        let cursor = made_of::cursor(state)?;
        engine.load_state(&cursor).map_err(|error| raise(state.py(), &error))
    }

    fn rewind(&self) -> PyResult<()> {
        self.engine.get()?.rewind();
        Ok(())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let engine = self.engine.get()?;
        made_of::length(py.detach(|| engine.len()), engine.is_endless())
    }

    fn left(&self, py: Python<'_>) -> PyResult<usize> {
        let engine = self.engine.get()?;
        made_of::length(py.detach(|| engine.left()), engine.is_endless())
    }

    #[getter]
    fn metrics_address(&self) -> PyResult<Option<String>> {
        Ok(self.engine.get()?.metrics_address().map(|address| address.to_string()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine.get()?;
        py.detach(|| engine.close());
        Ok(())
    }

    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        made_of::report(py, &self.engine.get()?.report())
    }

    fn index_files(&self) -> PyResult<Vec<Vec<std::path::PathBuf>>> {
        Ok(self.engine.get()?.index_files())
    }

    fn sizes_known(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let engine = self.engine.get()?;
        Ok(py.detach(|| engine.sizes_known()))
    }

    fn sizes<'py>(
        &self,
        py: Python<'py>,
        dataset: usize,
        row: u64,
        most: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, Option<u64>)> {
        let engine = self.engine.get()?;
        if dataset >= engine.index_files().len() {
            return Err(PyValueError::new_err(format!("there is no dataset {dataset}")));
        }
        let (sizes, next) = py.detach(|| engine.sizes(dataset, row, most));
        Ok((PyBytes::new(py, &sizes), next))
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.rank.index
    }

    #[getter]
    fn world_size(&self) -> u32 {
        self.rank.of
    }
}
