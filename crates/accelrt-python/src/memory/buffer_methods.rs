//! The methods of `accelrt.Buffer`.
#![expect(unsafe_code, reason = "the buffer protocol is given C structures")]

use std::ffi::c_int;

use accelrt::internal::fork;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyTuple};

use crate::memory::buffer::PyBuffer;
use crate::memory::copies::current_stream;
use crate::memory::dlpack_export::{ExportRequest, device_of};
use crate::memory::element::BYTE;
use crate::memory::exposure::{self, Exposure};
use crate::memory::transfers::{copy_into, copy_to_host};
use crate::memory::view::PyView;
use crate::memory::view_memory::{ViewMemory, export};
use crate::objects::device::PyDevice;
use crate::objects::stream::{PyStream, state_of, stream_argument};
use crate::support::deferred_drops::drop_parked;
use crate::support::errors::OrRaise;
use crate::support::object_text::type_name;
use crate::support::parameters::{self, Flag, integer};
use crate::support::stacks::StackScope;
use crate::support::waiting::enqueue;

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
