//! A batch as Python sees it: a mapping of names to tensors over one piece of memory.
//!
//! Every [`Tensor`] and every DLPack capsule made of it holds the engine's batch; the memory goes
//! back to the engine's pool when the last of them goes.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyList, PyTuple};
use stoker_engine::loader as engine;
use stoker_engine::pack;
use stoker_engine::recipe::Pixels;
use stoker_engine::sample::Dtype;
use stoker_engine::vision::Finish;

use crate::dlpack::{self, DataType};
use crate::home::Home;
use crate::json;

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
/// A batch without images has neither `pixel_values` nor `image_grid_thw`.
///
/// All tensors lie in one piece of CPU memory, and `numpy()`, `torch()` and DLPack give views of it.
/// It is yours to write to, and stays valid while the batch, a tensor or any view lives.
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

    /// The tensors as a dict of writable NumPy arrays over the same memory.
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

    /// The tensors as a dict of torch tensors on the CPU, over the same memory.
    fn torch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let from_dlpack = py.import("torch")?.getattr("from_dlpack")?;
        let tensors = PyDict::new(py);
        for tensor in self.tensors() {
            let name = tensor.described().name;
            tensors.set_item(name, from_dlpack.call1((tensor,))?)?;
        }
        Ok(tensors)
    }

    /// The tensors on a device, finished: a dict, ready for `model(**batch.to(device))`.
    ///
    /// `u8` pixels are moved as bytes and finished there, `(u - mean) / std` in f32, then the
    /// temporal copies; bit for bit what `vision.pixels = "f32"` gives.
    ///
    /// Args:
    ///     `device`: Where to: a `torch.device` or its name.
    ///     `non_blocking`: As in `torch.Tensor.to`.
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

    /// The name of the batch: its lane and its number in the lane, both from 0.
    #[getter]
    fn name(&self) -> (u32, u64) {
        let name = self.inner.anywhere().name();
        (name.lane, name.number)
    }

    /// The samples in it, in order, as pairs of dataset and row, both from 0.
    #[getter]
    fn samples(&self) -> Vec<(u32, u64)> {
        self.inner.anywhere().samples().iter().map(|id| (id.dataset, id.row)).collect()
    }

    /// Bytes of all tensors.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensors().map(|tensor| tensor.nbytes()).sum()
    }

    /// Where to go on after this batch; see `Loader.state_dict`.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let cursor = self.inner.anywhere().cursor();
        json::to_python(py, cursor.expect("a loader delivers each batch with its cursor"))
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

/// One tensor of a batch, in CPU memory.
///
/// It speaks DLPack, `numpy.from_dlpack(tensor)`, `torch.from_dlpack(tensor)`, and NumPy's array
/// protocol, `numpy.asarray(tensor)`; all over the same memory.
#[pyclass(frozen, module = "stoker")]
pub(crate) struct Tensor {
    batch: Arc<Home<engine::Batch>>,
    index: usize,
    dtype: DataType,
}

impl Tensor {
    fn new(batch: Arc<Home<engine::Batch>>, index: usize) -> Self {
        let dtype = match batch.anywhere().tensors()[index].dtype {
            Dtype::U8 => DataType::U8,
            Dtype::I32 => DataType::I32,
            Dtype::I64 => DataType::I64,
            Dtype::Bf16 => DataType::BF16,
            Dtype::F32 => DataType::F32,
        };
        Self { batch, index, dtype }
    }

    fn described(&self) -> &pack::Tensor {
        &self.batch.anywhere().tensors()[self.index]
    }

    /// The same memory under a type that NumPy has.
    fn into_bits(mut self) -> Self {
        if self.described().dtype == Dtype::Bf16 {
            self.dtype = DataType::U16;
        }
        self
    }
}

#[pymethods]
impl Tensor {
    /// The tensor for `numpy.asarray`: over the same memory, unless a copy or another dtype is asked
    /// for.
    ///
    /// Raises:
    ///     `TypeError`: It is bfloat16, which NumPy does not have.
    ///     `ValueError`: `copy` is False and the dtype needs a copy.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().described().dtype == Dtype::Bf16 {
            return Err(PyTypeError::new_err(
                "NumPy has no bfloat16: batch.numpy() gives its bits in uint16, \
                 torch.from_dlpack(tensor) its values",
            ));
        }
        let numpy = slf.py().import("numpy")?;
        let array = numpy.call_method1("from_dlpack", (slf,))?;
        let options = PyDict::new(slf.py());
        options.set_item("dtype", dtype)?;
        options.set_item("copy", copy)?;
        numpy.call_method("array", (array,), Some(&options))
    }

    /// A DLPack capsule over the same memory; versioned (1.0) where `max_version` allows it.
    ///
    /// Raises:
    ///     `BufferError`: A copy, a stream or another device was asked for.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("the memory is the CPU's: it has no streams"));
        }
        if dl_device.is_some_and(|device| device != dlpack::CPU) || copy == Some(true) {
            return Err(PyBufferError::new_err(
                "a batch is handed over as it lies in CPU memory; copy or move what you get",
            ));
        }
        let start = self.batch.anywhere().lease().as_ptr();
        let start = start.wrapping_add(self.described().offset);
        dlpack::capsule(
            py,
            Arc::clone(&self.batch),
            NonNull::new(start).expect("an arena does not lie at address 0"),
            self.dtype,
            &self.described().shape,
            max_version.is_some_and(|(major, _)| major >= 1),
        )
    }

    /// `(1, 0)`: the CPU.
    #[staticmethod]
    fn __dlpack_device__() -> (i32, i32) {
        dlpack::CPU
    }

    /// Element type: `uint8`, `int32`, `int64`, `bfloat16` or `float32`.
    #[getter]
    fn dtype(&self) -> &'static str {
        match self.described().dtype {
            Dtype::U8 => "uint8",
            Dtype::I32 => "int32",
            Dtype::I64 => "int64",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
        }
    }

    /// Length of each side; the last one is contiguous.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.described().shape)
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.described().range().len()
    }

    fn __repr__(&self) -> String {
        let tensor = self.described();
        format!("Tensor({}, {}, {:?})", tensor.name, self.dtype(), tensor.shape)
    }
}
