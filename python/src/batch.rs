//! A batch as Python sees it: a mapping of names to tensors over one piece of memory.
//!
//! Every [`Tensor`] and every DLPack capsule made of it holds the engine's batch; the memory goes
//! back to the engine's pool when the last of them goes.

use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyTuple};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stoker_engine::loader as engine;
use stoker_engine::pack;
use stoker_engine::recipe::Pixels;
use stoker_engine::vision::Finish;

use crate::home::Home;
use crate::json;
use crate::shared;
use crate::tensor::Tensor;

/// What `__reduce_ex__` says of a batch beside its memory.
#[derive(Serialize, Deserialize)]
struct Header {
    batch: Box<RawValue>,
    finish: Finish,
}

/// One finished batch: a mapping of names to tensors, as the model's `forward` takes them.
///
/// With B samples of at most L tokens, N patches in n images:
///
/// | name                | dtype               | shape                                           |
/// |---------------------|---------------------|-------------------------------------------------|
/// | `input_ids`         | int64               | `[B, L]`, right-padded                          |
/// | `attention_mask`    | int64               | `[B, L]`, 0 on padding                          |
/// | `labels`            | int64               | `[B, L]`, -100 where nothing is learned         |
/// | `mm_token_type_ids` | int64               | `[B, L]`, 1 on image placeholders               |
/// | `position_ids`      | int64               | `[3, B, L]`: temporal, height, width            |
/// | `pixel_values`      | float32 or bfloat16 | `[N, 3 * temporal_patch_size * patch_size**2]`  |
/// |                     | uint8               | `[N, 3 * patch_size**2]`, to be finished: `to`  |
/// | `image_grid_thw`    | int64               | `[n, 3]`: frames, rows and columns of patches   |
///
/// A batch without images has neither `pixel_values` nor `image_grid_thw`. With `pack.layout` other
/// than `padded` it has one row, and other names: see `docs/reference/python.md`.
///
/// All tensors lie in one piece of CPU memory, and `numpy()`, `torch()` and DLPack give views of it.
/// It stays valid while the batch, a tensor or any view lives, and is yours to write to unless it is
/// `shared`.
#[pyclass(frozen, mapping, module = "stoker")]
pub(crate) struct Batch {
    inner: Arc<Home<engine::Batch>>,
    finish: Finish,
}

impl Batch {
    pub(crate) fn new(batch: engine::Batch, finish: Finish) -> Self {
        Self { inner: Arc::new(Home::new(batch)), finish }
    }

    fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor> {
        (0..self.inner.anywhere().tensors().len())
            .map(|index| Tensor::new(Arc::clone(&self.inner), index))
    }

    /// A batch of the parts that `__reduce_ex__` gave, over the memory of `memory`.
    pub(crate) fn of_parts(header: &str, memory: PyBuffer<u8>) -> PyResult<Self> {
        let broken = |error: serde_json::Error| {
            PyValueError::new_err(format!("this is no batch's header: {error}"))
        };
        let Header { batch, finish } = serde_json::from_str(header).map_err(broken)?;
        let memory = shared::memory(memory)?;
        let batch = engine::Batch::from_parts(batch.get(), memory)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self::new(batch, finish))
    }

    /// The engine's batch, to go on with: a view of the same memory.
    pub(crate) fn engine(&self) -> engine::Batch {
        self.inner.anywhere().clone()
    }

    /// Any key may be asked for, as of any mapping; only names have tensors.
    fn find(&self, key: &Bound<'_, PyAny>) -> Option<Tensor> {
        let name: &str = key.extract().ok()?;
        self.tensors().find(|tensor| tensor.described().name == name)
    }
}

#[pymethods]
impl Batch {
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        self.find(key).ok_or_else(|| PyKeyError::new_err((key.clone().unbind(),)))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        self.find(key).is_some()
    }

    fn __len__(&self) -> usize {
        self.tensors().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys())?.try_iter()
    }

    /// The names of the tensors.
    fn keys(&self) -> Vec<&'static str> {
        self.tensors().map(|tensor| tensor.described().name).collect()
    }

    /// The tensors.
    fn values(&self) -> Vec<Tensor> {
        self.tensors().collect()
    }

    /// Pairs of name and tensor.
    fn items(&self) -> Vec<(&'static str, Tensor)> {
        self.tensors().map(|tensor| (tensor.described().name, tensor)).collect()
    }

    /// The tensor of that name, or `default`.
    #[pyo3(signature = (name, default=None))]
    fn get(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        match self.find(name) {
            Some(tensor) => Ok(Py::new(py, tensor)?.into_any()),
            None => Ok(default.unwrap_or_else(|| py.None())),
        }
    }

    /// The tensors as a dict of NumPy arrays over the same memory, read-only if it is `shared`.
    ///
    /// NumPy has no bfloat16: such pixels come as their bits, in uint16.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let from_dlpack = py.import("numpy")?.getattr("from_dlpack")?;
        let arrays = PyDict::new(py);
        for tensor in self.tensors() {
            let name = tensor.described().name;
            arrays.set_item(name, from_dlpack.call1((tensor.into_bits(),))?)?;
        }
        Ok(arrays)
    }

    /// The tensors as a dict of torch tensors on the CPU, over the same memory, and the `scalars`.
    /// Those of a `shared` batch are inference tensors: writing to them in place raises
    /// `RuntimeError`.
    fn torch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("stoker.torch")?.getattr("views")?.call1((slf,))
    }

    /// The tensors on a device, finished, and the `scalars`: a dict, ready for
    /// `model(**batch.to(device))`.
    ///
    /// `u8` pixels are moved as bytes and finished there, `(u - mean) / std` in f32, then the
    /// temporal copies; bit for bit what `vision.pixels = "f32"` gives.
    ///
    /// Args:
    ///     `device`: Where to: a `torch.device` or its name.
    ///     `non_blocking`: As in `torch.Tensor.to`; from memory that `stoker.torch.prefetch` pinned it
    ///         waits all the same, as the batch may be let go of.
    ///     `dtype`: The torch dtype of `pixel_values`; by default float32 for `f32` and `u8`,
    ///         bfloat16 for `bf16`.
    #[pyo3(signature = (device, *, non_blocking=false, dtype=None))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        device: &Bound<'py, PyAny>,
        non_blocking: bool,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let to = slf.py().import("stoker.torch")?.getattr("to")?;
        to.call1((slf, device, non_blocking, dtype))
    }

    /// What `forward` takes beside the tensors, as a dict of plain numbers and bools: empty, but for
    /// packed batches (`max_length_q`, `max_length_k`, `use_cache`).
    #[getter]
    fn scalars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let scalars = PyDict::new(py);
        for pack::Scalar { name, value } in self.inner.anywhere().scalars() {
            match value {
                pack::ScalarValue::Flag(flag) => scalars.set_item(name, flag)?,
                pack::ScalarValue::Whole(number) => scalars.set_item(name, number)?,
            }
        }
        Ok(scalars)
    }

    /// What finishes `u8` pixels, for those who do it without `to`: a dict of `pixels` (`f32`,
    /// `bf16` or `u8`), `mean` and `std` (per channel, times 255), `patch_size` (in pixels) and
    /// `temporal_patch_size` (in frames).
    #[getter]
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let pixels = match self.finish.pixels {
            Pixels::F32 => "f32",
            Pixels::Bf16 => "bf16",
            Pixels::U8 => "u8",
        };
        let finish = PyDict::new(py);
        finish.set_item("pixels", pixels)?;
        finish.set_item("mean", self.finish.mean)?;
        finish.set_item("std", self.finish.std)?;
        finish.set_item("patch_size", self.finish.patch_size)?;
        finish.set_item("temporal_patch_size", self.finish.temporal_patch_size)?;
        Ok(finish)
    }

    /// Its place in the global sequence of batches, all ranks together, from 0.
    #[getter]
    fn sequence(&self) -> u64 {
        self.inner.anywhere().sequence()
    }

    /// Whether others may be reading its memory: that of a batch that came from another process.
    #[getter]
    fn shared(&self) -> bool {
        self.inner.anywhere().lease().is_shared()
    }

    /// The name of the batch: its lane and its number in the lane, both from 0.
    #[getter]
    fn name(&self) -> (u32, u64) {
        let name = self.inner.anywhere().name();
        (name.lane, name.number)
    }

    /// The samples in it, in order, as pairs of dataset and row, both from 0. What pads the last
    /// batches of a pass is none, and stands behind them.
    #[getter]
    fn samples(&self) -> Vec<(u32, u64)> {
        self.inner.anywhere().samples().iter().map(|id| (id.dataset, id.row)).collect()
    }

    /// For each place of the batch whether it is a sample to reckon with: False where one was
    /// neutralised, on padding, and for neutral images.
    #[getter]
    fn sample_mask(&self) -> Vec<bool> {
        self.inner.anywhere().sample_mask().to_vec()
    }

    /// Bytes of all tensors.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensors().map(|tensor| tensor.nbytes()).sum()
    }

    /// Where to go on after this batch; see `Loader.state_dict`.
    ///
    /// Raises:
    ///     `ValueError`: No loader has delivered it yet.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let undelivered = || PyValueError::new_err("only a batch that a loader delivered has one");
        json::to_python(py, self.inner.anywhere().cursor().ok_or_else(undelivered)?)
    }

    /// With protocol 5 and a `buffer_callback` the tensors are handed over without a copy; what is
    /// unpickled is a `shared` batch over the memory that it is given.
    fn __reduce_ex__<'py>(slf: &Bound<'py, Self>, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let this = slf.get();
        let batch = RawValue::from_string(this.inner.anywhere().header());
        let batch = batch.expect("the engine's headers are JSON");
        let header = serde_json::to_string(&Header { batch, finish: this.finish });
        let header = header.expect("numbers and texts become JSON");
        let memory = if protocol >= 5 {
            let memory = shared::Shown(Arc::clone(&this.inner));
            py.import("pickle")?.getattr("PickleBuffer")?.call1((memory,))?
        } else {
            PyBytes::new(py, this.inner.anywhere().lease()).into_any()
        };
        (py.import("stoker._native")?.getattr("_batch")?, (header, memory)).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        let (lane, number) = self.name();
        let tensors: Vec<String> = self
            .tensors()
            .map(|tensor| {
                let pack::Tensor { name, shape, .. } = tensor.described();
                format!("{name}: {} {shape:?}", tensor.dtype())
            })
            .collect();
        format!("Batch(lane={lane}, number={number}, {{{}}})", tensors.join(", "))
    }
}
