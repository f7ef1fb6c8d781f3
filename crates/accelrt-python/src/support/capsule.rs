//! The capsule `_C_API`: the table of the functions for C, for extension modules of the process.
#![expect(unsafe_code, reason = "makes a capsule of an address")]

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

const NAME: &CStr = c"accelrt._core._C_API";

/// Adds the capsule to the module, over a table that is valid for ever.
pub(crate) fn add(module: &Bound<'_, PyModule>, table: *const c_void) -> PyResult<()> {
    let table = NonNull::new(table.cast_mut()).expect("a table has an address");
    // SAFETY: the table is a static of this library, which is never unloaded; it needs no
    // destructor, and readers of the capsule do not write to it.
    let capsule = unsafe { PyCapsule::new_with_pointer(module.py(), table, NAME) }?;
    module.setattr("_C_API", capsule) // not `add`, which would make it public
}
