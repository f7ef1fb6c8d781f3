//! The methods of `accelrt.View`.
#![expect(unsafe_code, reason = "the buffer protocol is given C structures")]

use std::ffi::c_int;

use accelrt::{DeviceKind, Runtime};
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::memory::buffer::PyBuffer;
use crate::memory::dlpack_export::{ExportRequest, device_of};
use crate::memory::element::{BYTE, Element};
use crate::memory::exposure::{self, Exposure};
use crate::memory::shape;
use crate::memory::transfers::{copy_into_view, fill_view};
use crate::memory::value::bytes_of;
use crate::memory::view::PyView;
use crate::memory::view_memory::{MemoryExport, ViewMemory};
use crate::objects::device::PyDevice;
use crate::support::errors::OrRaise;
use crate::support::parameters::{self, Flag};

#[pymethods]
impl PyView {
    /// The name of the element type, by NumPy's names. NumPy has no bfloat16 and no 8-bit floats;
    /// NumPy and the buffer protocol show elements of these types as bytes.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.element.name
    }

    /// The number of elements in each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.nbytes()
    }

    /// The device of the memory; cpu:0 for host memory of other libraries.
    #[getter]
    fn device(&self) -> PyDevice {
        self.memory.device().into()
    }

    /// True for memory that must not be written.
    #[getter]
    fn readonly(&self) -> bool {
        self.memory.is_read_only()
    }

    /// The device address of the first byte. Does not block: tasks may still be writing there.
    fn data_ptr(&self) -> PyResult<u64> {
        self.memory.address()
    }

    /// NumPy's array interface. After the first read, the buffer cannot be released while this view
    /// lives.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.array_interface(py, 3, self.memory.export(py)?)
    }

    /// The array interface of SYCL libraries; only on xpu. Reading it waits for the work that uses
    /// the memory. After the first read, the buffer cannot be released while this view lives.
    #[getter]
    fn __sycl_usm_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let device = self.memory.device();
        if device.kind() != DeviceKind::XPU {
            let text = format!("memory of {device} is no unified shared memory");
            return Err(PyAttributeError::new_err(text));
        }
        let dict = self.array_interface(py, 1, self.memory.export_on_device(py)?)?;
        dict.set_item("offset", 0)?;
        let is_gpu = Runtime::global().or_raise()?.properties(device).or_raise()?.is_gpu;
        let kind = if is_gpu { "gpu" } else { "cpu" };
        dict.set_item("syclobj", format!("opencl:{kind}:{}", device.index()))?;
        Ok(dict)
    }

    /// A DLPack capsule of the memory. The capsule is versioned when `max_version` is (1, 0) or
    /// later; `BufferError` for read-only memory otherwise. `stream` must be None or -1.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<Flag<'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = self.memory.device();
        let request = ExportRequest::read(device, stream, max_version, dl_device, copy)?;
        request.capsule(py, &self.memory, self.element, &self.shape)
    }

    /// The device's type and index in DLPack.
    fn __dlpack_device__(&self) -> (i32, i32) {
        device_of(self.memory.device())
    }

    /// Copies a buffer or view, or the bytes of an object with the buffer protocol or DLPack, of
    /// the same size into this view; returns this view. Bytes are copied unchanged: a source with
    /// another element type is refused, unless one of the two types is uint8. Runs on the current
    /// stream of the device. Blocks, without the GIL, until the copy is done, unless
    /// `non_blocking`.
    #[pyo3(
        signature = (source, non_blocking=Flag::Is(false)),
        text_signature = "($self, source, non_blocking=False)"
    )]
    fn copy_<'py>(
        slf: Bound<'py, Self>,
        source: &Bound<'py, PyAny>,
        non_blocking: Flag<'_>,
    ) -> PyResult<Bound<'py, Self>> {
        let is_non_blocking = non_blocking.get("non_blocking")?;
        slf.get().check_same_type(source)?;
        copy_into_view(slf.get(), source, is_non_blocking)?;
        Ok(slf)
    }

    /// Sets every element to a number, rounded to the nearest one of the element type, on the
    /// current stream of the device; returns this view. Does not wait for the fill. `OverflowError`
    /// for a number outside the type's range.
    ///
    /// >>> import accelrt
    /// >>> memoryview(accelrt.empty(8).view("float32").fill_(1.5)).tolist()
    /// [1.5, 1.5]
    fn fill_<'py>(slf: Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let pattern = bytes_of(slf.get().element, value)?;
        fill_view(slf.py(), slf.get(), &pattern)?;
        Ok(slf)
    }

    /// A view of a range of rows, which the first dimension counts.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Self { memory, owner, element, shape, .. } = self;
        let rows = parameters::range("View", key, self.__len__()?)?;
        let row_bytes = shape::bytes_of_shape(&shape[1..], element.item_bytes);
        let part = memory.part(rows.start * row_bytes..rows.end * row_bytes)?;
        let shape = [&[rows.len()], &shape[1..]].concat();
        let owner = owner.as_ref().map(|owner| owner.clone_ref(key.py()));
        Ok(Self { owner, ..Self::new(part, *element, shape) })
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().copied();
        first.ok_or_else(|| PyTypeError::new_err("a view without dimensions has no length"))
    }

    /// Another view of the same memory.
    fn __copy__(&self, py: Python<'_>) -> Self {
        let memory = ViewMemory::clone(&self.memory);
        let owner = self.owner.as_ref().map(|owner| owner.clone_ref(py));
        Self { owner, ..Self::new(memory, self.element, self.shape.clone()) }
    }

    /// A view of a copy in new memory: that of `Buffer.clone` for a buffer's memory. Memory of
    /// another library is copied to its device, which waits for the copy.
    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        let ViewMemory::Ours(buffer) = &*self.memory else { return self.copied(py) };
        let copy = Py::new(py, PyBuffer::cloned(py, buffer)?)?;
        let memory = ViewMemory::Ours(copy.get().state.buffer(py));
        Ok(Self { owner: Some(copy), ..Self::new(memory, self.element, self.shape.clone()) })
    }

    #[expect(clippy::unused_self, reason = "the protocol's signature")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("cannot pickle 'accelrt.View' object"))
    }

    /// # Safety
    /// Called only by the interpreter, with a structure to fill.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let Self { memory, element, shape, .. } = slf.get();
        let export = memory.export(slf.py())?;
        let (element, shape) = element.for_numpy(shape);
        let (format, item_bytes) = (element.format(), element.item_bytes);
        // SAFETY: the interpreter passes a structure to fill for this object.
        unsafe { Exposure { export, format, item_bytes, shape }.fill(slf.as_any(), view, flags) }
    }

    /// # Safety
    /// Called only by the interpreter, with a structure that `__getbuffer__` filled.
    #[expect(clippy::unused_self, reason = "the protocol's signature")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `__getbuffer__` filled the structure, and the interpreter releases it once.
        unsafe { exposure::release(view) };
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (shape, name) = (self.shape(py)?.repr()?, self.element.name);
        let shape = shape.to_string_lossy();
        let device = self.memory.device();
        Ok(format!("accelrt.View(dtype='{name}', shape={shape}, device='{device}')"))
    }
}

impl PyView {
    fn check_same_type(&self, source: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = match source.cast::<Self>() {
            Ok(view) => Some(view.get().element),
            Err(_) => source.getattr("dtype").ok().and_then(|it| Element::extract(&it).ok()),
        };
        let (own, is_bytes) = (self.element, |element: Element| element == BYTE);
        match given {
            Some(given) if given != own && !is_bytes(given) && !is_bytes(own) => {
                let (own, given) = (own.name, given.name);
                let text = format!("source must have elements of {own}, as this view, not {given}");
                Err(PyTypeError::new_err(text))
            }
            _ => Ok(()),
        }
    }

    /// Creates the entries of both array interfaces. Stores `export`, so the memory stays exported.
    fn array_interface<'py>(
        &self,
        py: Python<'py>,
        version: u8,
        export: MemoryExport,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let (element, shape) = self.element.for_numpy(&self.shape);
        dict.set_item("version", version)?;
        dict.set_item("shape", PyTuple::new(py, shape)?)?;
        dict.set_item("typestr", element.type_string())?;
        dict.set_item("data", (export.address, export.is_read_only))?;
        dict.set_item("strides", py.None())?;
        let _ = self.interface.set(export); // result ignored: one export is enough
        Ok(dict)
    }
}
