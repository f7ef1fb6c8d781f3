//! Enqueues copies between buffers and foreign memory, and fills of buffers.
#![expect(unsafe_code, reason = "copies to and from addresses that exporters give")]

use std::sync::Arc;

use accelrt::{Buffer, DeviceKind, Error, Runtime, Stream, Transfer};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

use crate::memory::foreign_memory::ForeignMemory;
use crate::objects::task_contexts;
use crate::support::errors::OrRaise;
use crate::support::waiting::enqueue;

pub(crate) fn copy_between_buffers(
    py: Python<'_>,
    target: &Buffer,
    source: &Buffer,
) -> PyResult<Transfer> {
    // A cpu stream cannot access a device's memory, but a device's stream can access the host's.
    let is_on_host = |buffer: &Buffer| buffer.device().kind() == DeviceKind::CPU;
    let is_to_host = is_on_host(target) && !is_on_host(source);
    let stream = current_stream(if is_to_host { source } else { target }).or_raise()?;
    enqueue(py, &stream, || {
        // SAFETY: the program orders accesses to a buffer on several streams, as the contract of
        // Python's API requires.
        unsafe { target.copy_from_unordered(source, &stream) }
    })
}

/// Enqueues a copy of host memory into a buffer. The task keeps the host memory alive.
pub(crate) fn from_host(
    py: Python<'_>,
    target: &Buffer,
    source: Arc<ForeignMemory>,
) -> PyResult<Transfer> {
    let stream = current_stream(target).or_raise()?;
    check_apart(target, &source)?;
    let (address, bytes) = (source.address, source.bytes);
    enqueue(py, &stream, || {
        // SAFETY: the lender keeps the bytes alive until the owner is dropped. As the contract of
        // Python's API requires, the program does not write the bytes until then, and orders
        // accesses to a buffer on several streams.
        unsafe { target.copy_from_host_range(address, bytes, source, &stream) }
    })
}

pub(crate) fn to_host(
    py: Python<'_>,
    source: &Buffer,
    target: ForeignMemory,
) -> PyResult<Transfer> {
    let stream = current_stream(source).or_raise()?;
    check_apart(source, &target)?;
    let (address, bytes) = (target.address, target.bytes);
    enqueue(py, &stream, || {
        // SAFETY: the lender keeps the bytes alive until the owner is dropped, and allows writes.
        // The program orders other accesses, as the contract of Python's API requires.
        unsafe { source.copy_to_host_range(address, bytes, target, &stream) }
    })
}

/// Refuses a copy between overlapping bytes, as of a NumPy array that shares the buffer's memory.
fn check_apart(buffer: &Buffer, memory: &ForeignMemory) -> PyResult<()> {
    if buffer.is_host_accessible() && memory.overlaps(buffer.address().or_raise()?, buffer.nbytes())
    {
        let text = "Cannot copy between a buffer and memory that it overlaps";
        return Err(PyValueError::new_err(text));
    }
    Ok(())
}

/// Copies foreign memory into a buffer. Memory outside of the host needs a buffer of its kind.
pub(crate) fn from_lender(
    py: Python<'_>,
    target: &Buffer,
    source: Arc<ForeignMemory>,
) -> PyResult<Transfer> {
    let (from, to) = (source.device, target.device());
    if from.kind() != DeviceKind::CPU && from.kind() != to.kind() {
        let text =
            format!("memory of {from} that others lend is copied into {} buffers", from.kind());
        return Err(PyBufferError::new_err(format!("{text} only, not into one of {to}")));
    }
    from_host(py, target, source)
}

/// A fill copies up to this many bytes from the host, then doubles them by copies in the buffer.
const SEED_BYTES: usize = 64 << 10;

pub(crate) fn fill(py: Python<'_>, target: &Buffer, pattern: &[u8]) -> PyResult<Transfer> {
    let stream = current_stream(target).or_raise()?;
    let is_one_byte = pattern.iter().all(|byte| *byte == pattern[0]);
    let (bytes, seed_bytes) = (target.nbytes(), target.nbytes().min(SEED_BYTES));
    if is_one_byte || bytes == 0 {
        return enqueue(py, &stream, || {
            // SAFETY: the program orders accesses to a buffer on several streams, as the contract
            // of Python's API requires.
            unsafe { target.fill_unordered(pattern[0], &stream) }
        });
    }
    let seed = pattern.repeat(seed_bytes / pattern.len());
    let (address, mut filled) = (seed.as_ptr(), seed_bytes);
    let mut transfer = enqueue(py, &stream, || {
        // SAFETY: the task owns `seed`. The program orders accesses to a buffer on several streams.
        unsafe {
            target.slice(..seed_bytes)?.copy_from_host_range(address, seed_bytes, seed, &stream)
        }
    })?;
    while filled < bytes {
        let more = filled.min(bytes - filled);
        let (from, to) =
            (target.slice(..more).or_raise()?, target.slice(filled..filled + more).or_raise()?);
        transfer = enqueue(py, &stream, || {
            // SAFETY: the stream orders this copy after the write of its source. The program orders
            // accesses on other streams.
            unsafe { to.copy_from_unordered(&from, &stream) }
        })?;
        filled += more;
    }
    Ok(transfer)
}

pub(crate) fn current_stream(buffer: &Buffer) -> Result<Stream, Error> {
    task_contexts::apply();
    Runtime::global()?.current_stream_of(buffer.device())
}
