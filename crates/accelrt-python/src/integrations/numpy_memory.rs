//! Allocates NumPy's array memory from the host heap, through a memory handler of NEP 49.
//!
//! This module finds NumPy's C API table at run time. An array keeps the handler that allocated its
//! memory, and calls this handler to free the memory, on any thread at any time.
#![expect(unsafe_code, reason = "NumPy's table is one of C functions")]

use std::ffi::{CStr, c_char, c_uint, c_void};

use accelrt_mkl::internal::{Functions, host_heap};
use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::support::errors::OrRaise;

/// Indices in NumPy's C API table (`code_generators/numpy_api.py`). No entry ever moves.
const FEATURE_VERSION: usize = 211;
const SET_HANDLER: usize = 304;

/// `NPY_1_22_API_VERSION`, the first version of the table with memory handlers.
const LEAST_FEATURE_VERSION: c_uint = 0xf;

/// NumPy refuses a capsule with any other name.
const CAPSULE_NAME: &CStr = c"mem_handler";

/// NumPy's C structure `PyDataMem_Handler`, version 1.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

// SAFETY: every field is a constant, and the context is null. Threads only read the handler.
unsafe impl Sync for Handler {}

/// The handler for the host heap. A static, because arrays may refer to it until the process ends.
static HANDLER: Handler = Handler {
    name: {
        let (mut name, text, mut index) = ([0; 127], b"accelrt", 0);
        while index < text.len() {
            name[index] = text[index].cast_signed();
            index += 1;
        }
        name
    },
    version: 1,
    context: std::ptr::null_mut(),
    malloc,
    calloc,
    realloc,
    free,
};

extern "C" fn malloc(_: *mut c_void, bytes: usize) -> *mut c_void {
    host_heap::malloc(bytes, &Functions::LIBC)
}

extern "C" fn calloc(_: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    host_heap::calloc(count, bytes, &Functions::LIBC)
}

/// # Safety
/// `old` is null or memory from this handler, and NumPy uses only the result afterwards.
unsafe extern "C" fn realloc(_: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller, NumPy, passes null or memory that it has not freed, and gives it up.
    unsafe { host_heap::realloc(old, bytes, &Functions::LIBC) }
}

/// # Safety
/// `old` is memory from this handler, and NumPy frees it once.
unsafe extern "C" fn free(_: *mut c_void, old: *mut c_void, _bytes: usize) {
    // SAFETY: the caller, NumPy, passes memory of this handler and frees it once.
    unsafe { host_heap::free(old, &Functions::LIBC) }
}

/// Sets the handler that allocates the memory of new NumPy arrays in the current context of
/// `contextvars`, by default accelrt's handler. Returns the previous handler.
#[pyfunction]
#[pyo3(signature = (handler=None))]
pub(crate) fn exchange_numpy_handler<'py>(
    py: Python<'py>,
    handler: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let table = table_of_functions(py)?;
    let handler = if let Some(handler) = handler {
        handler.clone()
    } else {
        host_heap::open().or_raise()?;
        capsule(py)?
    };
    // SAFETY: the table has this entry, because `table_of_functions` checked the table's version.
    let place = unsafe { table.add(SET_HANDLER) };
    // SAFETY: the entry is inside the table, which NumPy never changes.
    let function = unsafe { *place };
    // SAFETY: in every version, this entry is `PyDataMem_SetHandler`, which has this type.
    let set = unsafe {
        std::mem::transmute::<
            *const c_void,
            unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject,
        >(function)
    };
    // SAFETY: the GIL is held; the capsule is checked, and NumPy takes its own reference.
    let previous = unsafe { set(handler.as_ptr()) };
    // SAFETY: `set` returned a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, previous) }
}

fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let pointer = (&raw const HANDLER).cast_mut().cast();
    // SAFETY: the GIL is held; the handler and the name are statics, which NumPy only reads.
    let made = unsafe { ffi::PyCapsule_New(pointer, CAPSULE_NAME.as_ptr(), None) };
    // SAFETY: `PyCapsule_New` returned a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

/// Imports NumPy and returns its C API table. Fails before NumPy 1.22, which has no handlers.
fn table_of_functions(py: Python<'_>) -> PyResult<*const *const c_void> {
    let numpy = py.import("numpy").map_err(|missing| {
        let error = PyImportError::new_err("numpy_memory needs NumPy, which cannot be imported");
        error.set_cause(py, Some(missing));
        error
    })?;
    let module = py
        .import("numpy._core._multiarray_umath")
        .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
    let capsule = module.getattr("_ARRAY_API")?;
    // SAFETY: the GIL is held. The call accepts any object, and raises for one that is no capsule.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
    if table.is_null() {
        return Err(PyErr::fetch(py));
    }
    let table = table.cast::<*const c_void>().cast_const();
    // SAFETY: every NumPy for this interpreter's version has this entry.
    let place = unsafe { table.add(FEATURE_VERSION) };
    // SAFETY: the entry is inside the table, which NumPy never changes.
    let function = unsafe { *place };
    // SAFETY: in every version, this entry is `PyArray_GetNDArrayCFeatureVersion` of this type.
    let version =
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_uint>(function) };
    // SAFETY: the function takes no arguments, and the GIL is held.
    let version = unsafe { version() };
    if version < LEAST_FEATURE_VERSION {
        let has = numpy.getattr("__version__")?;
        let text = format!("numpy_memory needs NumPy 1.22 or newer: this is {has}");
        return Err(PyRuntimeError::new_err(text));
    }
    Ok(table)
}
