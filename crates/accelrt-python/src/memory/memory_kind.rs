//! Whose memory a value uses, for stores that free memory of a device.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::memory::transfers::{buffer_of, foreign_memory};
use crate::support::object_text::type_name;

/// The kind of memory of a buffer or view: "device", "pinned", "shared" or "foreign". Shared memory
/// counts against its device, pinned memory does not.
#[pyfunction]
pub(crate) fn memory_kind(memory: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    if let Some(buffer) = buffer_of(memory) {
        let is_pinned = buffer.is_pinned();
        let of_device = || if buffer.is_shared() { "shared" } else { "device" };
        return Ok(if is_pinned { "pinned" } else { of_device() });
    }
    foreign_memory(memory).map(|_| "foreign").ok_or_else(|| {
        PyTypeError::new_err(format!("expected a Buffer or a View, not {}", type_name(memory)))
    })
}
