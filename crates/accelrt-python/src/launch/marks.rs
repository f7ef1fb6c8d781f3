//! `accelrt.reads` and `accelrt.writes`: declare how a launched function accesses memory.

use accelrt::Stream;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::memory::buffer::PyBuffer;
use crate::memory::foreign_memory::has_buffer_protocol;
use crate::memory::view::{PyView, as_buffer};
use crate::memory::view_memory::ViewMemory;
use crate::support::errors::wrong_type;

/// How a launched function accesses the memory of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMark {
    /// Without a mark, the function may read and write the memory.
    Unmarked,
    Reads,
    Writes,
}

impl AccessMark {
    /// Whether the function writes the memory; `None` without a mark.
    pub(crate) fn writes(self) -> Option<bool> {
        match self {
            Self::Unmarked => None,
            Self::Reads => Some(false),
            Self::Writes => Some(true),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Unmarked => "reads and writes",
            Self::Reads => "reads",
            Self::Writes => "writes",
        }
    }
}

pub(crate) struct UsedMemory {
    pub(crate) memory: ViewMemory,
    pub(crate) mark: AccessMark,
}

impl UsedMemory {
    /// Takes the memory of a view. `BufferError`, which names `what`, for read-only memory without
    /// a `reads` mark.
    pub(crate) fn of_view(what: &str, view: &PyView, mark: AccessMark) -> PyResult<Self> {
        let memory = &view.memory;
        if mark != AccessMark::Reads && memory.is_read_only() {
            let (begin, bytes, access) = (memory.address()?, memory.nbytes(), mark.name());
            let text = format!("{what} {access} {bytes} read-only bytes at {begin:#x}");
            let advice = "accelrt.reads() of it says that the function only reads them";
            return Err(PyBufferError::new_err(format!("{text}: {advice}")));
        }
        Ok(Self { memory: ViewMemory::clone(memory), mark })
    }

    /// Records that all work enqueued on a stream until now may use foreign memory. The launch
    /// itself records the uses of buffers.
    pub(crate) fn record_foreign_use(&self, stream: &Stream) -> PyResult<()> {
        match &self.memory {
            ViewMemory::Foreign(memory, _) => memory.record_use(stream),
            ViewMemory::Ours(_) => Ok(()),
        }
    }
}

/// Splits a marked argument into its object and its mark. Returns any other argument unmarked.
pub(crate) fn unmarked<'a, 'py>(
    argument: &'a Bound<'py, PyAny>,
) -> (&'a Bound<'py, PyAny>, AccessMark) {
    match argument.cast::<PyMarked>().map(Bound::get) {
        Ok(PyMarked { memory, mark }) => (memory.bind(argument.py()), *mark),
        Err(_) => (argument, AccessMark::Unmarked),
    }
}

/// An argument of `Stream.launch` with its declared access; `accelrt.reads` and `accelrt.writes`
/// create it.
///
/// >>> import accelrt
/// >>> mark = accelrt.reads(accelrt.zeros(8))
/// >>> mark.access, mark.memory.nbytes
/// ('reads', 8)
#[pyclass(name = "Marked", module = "accelrt", weakref, frozen)]
pub(crate) struct PyMarked {
    pub(crate) memory: Py<PyAny>,
    pub(crate) mark: AccessMark,
}

#[pymethods]
impl PyMarked {
    /// The marked buffer, view or other object.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.memory.bind(py).clone()
    }

    /// "reads" or "writes".
    #[getter]
    fn access(&self) -> &'static str {
        self.mark.name()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let memory = self.memory.bind(py).repr()?;
        Ok(format!("accelrt.{}({})", self.mark.name(), memory.to_string_lossy()))
    }
}

/// Declares that the launched function only reads the memory of this argument of `Stream.launch`.
/// Takes a buffer, a view, an object with the buffer protocol, or one with `data_ptr()`. An
/// argument without a mark counts as read and written; read-only memory requires this mark.
///
/// >>> import accelrt, ctypes
/// >>> libc, buffer = ctypes.CDLL(None), accelrt.empty(4)
/// >>> stream = accelrt.Stream()
/// >>> stream.launch(libc.memcpy, accelrt.writes(buffer), accelrt.reads(b"text"), 4)
/// >>> stream.synchronize()
/// >>> bytes(buffer)
/// b'text'
#[pyfunction]
pub(crate) fn reads(x: &Bound<'_, PyAny>) -> PyResult<PyMarked> {
    mark_argument(x, AccessMark::Reads)
}

/// Declares that the launched function overwrites the memory of this argument of `Stream.launch`
/// and does not read the previous contents. Takes the same objects as `reads`; `BufferError` for
/// read-only memory.
#[pyfunction]
pub(crate) fn writes(x: &Bound<'_, PyAny>) -> PyResult<PyMarked> {
    mark_argument(x, AccessMark::Writes)
}

fn mark_argument(x: &Bound<'_, PyAny>, mark: AccessMark) -> PyResult<PyMarked> {
    let py = x.py();
    let is_memory = x.is_instance_of::<PyBuffer>() || x.is_instance_of::<PyView>();
    let memory = if is_memory || has_address(x) {
        x.clone()
    } else if has_buffer_protocol(x) {
        Bound::new(py, as_buffer(x)?)?.into_any()
    } else if x.is_instance_of::<PyMarked>() {
        let text = format!("x is marked already: {}", x.repr()?.to_string_lossy());
        return Err(PyTypeError::new_err(text));
    } else {
        let expected = "an accelrt.Buffer or View, or have the buffer protocol or data_ptr()";
        return Err(wrong_type("x", expected, x));
    };
    if let Ok(view) = memory.cast::<PyView>() {
        UsedMemory::of_view("accelrt.writes(): the function", view.get(), mark)?;
    }
    Ok(PyMarked { memory: memory.unbind(), mark })
}

fn has_address(x: &Bound<'_, PyAny>) -> bool {
    x.getattr(intern!(x.py(), "data_ptr")).is_ok_and(|method| method.is_callable())
}
