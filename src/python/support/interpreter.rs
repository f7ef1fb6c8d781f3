//! The interpreter that the module is in: the main one, and no other.
#![expect(unsafe_code, reason = "asks the interpreter for its number")]

use pyo3::exceptions::PyImportError;
use pyo3::{ffi, prelude::*};

/// Fails in a sub-interpreter: the Python objects kept here belong to one interpreter, and the end
/// of another one would be taken for the end of the process.
pub(crate) fn check_main(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the GIL is held, so that this thread has an interpreter.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: it lives as long as this thread is in it.
    let number = unsafe { ffi::PyInterpreterState_GetID(interpreter) };
    if number == 0 {
        return Ok(());
    }
    let text = format!("accelrt is for the main interpreter of a process, not for no. {number}");
    Err(PyImportError::new_err(text))
}
