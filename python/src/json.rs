//! Documents cross the border as JSON, through Python's own module: recipes on the way in, cursors
//! and reports on the way out.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde_json::Value;

use crate::error::raise;

/// A Python document (dict, list, str, number, bool, None, path) as the engine reads it.
pub(crate) fn from_python(document: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = document.py();
    let options = PyDict::new(py);
    options.set_item("allow_nan", false)?;
    options.set_item("default", py.import("os")?.getattr("fspath")?)?;
    let text = py.import("json")?.call_method("dumps", (document,), Some(&options))?;
    let text: String = text.extract()?;
    serde_json::from_str(&text).map_err(|error| bug(py, &error))
}

/// A value of the engine as plain dicts, lists, strings and numbers.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    value: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| bug(py, &error))?;
    py.import("json")?.call_method1("loads", (text,))
}

fn bug(py: Python<'_>, error: &serde_json::Error) -> PyErr {
    raise(py, &stoker_engine::error::Error::Bug(error.to_string()))
}
