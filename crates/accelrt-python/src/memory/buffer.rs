//! `accelrt.Buffer`, and the functions that create one.
#![expect(unsafe_code, reason = "fills new memory, which no other code has")]

use accelrt::internal::{Interrupt, NotServed, Origin};
use accelrt::{Buffer, Device, Result, Runtime};
use pyo3::prelude::*;

use crate::memory::buffer_state::{BufferState, is_inference_mode};
use crate::memory::copies::copy_between_buffers;
use crate::objects::device::device_or_default;
use crate::objects::task_contexts;
use crate::support::deferred_drops::drop_parked;
use crate::support::errors::OrRaise;
use crate::support::parameters::{self, size};
use crate::support::stacks::{self, StackScope};
use crate::support::waiting::{enqueue, without_gil};

/// Memory on a device, freed in stream order.
///
/// Slices share the memory and keep it alive. `release()`, or the drop of the last buffer or slice,
/// frees the memory after all work that is known to use it. On the cpu, and for pinned or shared
/// memory of another device, a buffer supports the buffer protocol, which waits for that work.
///
/// >>> import accelrt
/// >>> buffer = accelrt.zeros(8)
/// >>> buffer[2:4].copy_(b"ab").nbytes
/// 2
/// >>> bytes(buffer)
/// b'\x00\x00ab\x00\x00\x00\x00'
#[pyclass(name = "Buffer", module = "accelrt", weakref, frozen)]
pub(crate) struct PyBuffer {
    pub(crate) state: BufferState,
}

impl PyBuffer {
    /// A copy in new memory of the same kind, as a task of the current stream.
    pub(crate) fn cloned(py: Python<'_>, source: &Buffer) -> PyResult<Self> {
        source.address().or_raise()?; // fails after a release, before the allocation
        let origin = if source.is_pinned() {
            Runtime::pinned_origin
        } else if source.is_shared() {
            Runtime::shared_origin
        } else {
            Runtime::origin
        };
        let copy = allocate(py, source.nbytes(), source.device(), origin)?;
        copy_between_buffers(py, &copy, source)?;
        Ok(Self { state: BufferState::in_mode(copy) })
    }
}

/// Allocates memory with unspecified contents. The default device is that of the innermost
/// `with device(…)`, else the current one. The address is a multiple of 512 bytes, or of
/// `alignment`, a power of two up to 2 MiB. When memory is short, waits for pending frees if they
/// suffice; else raises `OutOfMemoryError`.
///
/// >>> import accelrt
/// >>> accelrt.empty(1024, device="cpu:0")
/// accelrt.Buffer(nbytes=1024, device='cpu:0', done)
/// >>> accelrt.empty(1024, alignment=1 << 20).data_ptr() % (1 << 20)
/// 0
#[pyfunction]
#[pyo3(signature = (nbytes, *, device=None, alignment=None))]
#[inline(always)]
pub(crate) fn empty(
    nbytes: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    alignment: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyBuffer> {
    if stacks::are_wanted() {
        return empty_in_scope(nbytes, device, alignment);
    }
    empty_now(nbytes, device, alignment)
}

/// Apart from [`empty`], which is short without it.
#[cold]
#[inline(never)]
fn empty_in_scope(
    nbytes: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    alignment: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyBuffer> {
    let _stack = StackScope::of_allocation(nbytes.py());
    empty_now(nbytes, device, alignment)
}

#[inline(always)]
fn empty_now(
    nbytes: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    alignment: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyBuffer> {
    let (py, bytes) = (nbytes.py(), size("nbytes", nbytes)?);
    if device.is_none() && alignment.is_none() {
        drop_parked(py);
        task_contexts::apply();
        match Buffer::hinted(bytes, None) {
            Ok(buffer) => return Ok(PyBuffer { state: BufferState::new(buffer) }),
            Err(reason) if matches!(*reason, NotServed::Unknown) => {}
            Err(reason) => return empty_later(py, *reason),
        }
    }
    empty_on(py, bytes, device, parameters::alignment(alignment)?)
}

#[cold]
fn empty_later(py: Python<'_>, reason: NotServed) -> PyResult<PyBuffer> {
    Ok(PyBuffer { state: BufferState::new(finish(py, reason)?) })
}

/// Goes on, without the GIL, with a request that may wait for pending frees.
fn finish(py: Python<'_>, reason: NotServed) -> PyResult<Buffer> {
    let rest = match reason {
        NotServed::Later(rest) => rest,
        NotServed::Failed(error) => return Err(error).or_raise(),
        NotServed::Unknown => unreachable!("the thread's stream and the origin are known"),
    };
    let go_on = |is_interrupted: &mut dyn FnMut() -> bool| {
        Buffer::finish(rest, &mut Interrupt::by(is_interrupted))
    };
    without_gil(py, || true, go_on)
}

#[cold]
fn empty_on(
    py: Python<'_>,
    bytes: usize,
    named: Option<&Bound<'_, PyAny>>,
    align_bytes: usize,
) -> PyResult<PyBuffer> {
    let runtime = Runtime::of_process().or_raise()?;
    let device = device_or_default(runtime, named)?;
    if named.is_none() && !is_inference_mode() {
        // Sets the hint before the allocation, during which a signal handler may change the hint.
        runtime.set_thread_hint(device).or_raise()?;
    }
    let buffer = allocate_in_scope(py, bytes, device, |runtime, device| {
        Ok(Origin { align_bytes, ..runtime.origin(device)? })
    })?;
    Ok(PyBuffer { state: BufferState::in_mode(buffer) })
}

/// As `empty`, filled with zeros by a task of the current stream.
///
/// >>> import accelrt
/// >>> bytes(accelrt.zeros(3))
/// b'\x00\x00\x00'
#[pyfunction]
#[pyo3(signature = (nbytes, *, device=None, alignment=None))]
pub(crate) fn zeros(
    nbytes: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    alignment: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyBuffer> {
    let zeros = empty(nbytes, device, alignment)?;
    let buffer = zeros.state.buffer(nbytes.py());
    let home = buffer.stream();
    enqueue(nbytes.py(), &home, || {
        // SAFETY: no other code has the buffer. The home stream orders earlier uses of the memory
        // before this fill.
        unsafe { buffer.fill_unordered(0, &home) }
    })?;
    Ok(zeros)
}

/// As `empty`, in host memory that the accelerator's devices access directly. The address is a
/// multiple of 64 bytes.
///
/// >>> import accelrt
/// >>> accelrt.empty_pinned(4096).nbytes
/// 4096
#[pyfunction]
pub(crate) fn empty_pinned(nbytes: &Bound<'_, PyAny>) -> PyResult<PyBuffer> {
    let bytes = size("nbytes", nbytes)?;
    task_contexts::apply();
    let device = Runtime::of_process().or_raise()?.current_device().or_raise()?;
    let buffer = allocate(nbytes.py(), bytes, device, Runtime::pinned_origin)?;
    Ok(PyBuffer { state: BufferState::in_mode(buffer) })
}

/// As `empty`, in memory that the device shares with the host. On every kind, the buffer protocol,
/// NumPy and `__array_interface__` can access the bytes; each access waits for the work that uses
/// them. The bytes count against the device's memory and in `shared_memory_stats`. `TypeError` on a
/// device that shares no memory with the host.
///
/// >>> import accelrt
/// >>> bytes(accelrt.empty_shared(2).fill_(7))
/// b'\x07\x07'
#[pyfunction]
#[pyo3(signature = (nbytes, *, device=None))]
pub(crate) fn empty_shared(
    nbytes: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyBuffer> {
    let bytes = size("nbytes", nbytes)?;
    let device = device_or_default(Runtime::of_process().or_raise()?, device)?;
    let buffer = allocate(nbytes.py(), bytes, device, Runtime::shared_origin)?;
    Ok(PyBuffer { state: BufferState::in_mode(buffer) })
}

/// Allocates with the device's current stream as the home, from what `origin` returns for the
/// device. May wait, without the GIL, for frees.
pub(crate) fn allocate(
    py: Python<'_>,
    bytes: usize,
    device: Device,
    origin: impl FnOnce(&Runtime, Device) -> Result<Origin>,
) -> PyResult<Buffer> {
    let _stack = StackScope::of_allocation(py);
    allocate_in_scope(py, bytes, device, origin)
}

/// As [`allocate`], inside of a caller's scope.
fn allocate_in_scope(
    py: Python<'_>,
    bytes: usize,
    device: Device,
    origin: impl FnOnce(&Runtime, Device) -> Result<Origin>,
) -> PyResult<Buffer> {
    drop_parked(py);
    task_contexts::apply();
    let runtime = Runtime::of_process().or_raise()?;
    let (home, origin) =
        (runtime.current_stream_of(device).or_raise()?, &origin(runtime, device).or_raise()?);
    Buffer::at_once(&home, bytes, origin).or_else(|reason| finish(py, *reason))
}
