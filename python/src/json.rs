//! Documents cross the border as JSON, through Python's own module: recipes and cursors on the way
//! in, cursors and reports on the way out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A Python document (dict, list, str, number, bool, None, path) as JSON. Numbers may be NumPy's:
/// whatever says by `__index__` or `__float__` that it is one.
pub(crate) fn text(document: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = document.py();
    let options = PyDict::new(py);
    options.set_item("allow_nan", false)?;
    options.set_item("default", wrap_pyfunction!(plain, py)?)?;
    py.import("json")?.call_method("dumps", (document,), Some(&options))?.extract()
}

/// What `json` does not know, as what it knows.
#[pyfunction]
fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    py.import("operator")?
        .call_method1("index", (value,))
        .or_else(|_| value.call_method0("__float__"))
        .or_else(|_| py.import("os")?.call_method1("fspath", (value,)))
}

/// The same as a value.
pub(crate) fn from_python<T: DeserializeOwned>(document: &Bound<'_, PyAny>) -> PyResult<T> {
    serde_json::from_str(&text(document)?).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A value of the engine as plain dicts, lists, strings and numbers.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    value: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text =
        serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}
