//! `accelrt.View`: typed memory with a shape, for other libraries.

use std::sync::{Arc, OnceLock};

use accelrt::Buffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::buffer::PyBuffer;
use crate::memory::element::{BYTE, Element};
use crate::memory::foreign_memory::{ForeignMemory, acquire, name_argument};
use crate::memory::shape;
use crate::memory::view_memory::{MemoryExport, ViewMemory};
use crate::support::errors::OrRaise;
use crate::support::object_text::type_name;
use crate::support::stacks::FreedWithStack;

/// Memory of a buffer or of another library's object, with an element type and a shape, contiguous
/// in C order. A view keeps the buffer or object alive.
///
/// Views support DLPack and, where the host reaches the memory as on the cpu, the buffer protocol
/// and NumPy's array interface; each export waits for the work that uses the memory. `Buffer.copy_`
/// and `copy_to` take views as well as buffers.
///
/// >>> import accelrt
/// >>> view = accelrt.zeros(24).view("float32", (2, 3))
/// >>> memoryview(view).tolist()
/// [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
#[pyclass(name = "View", module = "accelrt", weakref, frozen)]
pub(crate) struct PyView {
    /// The export for the array interfaces. Declared before `memory`, so that it drops first.
    pub(crate) interface: OnceLock<MemoryExport>,
    pub(crate) memory: FreedWithStack<ViewMemory>,
    /// The buffer whose version counts writes to the memory, if the memory is a buffer's.
    pub(crate) owner: Option<Py<PyBuffer>>,
    pub(crate) element: Element,
    pub(crate) shape: Vec<usize>,
}

impl PyView {
    pub(crate) fn of_buffer(
        owner: &Bound<'_, PyBuffer>,
        dtype: &Bound<'_, PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let element = Element::extract(dtype)?;
        let buffer = owner.get().state.buffer(owner.py());
        let (name, item_bytes, bytes) = (element.name, element.item_bytes, buffer.nbytes());
        let address = buffer.address().or_raise()?;
        if !element.may_begin_at(address) {
            return Err(PyValueError::new_err(misaligned("the buffer", address, element)));
        }
        let shape = match shape {
            Some(shape) => shape::read(shape)?,
            None if bytes.is_multiple_of(item_bytes) => vec![shape::INFERRED],
            None => {
                let text = format!("{bytes} bytes are no whole number of {name} elements");
                return Err(PyValueError::new_err(text));
            }
        };
        let shape = shape::infer(&shape, element, bytes)?;
        let view = Self::new(ViewMemory::Ours(buffer), element, shape);
        Ok(Self { owner: Some(owner.clone().unbind()), ..view })
    }

    pub(crate) fn of_bytes(buffer: Buffer) -> Self {
        let shape = vec![buffer.nbytes()];
        Self::new(ViewMemory::Ours(buffer), BYTE, shape)
    }

    pub(crate) fn foreign(memory: ForeignMemory, element: Element, shape: Vec<usize>) -> Self {
        Self::new(ViewMemory::foreign(Arc::new(memory)), element, shape)
    }

    /// Copies the memory into a new buffer and waits. Returns the copy with this type and shape.
    pub(crate) fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let copy = self.memory.copied(py)?;
        Ok(Self::new(ViewMemory::Ours(copy), self.element, self.shape.clone()))
    }

    /// True when the view keeps an export for array interfaces.
    pub(crate) fn has_interface(&self) -> bool {
        self.interface.get().is_some()
    }

    /// Makes the view read-only. The memory stays exported while the view exists.
    pub(crate) fn read_only(self, py: Python<'_>) -> PyResult<Self> {
        let (bytes, device) = (self.memory.nbytes(), self.memory.device());
        let export = Box::new(self.memory.export_on_device(py)?);
        let mut memory = ForeignMemory::new(export.pointer(), bytes, true, export);
        memory.device = device;
        Ok(Self::foreign(memory, self.element, self.shape))
    }

    pub(crate) fn new(memory: ViewMemory, element: Element, shape: Vec<usize>) -> Self {
        let memory = FreedWithStack::new(memory);
        Self { interface: OnceLock::new(), memory, owner: None, element, shape }
    }
}

pub(crate) fn misaligned(what: &str, address: u64, element: Element) -> String {
    let (name, align_bytes) = (element.name, element.align_bytes());
    format!("{what} begins at {address:#x}, and {name} is aligned to {align_bytes} bytes")
}

/// A typed view of the bytes of an object with the buffer protocol, without a copy. The view has
/// bytes as elements when it cannot have the object's element type. Raises the object's own error
/// for memory that is not contiguous, and `BufferError` for memory that is not aligned for its
/// element type.
///
/// >>> import accelrt, array
/// >>> view = accelrt.as_buffer(array.array("d", [1, 2, 3]))
/// >>> view.dtype, view.shape
/// ('float64', (3,))
#[pyfunction]
pub(crate) fn as_buffer(obj: &Bound<'_, PyAny>) -> PyResult<PyView> {
    let exported = acquire(obj, ffi::PyBUF_C_CONTIGUOUS);
    let exported = exported.map_err(|error| name_argument("obj", obj, error))?;
    let exported = exported.ok_or_else(|| {
        PyTypeError::new_err(format!("obj must have the buffer protocol, not {}", type_name(obj)))
    })?;
    let (format, item_bytes, shape) = exported.format_and_shape();
    let memory = exported.checked("obj", obj.py())?;
    let named = || Element::extract(&obj.getattr("dtype").ok()?).ok();
    let known = match format {
        Some(format) => Element::of_format(&format, item_bytes),
        None if item_bytes == 1 => named().or(Some(BYTE)),
        None => named().filter(|element| element.item_bytes == item_bytes),
    };
    let known = known.map(|element| (element, shape));
    let (element, shape) = known.unwrap_or_else(|| (BYTE, vec![memory.bytes]));
    let address = memory.address.addr() as u64;
    if memory.bytes > 0 && !element.may_begin_at(address) {
        return Err(PyBufferError::new_err(misaligned("the memory of obj", address, element)));
    }
    Ok(PyView::foreign(memory, element, shape))
}
