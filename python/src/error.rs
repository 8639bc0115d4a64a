//! One Python exception per variant of the engine's error, with its fields as attributes. The
//! classes are plain Python (`stoker.errors`), so that they can be read and pickled.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use stoker_engine::error::{BadSample, DatasetErrorKind, Error, FetchErrorKind, Problem};

/// The exception to raise for an error.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).unwrap_or_else(|failure| failure)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let errors = py.import("stoker.errors")?;
    let fields = PyDict::new(py);
    let class = fill(&errors, &fields, error)?;
    let exception = errors.getattr(class)?.call((error.to_string(),), Some(&fields))?;
    Ok(PyErr::from_value(exception))
}

/// Sets the fields and gives the name of the class.
fn fill<'a>(
    errors: &Bound<'_, PyModule>,
    fields: &Bound<'_, PyDict>,
    error: &Error,
) -> PyResult<&'a str> {
    match error {
        Error::Recipe(problems) => {
            let class = errors.getattr("Problem")?;
            let list = PyList::empty(fields.py());
            for Problem { path, reason, hint } in problems {
                let fields = PyDict::new(fields.py());
                fields.set_item("path", path)?;
                fields.set_item("reason", reason)?;
                fields.set_item("hint", hint)?;
                list.append(class.call((), Some(&fields))?)?;
            }
            fields.set_item("problems", list)?;
            Ok("RecipeError")
        }
        Error::Dataset(error) => {
            let (kind, bad_samples): (_, &[BadSample]) = match &error.kind {
                DatasetErrorKind::Data => ("data", &[]),
                DatasetErrorKind::BadSamples(bad) => ("bad-samples", bad),
                DatasetErrorKind::Disk => ("disk", &[]),
            };
            fields.set_item("kind", kind)?;
            fields.set_item("bad_samples", listed(errors, bad_samples)?)?;
            fields.set_item("line", error.line)?;
            fields.set_item("reason", &error.reason)?;
            fields.set_item("hint", &error.hint)?;
            fields.set_item("uri", &error.uri)?;
            Ok("DatasetError")
        }
        Error::Fetch(error) => {
            fields.set_item("kind", kind(error.kind))?;
            fields.set_item("range", error.range.as_ref().map(|range| (range.start, range.end)))?;
            fields.set_item("attempts", error.attempts)?;
            fields.set_item("status", error.status)?;
            fields.set_item("reason", &error.reason)?;
            fields.set_item("hint", &error.hint)?;
            fields.set_item("uri", &error.uri)?;
            Ok("FetchError")
        }
        Error::Sample(error) => {
            fields.set_item("sample", (error.id.dataset, error.id.row))?;
            fields.set_item("room", error.flaw.room.as_str())?;
            fields.set_item("code", error.flaw.code)?;
            fields.set_item("reason", &error.flaw.reason)?;
            fields.set_item("hint", error.flaw.hint)?;
            fields.set_item("origin", &error.origin)?;
            Ok("SampleError")
        }
        Error::Cursor(error) => {
            fields.set_item("field", &error.field)?;
            fields.set_item("expected", &error.expected)?;
            fields.set_item("found", &error.found)?;
            fields.set_item("hint", &error.hint)?;
            Ok("CursorError")
        }
        Error::Budget(error) => {
            fields.set_item("what", &error.what)?;
            fields.set_item("needed", error.needed)?;
            fields.set_item("limit", error.limit)?;
            fields.set_item("hint", &error.hint)?;
            Ok("BudgetError")
        }
        Error::Machine(error) => {
            fields.set_item("what", &error.what)?;
            fields.set_item("reason", &error.reason)?;
            fields.set_item("hint", &error.hint)?;
            Ok("MachineError")
        }
        Error::Stopped => Ok("StoppedError"),
        Error::Bug(_) => Ok("BugError"),
    }
}

/// Bad samples as a list of `stoker.errors.BadSample`.
fn listed<'py>(
    errors: &Bound<'py, PyModule>,
    bad_samples: &[BadSample],
) -> PyResult<Bound<'py, PyList>> {
    let (py, class) = (errors.py(), errors.getattr("BadSample")?);
    let list = PyList::empty(py);
    for bad in bad_samples {
        let fields = PyDict::new(py);
        fields.set_item("sample", (bad.id.dataset, bad.id.row))?;
        fields.set_item("outcome", bad.outcome.as_str())?;
        fields.set_item("room", bad.room.as_str())?;
        fields.set_item("code", &bad.code)?;
        fields.set_item("reason", &bad.reason)?;
        fields.set_item("hint", &bad.hint)?;
        fields.set_item("origin", &bad.origin)?;
        list.append(class.call((), Some(&fields))?)?;
    }
    Ok(list)
}

fn kind(kind: FetchErrorKind) -> &'static str {
    match kind {
        FetchErrorKind::NotFound => "not-found",
        FetchErrorKind::Denied => "denied",
        FetchErrorKind::Unconfigured => "unconfigured",
        FetchErrorKind::Forbidden => "forbidden",
        FetchErrorKind::TooLarge => "too-large",
        FetchErrorKind::Changed => "changed",
        FetchErrorKind::Transient => "transient",
    }
}
