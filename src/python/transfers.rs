//! `Buffer.copy_` and `Buffer.copy_to`: to and from buffers and memory of the host.
#![expect(unsafe_code, reason = "copies to and from addresses that exporters give")]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::{Buffer, Transfer};
use crate::device::DeviceKind;
use crate::error::Error;
use crate::python::buffer::PyBuffer;
use crate::python::deferred_drops::drop_parked;
use crate::python::host_memory::{HostMemory, no_memory};
use crate::python::waiting::without_gil;
use crate::runtime::Runtime;
use crate::stream::Stream;

/// Copies `source` into a buffer.
pub(super) fn copy_into(
    target: &Buffer,
    source: &Bound<'_, PyAny>,
    is_non_blocking: bool,
) -> PyResult<()> {
    let transfer = if let Ok(source) = source.cast::<PyBuffer>() {
        between(target, &source.get().buffer)
    } else {
        let memory = HostMemory::of_exporter(source, false)?;
        from_host(target, memory.ok_or_else(|| no_memory("source", source))?)
    };
    end(source.py(), transfer, is_non_blocking)
}

/// Copies a buffer into `target`.
pub(super) fn copy_out(
    source: &Buffer,
    target: &Bound<'_, PyAny>,
    is_non_blocking: bool,
) -> PyResult<()> {
    let transfer = if let Ok(target) = target.cast::<PyBuffer>() {
        between(&target.get().buffer, source)
    } else {
        let memory = HostMemory::of_exporter(target, true)?;
        to_host(source, memory.ok_or_else(|| no_memory("target", target))?)
    };
    end(target.py(), transfer, is_non_blocking)
}

fn between(target: &Buffer, source: &Buffer) -> PyResult<Transfer> {
    // The host's cores do not reach a device's memory; the device reaches the host's.
    let is_on_host = |buffer: &Buffer| buffer.device().kind() == DeviceKind::Cpu;
    let is_to_host = is_on_host(target) && !is_on_host(source);
    let stream = current_stream(if is_to_host { source } else { target })?;
    Ok(target.copy_from(source, &stream)?)
}

/// Copies memory of the host into a buffer and holds it until that is done. Does not block.
pub(super) fn from_host(target: &Buffer, source: HostMemory) -> PyResult<Transfer> {
    let stream = current_stream(target)?;
    check_apart(target, &source)?;
    let (address, bytes) = (source.address, source.bytes);
    // SAFETY: the lender keeps the bytes valid until the owner is dropped; as everywhere in Python
    // it is the program that does not write them meanwhile.
    Ok(unsafe { target.copy_from_host_range(address, bytes, source, &stream) }?)
}

fn to_host(source: &Buffer, target: HostMemory) -> PyResult<Transfer> {
    let stream = current_stream(source)?;
    check_apart(source, &target)?;
    let (address, bytes) = (target.address, target.bytes);
    // SAFETY: as above; the exporter said that the bytes may be written.
    Ok(unsafe { source.copy_to_host_range(address, bytes, target, &stream) }?)
}

/// An array over a buffer is memory of the host too.
fn check_apart(buffer: &Buffer, memory: &HostMemory) -> PyResult<()> {
    if buffer.is_host_accessible() && memory.overlaps(buffer.address()?, buffer.nbytes()) {
        let text = "Cannot copy between a buffer and memory that it overlaps";
        return Err(PyValueError::new_err(text));
    }
    Ok(())
}

/// Waits for a transfer where that is asked for. Signal handlers run meanwhile.
fn end(py: Python<'_>, transfer: PyResult<Transfer>, is_non_blocking: bool) -> PyResult<()> {
    drop_parked(py); // also the memory of a copy that was refused
    let transfer = transfer?;
    if is_non_blocking {
        return Ok(());
    }
    without_gil(py, |is_interrupted| transfer.wait_unless(is_interrupted))
}

/// The current stream of this thread on a buffer's device.
pub(super) fn current_stream(buffer: &Buffer) -> Result<Stream, Error> {
    Runtime::global()?.current_stream_of(buffer.device())
}
