//! One tensor of a batch as Python sees it. It holds the batch, and so does every DLPack capsule made
//! of it.

use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use stoker_engine::loader as engine;
use stoker_engine::pack;
use stoker_engine::sample::Dtype;

use crate::dlpack::{self, DataType};
use crate::home::Home;

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
    pub(crate) fn new(batch: Arc<Home<engine::Batch>>, index: usize) -> Self {
        let dtype = match batch.anywhere().tensors()[index].dtype {
            Dtype::U8 => DataType::U8,
            Dtype::I32 => DataType::I32,
            Dtype::I64 => DataType::I64,
            Dtype::Bf16 => DataType::BF16,
            Dtype::F32 => DataType::F32,
        };
        Self { batch, index, dtype }
    }

    pub(crate) fn described(&self) -> &pack::Tensor {
        &self.batch.anywhere().tensors()[self.index]
    }

    /// The same memory under a type that NumPy has.
    pub(crate) fn into_bits(mut self) -> Self {
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
        let form = match max_version {
            Some((1.., _)) if self.batch.anywhere().lease().is_shared() => dlpack::Wish::ReadOnly,
            Some((1.., _)) => dlpack::Wish::Versioned,
            _ => dlpack::Wish::Plain,
        };
        dlpack::capsule(
            py,
            Arc::clone(&self.batch),
            NonNull::new(start).expect("an arena does not lie at address 0"),
            self.dtype,
            &self.described().shape,
            form,
        )
    }

    /// `(1, 0)`: the CPU.
    #[staticmethod]
    fn __dlpack_device__() -> (i32, i32) {
        dlpack::CPU
    }

    /// Element type: `uint8`, `int32`, `int64`, `bfloat16` or `float32`.
    #[getter]
    pub(crate) fn dtype(&self) -> &'static str {
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
    pub(crate) fn nbytes(&self) -> usize {
        self.described().range().len()
    }

    fn __repr__(&self) -> String {
        let tensor = self.described();
        format!("Tensor({}, {}, {:?})", tensor.name, self.dtype(), tensor.shape)
    }
}
