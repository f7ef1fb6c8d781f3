//! The state of the work that uses a buffer, for code that must not wait for it.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::memory::transfers::{buffer_of, foreign_memory};
use crate::objects::stream::state_of;
use crate::support::object_text::type_name;

/// The state of the recorded uses of a buffer or view: "done", "pending", "failed" or "released".
/// Does not block. Neither raises nor ends a failure of the stream.
#[pyfunction]
pub(crate) fn work_state(memory: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    if let Some(buffer) = buffer_of(memory) {
        let is_released = buffer.is_released();
        let state = || state_of(buffer.is_unused(), buffer.has_failed());
        return Ok(if is_released { "released" } else { state() });
    }
    let lent = foreign_memory(memory);
    let lent = lent.ok_or_else(|| {
        PyTypeError::new_err(format!("expected a Buffer or a View, not {}", type_name(memory)))
    })?;
    let uses = lent.uses();
    Ok(uses.map_or("done", |uses| state_of(uses.is_unused(), uses.has_failed())))
}
