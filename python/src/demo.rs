//! What `stoker demo` needs of the other crates: the S3 server and the made-up data set.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyIndexError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Credentials, Faults, InvalidFaults, Server};

use crate::json;

use crate::home::Home;

/// Sizes of the demo's images, in pixels: what the web and telephones give.
const PIXELS: (usize, usize) = (200_000, 2_000_000);

/// Adds the classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<S3Server>()?;
    module.add_class::<DemoDataset>()
}

/// An S3 server over objects in memory, on a free port of this machine.
#[pyclass(frozen, module = "stoker._native")]
pub(crate) struct S3Server {
    server: Home<Mutex<Option<Server>>>,
    #[pyo3(get)]
    endpoint: String,
    #[pyo3(get)]
    access_key_id: String,
    #[pyo3(get)]
    secret_access_key: String,
}

#[pymethods]
impl S3Server {
    #[new]
    #[pyo3(signature = (
        *, profile="standard", seed=0, faults=None, first_byte_seconds=None, bytes_per_second=None
    ))]
    fn new(
        profile: &str,
        seed: u64,
        faults: Option<&Bound<'_, PyAny>>,
        first_byte_seconds: Option<f64>,
        bytes_per_second: Option<u64>,
    ) -> PyResult<Self> {
        let Credentials { access_key_id, secret_access_key } = Credentials::default();
        let profile = profile.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
        let faults = read(faults)?;
        let first_byte = first_byte_seconds.map(Duration::try_from_secs_f64).transpose();
        let first_byte = first_byte.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let total_bandwidth = bytes_per_second;
        let config =
            Config { profile, seed, faults, first_byte, total_bandwidth, ..Config::default() };
        let server = Server::start(&config, Backend::memory()).map_err(|error| refused(&error))?;
        let endpoint = server.endpoint();
        Ok(Self {
            server: Home::new(Mutex::new(Some(server))),
            endpoint,
            access_key_id,
            secret_access_key,
        })
    }

    /// Stores an object; its bucket is made if it is new.
    fn put(&self, py: Python<'_>, bucket: &str, key: &str, content: Vec<u8>) -> PyResult<()> {
        py.detach(|| {
            self.with(|server| server.put(bucket, key, content).map_err(|error| refused(&error)))
        })
    }

    /// Requests answered, bytes of objects sent and most reads at the same time, so far.
    fn stats(&self) -> PyResult<(u64, u64, u64)> {
        self.with(|server| {
            let stats = server.stats();
            Ok((stats.requests, stats.bytes, stats.peak_in_flight))
        })
    }

    /// Has other things go wrong from now on; `None` is nothing.
    #[pyo3(signature = (faults))]
    fn set_faults(&self, faults: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let faults = read(faults)?;
        self.with(|server| server.set_faults(&faults).map_err(|error| refused(&error)))
    }

    /// How often each fault happened, by its name, since these faults were set.
    fn injected(&self) -> PyResult<BTreeMap<String, u64>> {
        self.with(|server| Ok(server.injected()))
    }

    /// Stops it at once.
    fn close(&self, py: Python<'_>) {
        // In a forked child there is nothing to stop.
        let Some(server) = self.server.here() else { return };
        py.detach(|| drop(server.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl S3Server {
    fn with<T>(&self, act: impl FnOnce(&Server) -> PyResult<T>) -> PyResult<T> {
        let forked = || PyRuntimeError::new_err("the server runs in the process that started it");
        let server = self.server.here().ok_or_else(forked)?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        act(server.as_ref().ok_or_else(|| PyValueError::new_err("the server was closed"))?)
    }
}

/// The faults of a document such as `stoker s3 --faults` reads.
fn read(faults: Option<&Bound<'_, PyAny>>) -> PyResult<Faults> {
    let Some(faults) = faults else { return Ok(Faults::default()) };
    let invalid = |error: InvalidFaults| PyValueError::new_err(error.to_string());
    Faults::from_json(&json::text(faults)?).map_err(invalid)
}

fn refused(error: &stoker_s3::Error) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// The made-up data set: a JSONL of chat samples, then their images.
#[pyclass(frozen, module = "stoker._native")]
pub(crate) struct DemoDataset(ChatDataset);

#[pymethods]
impl DemoDataset {
    #[new]
    #[pyo3(signature = (*, seed, samples, pixels=PIXELS))]
    fn new(seed: u64, samples: usize, pixels: (usize, usize)) -> PyResult<Self> {
        let (least, most) = pixels;
        if !(64..=most).contains(&least) {
            let message = format!("images can't have from {least} to {most} pixels");
            return Err(PyValueError::new_err(message));
        }
        Ok(Self(ChatDataset::new(seed, samples, least..=most)))
    }

    /// Key of the JSONL.
    #[getter]
    #[expect(clippy::unused_self, reason = "an attribute of instances, to Python")]
    fn key(&self) -> &'static str {
        CHAT_KEY
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Key and bytes of an object; the JSONL is number 0.
    fn object<'py>(
        &self,
        py: Python<'py>,
        number: usize,
    ) -> PyResult<(String, Bound<'py, PyBytes>)> {
        self.check(number)?;
        let (key, content) = py.detach(|| self.0.object(number));
        Ok((key, PyBytes::new(py, &content)))
    }

    /// Pixels of an object; 0 for the JSONL.
    fn pixels(&self, number: usize) -> PyResult<usize> {
        self.check(number)?;
        Ok(number.checked_sub(1).map_or(0, |image| {
            let (width, height) = self.0.size(image);
            width * height
        }))
    }
}

impl DemoDataset {
    fn check(&self, number: usize) -> PyResult<()> {
        if number < self.0.len() {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!("there are {} objects", self.0.len())))
    }
}
