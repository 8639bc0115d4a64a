//! What the front doors have in common: the recipe as Python gives it, the rank, and waiting for
//! work that takes long.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};
use stoker_engine::error::Error;
use stoker_engine::loader::{Opening, REMEMBERED};
use stoker_engine::metrics::{self, Evidence, Report};
use stoker_engine::plan::Cursor;
use stoker_engine::recipe::{Document, Recipe};
use stoker_engine::sample::Rank;

use crate::error::raise;
use crate::json;

/// How long the engine is waited for before signals are looked at.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// A length, or why there is none.
pub(crate) fn length(batches: Option<u64>, is_endless: bool) -> PyResult<usize> {
    let why = if is_endless {
        "an endless loader has no len(): set plan.epochs"
    } else {
        "how many batches of pack.max-tokens there are is not known before all samples are measured \
         (`stoker index --sizes` does it, for all that can be used), or the last one was had: count \
         steps until the loader ends"
    };
    batches.map(|batches| batches as usize).ok_or_else(|| PyTypeError::new_err(why))
}

/// The engine's report as a `stoker.Report`.
pub(crate) fn report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyAny>> {
    let read = py.import("stoker.report")?.getattr("read")?;
    read.call1((report.to_string(), json::to_python(py, report)?))
}

/// What a report with these numbers says.
pub(crate) fn words(numbers: &Bound<'_, PyAny>) -> PyResult<String> {
    json::from_python::<Report>(numbers).map(|report| report.to_string())
}

/// What this evidence tells, if it is enough.
pub(crate) fn advice<'py>(evidence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let told = json::from_python::<Evidence>(evidence)?.advice();
    json::to_python(evidence.py(), &told)
}

/// The metric families of a report with these numbers.
pub(crate) fn families<'py>(
    numbers: &Bound<'py, PyAny>,
    rank: u32,
    world_size: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let report = json::from_python::<Report>(numbers)?;
    json::to_python(numbers.py(), &metrics::families(&report, Rank { index: rank, of: world_size }))
}

/// A report with these numbers as a page of HTML.
pub(crate) fn page(numbers: &Bound<'_, PyAny>, title: Option<&str>) -> PyResult<String> {
    json::from_python::<Report>(numbers).map(|report| report.page(title))
}

/// A recipe with its overrides as one document: no path in it is relative.
pub(crate) fn portable<'py>(
    recipe: &Bound<'py, PyAny>,
    overrides: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = recipe.py();
    let document = MadeOf::read(recipe, overrides)?.document().and_then(Document::portable);
    json::to_python(py, &document.map_err(|error| raise(py, &error))?)
}

/// The rank as given, or as the process knows it.
pub(crate) fn rank(
    py: Python<'_>,
    rank: Option<i64>,
    world_size: Option<i64>,
    group: Option<&Bound<'_, PyAny>>,
) -> PyResult<Rank> {
    let resolve = py.import("stoker._rank")?.getattr("resolve")?;
    let (index, of) = resolve.call1((rank, world_size, group))?.extract()?;
    Ok(Rank { index, of })
}

/// How many ranks share this machine, as the process knows it.
pub(crate) fn local_world_size(py: Python<'_>) -> PyResult<u32> {
    py.import("stoker._rank")?.getattr("local_world_size")?.call0()?.extract()
}

/// How many worker processes the DataLoader has that this is a worker process of; `None` elsewhere.
pub(crate) fn data_loader_workers(py: Python<'_>) -> PyResult<Option<u64>> {
    py.import("stoker._rank")?.getattr("data_loader_workers")?.call0()?.extract()
}

/// A state as a dict: as it is, or as it was so many batches ago.
pub(crate) fn state_dict(
    py: Python<'_>,
    batches_ago: Option<i64>,
    state: impl FnOnce() -> Cursor,
    state_ago: impl FnOnce(usize) -> Option<Cursor>,
) -> PyResult<Bound<'_, PyAny>> {
    let Some(ago) = batches_ago else { return json::to_python(py, &state()) };
    let state = usize::try_from(ago).ok().and_then(state_ago).ok_or_else(|| {
        PyValueError::new_err(format!(
            "there is no state of batches_ago={ago}: it counts batches that were handed over since \
             the loader was made or its state was loaded, {REMEMBERED} of them at most"
        ))
    })?;
    json::to_python(py, &state)
}

/// A state that was saved, as the engine has it.
pub(crate) fn cursor(state: &Bound<'_, PyAny>) -> PyResult<Cursor> {
    let cursor = match json::text(state) {
        Ok(text) => Cursor::from_json(&text),
        Err(error) => Err(Cursor::unreadable(&error.to_string())),
    };
    cursor.map_err(|error| raise(state.py(), &error))
}

/// The recipe as it was given: all that a loader is pickled by, beside its rank.
#[derive(Clone)]
pub(crate) struct MadeOf {
    recipe: Source,
    overrides: Map<String, Value>,
}

#[derive(Clone)]
enum Source {
    File(PathBuf),
    Document(Value),
}

impl fmt::Display for MadeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.recipe {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Document(_) => write!(f, "{{…}}"),
        }
    }
}

impl Source {
    fn read(recipe: &Bound<'_, PyAny>) -> PyResult<Self> {
        if recipe.is_instance_of::<PyDict>() {
            return json::from_python(recipe).map(Self::Document);
        }
        let path: PathBuf = recipe.extract().map_err(|_| {
            let found = recipe.get_type();
            PyTypeError::new_err(format!(
                "a recipe is a path (str or os.PathLike[str]) or a dict, not {found}"
            ))
        })?;
        let absolute = std::path::absolute(&path).map_err(|error| {
            let words = format!(
                "the recipe {} is looked for in the current folder, and there is none: {error}; give \
                 its whole path",
                path.display()
            );
            io::Error::new(error.kind(), words)
        })?;
        Ok(Self::File(absolute))
    }
}

impl MadeOf {
    pub(crate) fn read(
        recipe: &Bound<'_, PyAny>,
        overrides: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let overrides = match overrides {
            Some(overrides) => json::from_python(overrides)?,
            None => Map::new(),
        };
        Ok(Self { recipe: Source::read(recipe)?, overrides })
    }

    /// The argument `recipe` that makes the same.
    pub(crate) fn recipe_argument<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.recipe {
            Source::File(path) => Ok(path.as_os_str().into_pyobject(py)?.into_any()),
            Source::Document(document) => json::to_python(py, document),
        }
    }

    /// The argument `overrides` that makes the same.
    pub(crate) fn overrides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.overrides)
    }

    pub(crate) fn recipe(&self) -> Result<Recipe, Error> {
        self.document()?.recipe()
    }

    /// The recipe with its overrides.
    pub(crate) fn document(&self) -> Result<Document, Error> {
        let mut document = match &self.recipe {
            Source::File(path) => Document::from_file(path)?,
            Source::Document(document) => Document::from_value(document.clone())?,
        };
        for (path, value) in &self.overrides {
            document.set_value(path, value.clone());
        }
        Ok(document)
    }
}

/// Opens something on a thread of its own, and hears signals meanwhile. After Ctrl-C its requests are
/// given up; what it makes all the same is dropped.
pub(crate) fn patiently<T: Send + 'static>(
    py: Python<'_>,
    open: impl FnOnce(&Opening) -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    const NAME: &str = "stoker-open";
    let opening = Arc::<Opening>::default();
    let (done, mut outcome) = sync_channel(1);
    let work = {
        let opening = Arc::clone(&opening);
        move || done.send(open(&opening)).ok()
    };
    let started = thread::Builder::new().name(NAME.to_owned()).spawn(work);
    started.map_err(|error| raise(py, &Error::no_thread(NAME, &error)))?;
    loop {
        let received = py.detach(|| {
            let received = outcome.recv_timeout(PATIENCE);
            (received, outcome)
        });
        outcome = received.1;
        match received.0 {
            Ok(result) => return result.map_err(|error| raise(py, &error)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interruption) = py.check_signals() {
                    py.detach(|| opening.give_up());
                    return Err(interruption);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(raise(py, &Error::Bug("opening the loader panicked".to_owned())));
            }
        }
    }
}
