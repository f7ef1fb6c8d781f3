//! Checks that the module runs in the main interpreter.
#![expect(unsafe_code, reason = "asks the interpreter for its number")]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Fails in a sub-interpreter. The module's Python objects belong to one interpreter, and the
/// runtime shuts down for good when this interpreter exits.
pub(crate) fn check_main(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the GIL is held, so this thread has an interpreter.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter lives as long as this thread is attached to it.
    let number = unsafe { ffi::PyInterpreterState_GetID(interpreter) };
    if number == 0 {
        return Ok(());
    }
    let text = format!("accelrt is for the main interpreter of a process, not for no. {number}");
    Err(PyImportError::new_err(text))
}
