//! `accelrt.Buffer`, and the functions that create one.
#![expect(unsafe_code, reason = "the buffer protocol is given C structures")]

use std::ffi::c_int;

use accelrt::internal::{Interrupt, Origin, fork};
use accelrt::{Buffer, Device, Result, Runtime};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyTuple};

use crate::memory::buffer_state::{BufferState, is_inference_mode};
use crate::memory::dlpack_export::{ExportRequest, device_of};
use crate::memory::element::BYTE;
use crate::memory::exposure::{self, Exposure};
use crate::memory::transfers::{copy_between_buffers, copy_into, copy_to_host, current_stream};
use crate::memory::view::PyView;
use crate::memory::view_memory::{ViewMemory, export};
use crate::objects::device::{PyDevice, device_or_default};
use crate::objects::stream::{PyStream, state_of, stream_argument};
use crate::objects::task_contexts;
use crate::support::deferred_drops::drop_parked;
use crate::support::errors::OrRaise;
use crate::support::object_text::type_name;
use crate::support::parameters::{self, Flag, integer, size};
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

#[pymethods]
impl PyBuffer {
    /// Size in bytes.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.state.buffer(py).nbytes()
    }

    /// The device of the memory; for pinned host memory the device named in the request.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyDevice {
        self.state.buffer(py).device().into()
    }

    /// The stream that was current when the buffer was created.
    #[getter]
    fn stream(&self, py: Python<'_>) -> PyStream {
        PyStream { stream: self.state.buffer(py).stream() }
    }

    /// The device address of the first byte; 0 for an empty allocation. Fails after a release. Does
    /// not block: tasks may still be writing to the memory.
    fn data_ptr(&self, py: Python<'_>) -> PyResult<u64> {
        self.state.buffer(py).address().or_raise()
    }

    /// The number of writes by `copy_`, `fill_` and `copy_to`, through this buffer and those that
    /// share its version: slices, views and `detach()`. Writes by kernels, native functions and
    /// users of the exported bytes are not counted. `RuntimeError` for a buffer created in
    /// inference mode.
    ///
    /// >>> import accelrt
    /// >>> buffer = accelrt.zeros(8)
    /// >>> buffer[:4].fill_(1)._version, buffer._version, buffer.data._version
    /// (1, 1, 0)
    #[getter]
    fn _version(&self, py: Python<'_>) -> PyResult<u64> {
        self.state.version(py)
    }

    /// True for a buffer created in inference mode.
    fn is_inference(&self, py: Python<'_>) -> bool {
        self.state.is_inference(py)
    }

    /// Another buffer of the same memory, which shares its version.
    fn detach(&self, py: Python<'_>) -> Self {
        Self { state: self.state.view(py, self.state.buffer(py)) }
    }

    /// Another buffer of the same memory, with its own version, which starts at 0. Assigning a
    /// buffer replaces this buffer's memory by the memory of the assigned one, and leaves the
    /// version unchanged.
    #[getter]
    fn data(&self, py: Python<'_>) -> Self {
        Self { state: self.state.data(py) }
    }

    #[setter]
    fn set_data(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let other = other.cast::<Self>().map_err(|_| {
            let given = type_name(other);
            let text = format!("Variable data has to be a tensor, but got {given}");
            PyTypeError::new_err(text)
        })?;
        self.state.set_data(other.py(), &other.get().state);
        Ok(())
    }

    /// Copies a buffer or view, or the bytes of an object with the buffer protocol or DLPack, of
    /// the same size into this buffer; returns this buffer. Runs on the current stream of this
    /// buffer's device, or of the source's device for a copy from it to the cpu. Blocks, without
    /// the GIL, until the copy is done, unless `non_blocking`.
    #[pyo3(
        signature = (source, non_blocking=Flag::Is(false)),
        text_signature = "($self, source, non_blocking=False)"
    )]
    fn copy_<'py>(
        slf: Bound<'py, Self>,
        source: &Bound<'py, PyAny>,
        non_blocking: Flag<'_>,
    ) -> PyResult<Bound<'py, Self>> {
        copy_into(&slf.get().state, source, non_blocking.get("non_blocking")?)?;
        Ok(slf)
    }

    /// Copies this buffer into a buffer or view, or into a writable object with the buffer protocol
    /// or DLPack, of the same size. Runs on the current stream of the target's device, or of this
    /// buffer's device for a host target. Blocks, without the GIL, until the copy is done, unless
    /// `non_blocking`.
    #[pyo3(
        signature = (target, non_blocking=Flag::Is(false)),
        text_signature = "($self, target, non_blocking=False)"
    )]
    fn copy_to(&self, target: &Bound<'_, PyAny>, non_blocking: Flag<'_>) -> PyResult<()> {
        let source = self.state.buffer(target.py());
        copy_to_host(&source, target, non_blocking.get("non_blocking")?)
    }

    /// Sets every byte, on the current stream of this buffer's device; returns this buffer. Does
    /// not wait for the fill.
    fn fill_<'py>(slf: Bound<'py, Self>, byte: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let number = integer("byte", byte)?;
        let out_of_range = |_| PyValueError::new_err(format!("byte must be 0 to 255, not {byte}"));
        let byte = u8::try_from(number).map_err(out_of_range)?;
        slf.get().state.write(slf.py(), |buffer| {
            let stream = current_stream(buffer).or_raise()?;
            enqueue(slf.py(), &stream, || {
                // SAFETY: the program orders accesses to a buffer on several streams, as the
                // contract of Python's API requires.
                unsafe { buffer.fill_unordered(byte, &stream) }
            })
        })?;
        drop_parked(slf.py());
        Ok(slf)
    }

    /// A copy in new memory of the same kind on the same device. The copy is a task of that
    /// device's current stream; does not block.
    ///
    /// >>> import accelrt
    /// >>> bytes(accelrt.empty(2).fill_(7).clone())
    /// b'\x07\x07'
    fn clone(&self, py: Python<'_>) -> PyResult<Self> {
        Self::cloned(py, &self.state.buffer(py))
    }

    /// Another object for the same memory, as `buffer[:]`.
    fn __copy__(&self, py: Python<'_>) -> Self {
        Self { state: self.state.view(py, self.state.buffer(py)) }
    }

    /// As `clone`: the copies of buffers that share memory do not share it.
    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.clone(py)
    }

    /// The end of the `with` frees the memory, as `release` does.
    ///
    /// >>> import accelrt
    /// >>> with accelrt.zeros(8) as buffer:
    /// ...     _ = buffer.fill_(1)
    /// >>> buffer
    /// accelrt.Buffer(nbytes=8, device='cpu:0', released)
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().state.buffer(slf.py()).address().or_raise()?; // fails after a release
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let is_raising = exception.get_item(0).is_ok_and(|kind| !kind.is_none());
        match self.release(py) {
            // The memory stays allocated, because frames of the exception may hold an export.
            // Python raises the exception of the `with` body instead of this error.
            Err(_) if is_raising => Ok(()),
            released => released,
        }
    }

    /// Frees the memory after all work that is known to use it; a slice frees the memory of the
    /// whole buffer. `BufferError` while other code uses the bytes.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        drop_parked(py); // parked objects may hold exports
        let _stack = StackScope::of_free(py);
        self.state.buffer(py).release().or_raise()
    }

    /// Records that work enqueued on `stream` before this call may use the memory. Does not block.
    fn record_stream(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, stream) = (stream.py(), stream_argument("stream", stream)?);
        self.state.buffer(py).record_use(&stream.get().stream).or_raise()
    }

    /// A typed view, which keeps the memory alive. `dtype` is read as `numpy.dtype` reads it: a
    /// dtype, a scalar type, or a text such as "float32" or "<f4". Without `shape` the view has one
    /// dimension; an extent of -1 is computed from the other extents.
    #[pyo3(signature = (dtype, shape=None))]
    fn view(
        slf: &Bound<'_, Self>,
        dtype: &Bound<'_, PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyView> {
        PyView::of_buffer(slf, dtype, shape)
    }

    /// A DLPack capsule of the bytes; see `View.__dlpack__`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<Flag<'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffer = self.state.buffer(py);
        let request = ExportRequest::read(buffer.device(), stream, max_version, dl_device, copy)?;
        let shape = [buffer.nbytes()];
        request.capsule(py, &ViewMemory::Ours(buffer), BYTE, &shape)
    }

    /// The device's type and index in DLPack.
    fn __dlpack_device__(&self, py: Python<'_>) -> (i32, i32) {
        device_of(self.state.buffer(py).device())
    }

    /// NumPy reads this attribute after a failed `memoryview`, whose error NumPy drops. The
    /// attribute raises that error again.
    #[getter]
    fn __array_interface__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(slf.py());
        dict.set_item("version", 3)?;
        dict.set_item("shape", (slf.get().nbytes(slf.py()),))?;
        dict.set_item("typestr", BYTE.type_string())?;
        dict.set_item("data", PyMemoryView::from(slf)?)?;
        Ok(dict)
    }

    /// As `View.__sycl_usm_array_interface__`, for the bytes; only on xpu. Reading it does not
    /// prevent `release()`.
    #[getter]
    fn __sycl_usm_array_interface__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let view = PyView::of_bytes(slf.get().state.buffer(slf.py()));
        Bound::new(slf.py(), view)?.getattr("__sycl_usm_array_interface__")
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.nbytes(py)
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, buffer) = (key.py(), self.state.buffer(key.py()));
        let part = buffer.slice(parameters::range("Buffer", key, buffer.nbytes())?).or_raise()?;
        Ok(Self { state: self.state.view(py, part) })
    }

    /// # Safety
    /// Called only by the interpreter, with a structure to fill.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let buffer = slf.get().state.buffer(slf.py());
        let export = export(slf.py(), &buffer)?;
        let shape = vec![buffer.nbytes()];
        let exposure = Exposure { export, format: c"B".to_owned(), item_bytes: 1, shape };
        // SAFETY: the interpreter passes a structure to fill for this object.
        unsafe { exposure.fill(slf.as_any(), view, flags) }
    }

    /// # Safety
    /// Called only by the interpreter, with a structure that `__getbuffer__` filled.
    #[expect(clippy::unused_self, reason = "the protocol's signature")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `__getbuffer__` filled the structure, and the interpreter releases it once.
        unsafe { exposure::release(view) };
    }

    #[expect(clippy::unused_self, reason = "the protocol's signature")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("cannot pickle 'accelrt.Buffer' object"))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let buffer = self.state.buffer(py);
        let (bytes, device) = (buffer.nbytes(), buffer.device());
        let state = if fork::is_child() {
            "of the parent process" // threads of the parent may have held the locks
        } else if buffer.is_released() {
            "released"
        } else {
            state_of(buffer.is_unused(), buffer.has_failed())
        };
        format!("accelrt.Buffer(nbytes={bytes}, device='{device}', {state})")
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
        if let Some(buffer) = Buffer::hinted(bytes, None).or_raise()? {
            return Ok(PyBuffer { state: BufferState::new(buffer) });
        }
    }
    empty_on(py, bytes, device, parameters::alignment(alignment)?)
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

/// As `empty`, in host memory that the accelerator's devices access directly.
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
    if let Some(buffer) = Buffer::cached(&home, bytes, origin).or_raise()? {
        return Ok(buffer);
    }
    // The slow path may wait for pending frees.
    without_gil(
        py,
        || true,
        |is_interrupted| {
            let interrupt = &mut Interrupt::by(is_interrupted);
            Buffer::allocate(&home, bytes, origin, interrupt)
        },
    )
}
