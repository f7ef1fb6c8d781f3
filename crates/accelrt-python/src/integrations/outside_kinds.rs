//! Kinds from outside: `accelrt.load_kind`, and what `ACCELRT_KINDS` names.
#![expect(unsafe_code, reason = "opens the library that a program names")]

use std::path::PathBuf;

use accelrt::Runtime;
use accelrt::internal::{KindLibrary, fork, load_environment};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::support::errors::OrRaise;

/// Load a library of a kind of device and return the kind's name; see docs/devices.md.
///
/// The library exports `accelrt_backend_table`. Call this before the first use of a device: the
/// runtime has the kinds that were there when it began. A library is never closed.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts an owned path")]
pub(crate) fn load_kind(library: PathBuf) -> PyResult<&'static str> {
    fork::check().or_raise()?;
    let path = library.to_str().ok_or_else(|| {
        PyValueError::new_err(format!("library must be a path in UTF-8, not {}", library.display()))
    })?;
    if Runtime::existing_of_process().is_some() {
        return Err(PyRuntimeError::new_err(format!(
            "load_kind({path:?}) comes too late: a device was used before, and the runtime has \
             the kinds that were there then. Call it first, or set ACCELRT_KINDS"
        )));
    }
    // SAFETY: the program that names a library vouches for it, as for every one that it loads.
    let library = unsafe { KindLibrary::open(path) }.or_raise()?;
    Ok(library.register().or_raise()?.name())
}

/// Loads what `ACCELRT_KINDS` names, at the import. What is wrong is raised by the first call that
/// needs a device.
pub(crate) fn load_named() {
    let _ = load_environment();
}
