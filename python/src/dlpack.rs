//! Tensors leave as DLPack capsules: a description of memory that stays where it is, and a function
//! to call when the last reader is done with it.
//!
//! The layout is the one of `dlpack.h` 1.0 (<https://github.com/dmlc/dlpack>), in its old form
//! (capsule `dltensor`) and its versioned one (`dltensor_versioned`). Each capsule holds the batch;
//! whoever takes the tensor out of the capsule renames it (`used_…`) and calls the deleter itself,
//! on any thread and without the GIL; an untouched capsule calls it when it is collected.
#![expect(unsafe_code, reason = "DLPack is a C interface: pointers and a deleter")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// `kDLCPU`, device 0.
pub(crate) const CPU: (i32, i32) = (1, 0);

/// Element type: `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

impl DataType {
    pub(crate) const I32: Self = Self { code: 0, bits: 32, lanes: 1 };
    pub(crate) const I64: Self = Self { code: 0, bits: 64, lanes: 1 };
    pub(crate) const U8: Self = Self { code: 1, bits: 8, lanes: 1 };
    pub(crate) const U16: Self = Self { code: 1, bits: 16, lanes: 1 };
    pub(crate) const F32: Self = Self { code: 2, bits: 32, lanes: 1 };
    pub(crate) const BF16: Self = Self { code: 4, bits: 16, lanes: 1 };
}

/// `DLTensor`.
#[repr(C)]
struct Description {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Plain {
    tensor: Description,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
    flags: u64,
    tensor: Description,
}

/// What the two forms have in common.
trait Form: Sized {
    const NAME: &'static CStr;
    fn new(tensor: Description, deleter: unsafe extern "C" fn(*mut Self), flags: u64) -> Self;
}

impl Form for Plain {
    const NAME: &'static CStr = c"dltensor";
    fn new(tensor: Description, deleter: unsafe extern "C" fn(*mut Self), _flags: u64) -> Self {
        Self { tensor, context: std::ptr::null_mut(), deleter }
    }
}

impl Form for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    fn new(tensor: Description, deleter: unsafe extern "C" fn(*mut Self), flags: u64) -> Self {
        Self { version: [1, 0], context: std::ptr::null_mut(), deleter, flags, tensor }
    }
}

/// What a capsule points to. The form comes first, so a pointer to it is a pointer to the whole.
#[repr(C)]
struct Export<F, M> {
    form: F,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    memory: M,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

/// Which form of capsule to make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The old one, which can't say that memory is read-only.
    Plain,
    /// The versioned one.
    Versioned,
    /// The versioned one, over memory that must not be written.
    ReadOnly,
}

/// Makes a capsule over the tensor that begins at `start`: memory that is valid, and used by nobody
/// else, as long as `memory` lives.
pub(crate) fn capsule<'py, M: Send + 'static>(
    py: Python<'py>,
    memory: M,
    start: NonNull<u8>,
    dtype: DataType,
    shape: &[usize],
    wish: Wish,
) -> PyResult<Bound<'py, PyCapsule>> {
    let shape = shape.iter().map(|&side| side as i64).collect();
    match wish {
        Wish::Plain => export::<Plain, M>(py, memory, start, dtype, shape, 0),
        Wish::Versioned => export::<Versioned, M>(py, memory, start, dtype, shape, 0),
        Wish::ReadOnly => export::<Versioned, M>(py, memory, start, dtype, shape, READ_ONLY),
    }
}

fn export<F: Form, M: Send + 'static>(
    py: Python<'_>,
    memory: M,
    start: NonNull<u8>,
    dtype: DataType,
    mut shape: Box<[i64]>,
    flags: u64,
) -> PyResult<Bound<'_, PyCapsule>> {
    let mut strides = strides(&shape);
    let tensor = Description {
        data: start.as_ptr().cast(),
        device: [CPU.0, CPU.1],
        ndim: shape.len() as i32,
        dtype,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let form = F::new(tensor, delete::<F, M>, flags);
    let export = NonNull::from(Box::leak(Box::new(Export { form, shape, strides, memory })));
    // SAFETY: the pointer is valid until `delete`, which the capsule's destructor calls once unless
    // a consumer has renamed the capsule and so taken that duty over.
    let capsule = unsafe {
        PyCapsule::new_with_pointer_and_destructor(
            py,
            export.cast(),
            F::NAME,
            Some(collect::<F, M>),
        )
    };
    if capsule.is_err() {
        // SAFETY: no capsule was made, so nobody else has the pointer.
        unsafe { delete::<F, M>(export.cast().as_ptr()) };
    }
    capsule
}

/// Row-major strides in elements.
fn strides(shape: &[i64]) -> Box<[i64]> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides.into()
}

/// Frees an export; the last one over a batch gives its memory back. Touches nothing of Python.
unsafe extern "C" fn delete<F, M>(form: *mut F) {
    // SAFETY: `form` is the first field of an `Export` that `export` boxed, and the protocol calls
    // the deleter exactly once.
    drop(unsafe { Box::from_raw(form.cast::<Export<F, M>>()) });
}

/// The capsule's destructor: frees what no consumer has taken.
unsafe extern "C" fn collect<F: Form, M>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that it destroys. Under its first name the capsule
    // still owns the export; a consumer that took it has renamed it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, F::NAME.as_ptr()) == 1 {
            delete::<F, M>(ffi::PyCapsule_GetPointer(capsule, F::NAME.as_ptr()).cast());
        }
    }
}
