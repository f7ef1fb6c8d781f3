//! `Buffer.copy_` and `Buffer.copy_to`: copies between buffers and the memory of other objects.

use std::sync::Arc;

use accelrt::{Buffer, Device, DeviceKind, Runtime, Transfer};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

use crate::memory::buffer::{PyBuffer, allocate};
use crate::memory::buffer_state::BufferState;
use crate::memory::copies::{
    copy_between_buffers, current_stream, fill, from_host, from_lender, to_host,
};
use crate::memory::dlpack_import::{ImportOptions, import_from};
use crate::memory::foreign_memory::ForeignMemory;
use crate::memory::view::PyView;
use crate::memory::view_memory::ViewMemory;
use crate::support::deferred_drops::drop_parked;
use crate::support::errors::OrRaise;
use crate::support::object_text::type_name;
use crate::support::stacks::FreedWithStack;
use crate::support::waiting::{check_may_wait, without_gil};

pub(crate) fn copy_into(
    target: &BufferState,
    source: &Bound<'_, PyAny>,
    is_non_blocking: bool,
) -> PyResult<()> {
    let py = source.py();
    copy(py, is_non_blocking, || target.write(py, |target| from_any(target, source)))
}

/// Enqueues a copy of an object's bytes into a buffer. Does not wait for the copy.
fn from_any(target: &Buffer, source: &Bound<'_, PyAny>) -> PyResult<Transfer> {
    let py = source.py();
    if let Some(buffer) = buffer_of(source) {
        return copy_between_buffers(py, target, &buffer);
    }
    if let Some(memory) = foreign_memory(source) {
        let transfer = from_lender(py, target, Arc::clone(&memory))?;
        memory.record_use(&current_stream(target).or_raise()?)?;
        return Ok(transfer);
    }
    from_host(py, target, Arc::new(host_memory("source", source, false)?))
}

pub(crate) fn copy_into_view(
    view: &PyView,
    source: &Bound<'_, PyAny>,
    is_non_blocking: bool,
) -> PyResult<()> {
    let py = source.py();
    let staged = || {
        if let Some(buffer) = buffer_of(source) {
            return Ok(FreedWithStack::new(buffer));
        }
        let whole = staging(py, view)?;
        from_any(&whole, source)?;
        Ok(whole)
    };
    copy(py, is_non_blocking, || write_view(py, view, |target| from_any(target, source), staged))
}

pub(crate) fn fill_view(py: Python<'_>, view: &PyView, pattern: &[u8]) -> PyResult<()> {
    let staged = || {
        let whole = staging(py, view)?;
        fill(py, &whole, pattern)?;
        Ok(whole)
    };
    let filled = write_view(py, view, |target| fill(py, target, pattern), staged);
    drop_parked(py); // after errors too
    filled.map(drop)
}

/// Writes the memory of a view. `write` writes a buffer, and the view's owner counts this write.
/// Foreign memory receives a copy of the buffer that `staged` creates.
fn write_view(
    py: Python<'_>,
    view: &PyView,
    write: impl FnOnce(&Buffer) -> PyResult<Transfer>,
    staged: impl FnOnce() -> PyResult<FreedWithStack<Buffer>>,
) -> PyResult<Transfer> {
    match &*view.memory {
        ViewMemory::Ours(buffer) => write_counted(py, buffer, view.owner.as_ref(), write),
        ViewMemory::Foreign(memory, _) => {
            check_may_be_written(memory)?;
            to_lender(py, &*staged()?, memory)
        }
    }
}

/// Enqueues a copy of a buffer into foreign memory. Later exports of this memory wait for the copy.
fn to_lender(py: Python<'_>, source: &Buffer, target: &Arc<ForeignMemory>) -> PyResult<Transfer> {
    let transfer = to_host(py, source, ForeignMemory::part(target, 0..target.bytes))?;
    target.record_use(&current_stream(source).or_raise()?)?;
    Ok(transfer)
}

fn check_may_be_written(memory: &ForeignMemory) -> PyResult<()> {
    let ForeignMemory { bytes, device, is_read_only, .. } = *memory;
    if is_read_only {
        let text = format!("the view's {bytes} bytes of {device} are read-only");
        return Err(PyBufferError::new_err(text));
    }
    if device.kind() != DeviceKind::CPU {
        let text =
            format!("the view's {bytes} bytes of {device} are others', which read them only");
        return Err(PyBufferError::new_err(text));
    }
    Ok(())
}

/// Allocates a cpu buffer of the view's size, for contents that a task copies to foreign memory.
fn staging(py: Python<'_>, view: &PyView) -> PyResult<FreedWithStack<Buffer>> {
    let staged = allocate(py, view.memory.nbytes(), Device::cpu(0), Runtime::origin)?;
    Ok(FreedWithStack::new(staged))
}

pub(crate) fn copy_to_host(
    source: &Buffer,
    target: &Bound<'_, PyAny>,
    is_non_blocking: bool,
) -> PyResult<()> {
    let py = target.py();
    copy(py, is_non_blocking, || {
        if let Some(transfer) =
            write_if_buffer(target, |buffer| copy_between_buffers(py, buffer, source))
        {
            return transfer;
        }
        if let Some(memory) = foreign_memory(target) {
            check_may_be_written(&memory)?;
            return to_lender(py, source, &memory);
        }
        to_host(py, source, host_memory("target", target, true)?)
    })
}

/// Calls `write` on the memory of a buffer object or of a view of a buffer, and counts a successful
/// write in its version. `None` for other objects.
pub(crate) fn write_if_buffer<T>(
    target: &Bound<'_, PyAny>,
    write: impl FnOnce(&Buffer) -> PyResult<T>,
) -> Option<PyResult<T>> {
    if let Ok(buffer) = target.cast::<PyBuffer>() {
        return Some(buffer.get().state.write(target.py(), write));
    }
    let PyView { memory, owner, .. } = target.cast::<PyView>().ok()?.get();
    let ViewMemory::Ours(buffer) = &**memory else { return None };
    Some(write_counted(target.py(), buffer, owner.as_ref(), write))
}

/// Calls `write` on the memory of a view. The view's owner, if any, counts the write.
fn write_counted<T>(
    py: Python<'_>,
    buffer: &Buffer,
    owner: Option<&Py<PyBuffer>>,
    write: impl FnOnce(&Buffer) -> PyResult<T>,
) -> PyResult<T> {
    match owner {
        Some(owner) => owner.get().state.write(py, |_| write(buffer)),
        None => write(buffer),
    }
}

pub(crate) fn buffer_of(object: &Bound<'_, PyAny>) -> Option<Buffer> {
    if let Ok(buffer) = object.cast::<PyBuffer>() {
        return Some(buffer.get().state.buffer(object.py()));
    }
    match &*object.cast::<PyView>().ok()?.get().memory {
        ViewMemory::Ours(buffer) => Some(buffer.clone()),
        ViewMemory::Foreign(..) => None,
    }
}

pub(crate) fn foreign_memory(object: &Bound<'_, PyAny>) -> Option<Arc<ForeignMemory>> {
    match &*object.cast::<PyView>().ok()?.get().memory {
        ViewMemory::Foreign(memory, _) => Some(Arc::clone(memory)),
        ViewMemory::Ours(_) => None,
    }
}

fn host_memory(what: &str, object: &Bound<'_, PyAny>, is_written: bool) -> PyResult<ForeignMemory> {
    if let Some(memory) = ForeignMemory::of_exporter(what, object, is_written)? {
        return Ok(memory);
    }
    if object.hasattr("__dlpack__")? {
        // A write must reach the object's own memory, so read-only memory and copies are refused.
        let refused = is_written.then_some(false);
        let options = ImportOptions { is_read_only: refused, copy: refused, only_bytes: true };
        let view = Bound::new(object.py(), import_from(object, options)?)?;
        if let Some(memory) = ForeignMemory::of_exporter(what, view.as_any(), is_written)? {
            return Ok(memory);
        }
    }
    Err(PyTypeError::new_err(format!(
        "{what} must be an accelrt.Buffer or have the buffer protocol or DLPack, not {}",
        type_name(object)
    )))
}

/// Calls `enqueue`, and waits for a blocking copy without the GIL. Signal handlers run meanwhile.
fn copy(
    py: Python<'_>,
    is_non_blocking: bool,
    enqueue: impl FnOnce() -> PyResult<Transfer>,
) -> PyResult<()> {
    if !is_non_blocking {
        check_may_wait()?;
    }
    let transfer = enqueue();
    drop_parked(py); // after errors too: a refused copy parks its memory
    let transfer = transfer?;
    if is_non_blocking {
        return Ok(());
    }
    let is_done = || transfer.is_done();
    without_gil(py, is_done, |is_interrupted| transfer.wait_unless(is_interrupted))
}
