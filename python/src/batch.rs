//! A batch as Python sees it: a mapping of names to tensors over one piece of memory.
//!
//! Every [`Tensor`] and every DLPack capsule made of it holds the engine's batch; the memory goes
//! back to the engine's pool when the last of them goes.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyKeyError};
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

    fn find(&self, name: &str) -> Option<Tensor> {
        self.tensors().find(|tensor| tensor.described().name == name)
    }
}

#[pymethods]
impl Batch {
    fn __getitem__(&self, name: &str) -> PyResult<Tensor> {
        self.find(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    fn __contains__(&self, name: &str) -> bool {
        self.find(name).is_some()
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
    fn get(&self, py: Python<'_>, name: &str, default: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        match self.find(name) {
            Some(tensor) => Ok(Py::new(py, tensor)?.into_any()),
            None => Ok(default.unwrap_or_else(|| py.None())),
        }
    }

    /// The tensors as NumPy arrays over the same memory (bf16 as its bits in uint16).
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let from_dlpack = py.import("numpy")?.getattr("from_dlpack")?;
        let arrays = PyDict::new(py);
        for tensor in self.tensors() {
            let name = tensor.described().name;
            arrays.set_item(name, from_dlpack.call1((tensor.into_bits(),))?)?;
        }
        Ok(arrays)
    }

    /// The tensors as torch tensors over the same memory.
    fn torch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let from_dlpack = py.import("torch")?.getattr("from_dlpack")?;
        let tensors = PyDict::new(py);
        for tensor in self.tensors() {
            let name = tensor.described().name;
            tensors.set_item(name, from_dlpack.call1((tensor,))?)?;
        }
        Ok(tensors)
    }

    /// The tensors on a device, finished: ready for `model(**batch.to(device))`.
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

    /// What finishes `u8` pixels: `pixels`, `mean`, `std`, `patch_size`, `temporal_patch_size`.
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

    /// The name of the batch: its lane and its number in the lane.
    #[getter]
    fn name(&self) -> (u32, u64) {
        let name = self.inner.anywhere().name();
        (name.lane, name.number)
    }

    /// The samples in it, as pairs of dataset and row.
    #[getter]
    fn samples(&self) -> Vec<(u32, u64)> {
        self.inner.anywhere().samples().iter().map(|id| (id.dataset, id.row)).collect()
    }

    /// Bytes of all tensors.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensors().map(|tensor| tensor.nbytes()).sum()
    }

    /// Where to go on after this batch.
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

/// One tensor of a batch, on the CPU; leaves by DLPack.
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

    #[staticmethod]
    fn __dlpack_device__() -> (i32, i32) {
        dlpack::CPU
    }

    /// Element type: `uint8`, `uint16`, `int32`, `int64`, `bfloat16` or `float32`.
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

    /// Length of each side.
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
