//! NumPy's memory of arrays, served by the heap over the host cache: the handler of NEP 49.
//!
//! NumPy is found at run time, through the table of its C interface. Arrays keep the handler that
//! made them, so memory from this one comes back to it wherever and whenever an array dies.
#![expect(unsafe_code, reason = "NumPy's table is one of C functions")]

use std::ffi::{CStr, c_char, c_uint, c_void};

use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::integrations::host_heap::{self, Functions};

/// Places in the table, of `numpy/core/code_generators/numpy_api.py`: they never change.
const FEATURE_VERSION: usize = 211;
const SET_HANDLER: usize = 304;

/// `NPY_1_22_API_VERSION`: from here on the table has handlers.
const LEAST_FEATURE_VERSION: c_uint = 0xf;

/// NumPy's name for a capsule of a handler.
const CAPSULE_NAME: &CStr = c"mem_handler";

/// `PyDataMem_Handler`, version 1.
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

// SAFETY: plain values that never change; the context is null.
unsafe impl Sync for Handler {}

/// Lives as long as the process, as its arrays may.
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
/// NumPy gives null or memory from this handler, and from then on uses the result.
unsafe extern "C" fn realloc(_: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { host_heap::realloc(old, bytes, &Functions::LIBC) }
}

/// # Safety
/// NumPy gives back memory from this handler, once.
unsafe extern "C" fn free(_: *mut c_void, old: *mut c_void, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { host_heap::free(old, &Functions::LIBC) }
}

/// Makes `handler` the one that new arrays of this context get their memory from, by default
/// accelrt's; the one that was.
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
        host_heap::open()?;
        capsule(py)?
    };
    // SAFETY: the table has that many places, as its version says.
    let place = unsafe { table.add(SET_HANDLER) };
    // SAFETY: as above.
    let function = unsafe { *place };
    // SAFETY: the function at this place has this type in every version.
    let set = unsafe {
        std::mem::transmute::<
            *const c_void,
            unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject,
        >(function)
    };
    // SAFETY: with the GIL; the capsule is checked, and NumPy takes a reference of its own.
    let previous = unsafe { set(handler.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, previous) }
}

/// A capsule of accelrt's handler.
fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let pointer = (&raw const HANDLER).cast_mut().cast();
    // SAFETY: with the GIL; both live as long as the process, and NumPy reads the handler only.
    let made = unsafe { ffi::PyCapsule_New(pointer, CAPSULE_NAME.as_ptr(), None) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

/// NumPy's table of C functions, of a version with handlers. Imports NumPy.
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
    // SAFETY: with the GIL; any object may be given, and one that is no capsule raises.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
    if table.is_null() {
        return Err(PyErr::fetch(py));
    }
    let table = table.cast::<*const c_void>().cast_const();
    // SAFETY: every NumPy for this interpreter's version has this entry.
    let place = unsafe { table.add(FEATURE_VERSION) };
    // SAFETY: as above.
    let function = unsafe { *place };
    // SAFETY: the function at this place has this type in every version.
    let version =
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_uint>(function) };
    // SAFETY: without arguments, with the GIL.
    let version = unsafe { version() };
    if version < LEAST_FEATURE_VERSION {
        let has = numpy.getattr("__version__")?;
        let text = format!("numpy_memory needs NumPy 1.22 or newer: this is {has}");
        return Err(PyRuntimeError::new_err(text));
    }
    Ok(table)
}
