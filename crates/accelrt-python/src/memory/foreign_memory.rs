//! Foreign memory, which an exporter of the buffer protocol or a DLPack producer lends.
#![expect(unsafe_code, reason = "the buffer protocol is one of C structures")]

use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use accelrt::{Buffer, Device, Runtime, Stream};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyString};
use pyo3::{ffi, intern};

use crate::memory::strided::{Strided, gather_words};
use crate::support::deferred_drops::{Lender, Parked, drop_parked, park};
use crate::support::errors::OrRaise;
use crate::support::object_text::type_name;
use crate::support::waiting::without_gil;

/// Contiguous foreign bytes of the host or of a named device, valid while this value exists. Any
/// thread may drop this value: it parks the lender, which releases the bytes later with the GIL.
pub(crate) struct ForeignMemory {
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) is_read_only: bool,
    pub(crate) device: Device,
    lender: Option<Box<dyn Lender>>,
    /// An empty buffer that records the uses of the whole memory, created at the first use.
    uses: Arc<OnceLock<Buffer>>,
    /// Keeps the whole memory alive when this value is a part of it.
    _whole: Option<Arc<ForeignMemory>>,
}

// SAFETY: the contracts of the engine's copies allow access to the bytes from any thread. The
// lender is used only with the GIL.
unsafe impl Send for ForeignMemory {}
// SAFETY: a shared reference only reads plain fields, and records uses in a synchronised buffer.
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    pub(crate) fn new(
        address: *mut u8,
        bytes: usize,
        is_read_only: bool,
        lender: Box<dyn Lender>,
    ) -> Self {
        let (device, lender, uses) = (Device::cpu(0), Some(lender), Arc::default());
        Self { address, bytes, is_read_only, device, lender, uses, _whole: None }
    }

    /// A part of the bytes, which keeps the whole memory alive.
    pub(crate) fn part(whole: &Arc<Self>, range: Range<usize>) -> Self {
        let Self { address, is_read_only, device, .. } = **whole;
        let (address, bytes) = (address.wrapping_add(range.start), range.len());
        let (kept, uses) = (Some(Arc::clone(whole)), Arc::clone(&whole.uses));
        Self { address, bytes, is_read_only, device, lender: None, uses, _whole: kept }
    }

    /// Records that all work enqueued on a stream until now may use the memory.
    pub(crate) fn record_use(&self, stream: &Stream) -> PyResult<()> {
        if self.uses.get().is_none() {
            // The result is ignored: `set` fails only when another thread has set a buffer first.
            let _ =
                self.uses.set(Runtime::global().or_raise()?.empty(0, stream.device()).or_raise()?);
        }
        self.uses.get().map_or(Ok(()), |uses| uses.record_use(stream).or_raise())
    }

    /// The buffer that records the uses of the memory; `None` before the first use.
    pub(crate) fn uses(&self) -> Option<&Buffer> {
        self.uses.get()
    }

    /// Waits, without the GIL, for the uses of the memory. Raises the failures of these uses.
    pub(crate) fn wait_for_uses(&self, py: Python<'_>) -> PyResult<()> {
        let Some(uses) = self.uses.get() else { return Ok(()) };
        without_gil(
            py,
            || uses.is_unused(),
            |is_interrupted| uses.wait_for_host_unless(is_interrupted),
        )
    }

    /// Borrows the bytes of an object with the buffer protocol; `None` for other objects. With
    /// `is_written`, the bytes must be writable and contiguous; otherwise, bytes that are not
    /// contiguous are copied. Raises the exporter's error with the name `what`, and `TypeError` for
    /// memory that holds references to Python objects.
    pub(crate) fn of_exporter(
        what: &str,
        object: &Bound<'_, PyAny>,
        is_written: bool,
    ) -> PyResult<Option<Self>> {
        let access = if is_written { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
        let exported = match acquire(object, access | ffi::PyBUF_C_CONTIGUOUS) {
            Err(refusal) if !is_written => match acquire(object, ffi::PyBUF_STRIDES) {
                Ok(Some(apart)) => return apart.gather(what, object.py()).map(Some),
                _ => Err(refusal),
            },
            exported => exported,
        };
        let exported = exported.map_err(|error| name_argument(what, object, error))?;
        exported.map(|exported| exported.checked(what, object.py())).transpose()
    }

    /// Takes ownership of `words`, of which the first `bytes` bytes are the memory.
    pub(crate) fn owned(words: Vec<u64>, bytes: usize) -> Self {
        let address = words.as_ptr().cast_mut().cast();
        Self::new(address, bytes, false, Box::new(words))
    }

    /// True when the ranges have a byte in common. An empty range has none.
    pub(crate) fn overlaps(&self, address: u64, bytes: usize) -> bool {
        let own = self.address.addr() as u64;
        let end = address.saturating_add(bytes as u64);
        own.max(address) < own.saturating_add(self.bytes as u64).min(end)
    }
}

impl Drop for ForeignMemory {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            park(Parked::Lender(lender));
        }
    }
}

/// A view of an exporter's bytes. Boxed, because an exporter may store pointers into the view.
pub(crate) struct Exported(pub(crate) Box<ffi::Py_buffer>);

// SAFETY: other threads only move the view. It is released with the GIL.
unsafe impl Send for Exported {}

impl Exported {
    /// Acquires the bytes of an object. `None` when the object has no buffer protocol.
    fn acquire(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Option<Self>> {
        if !has_buffer_protocol(object) {
            return Ok(None);
        }
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is live and the GIL is held; the boxed structure does not move.
        match unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => Ok(Some(Self(view))),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// The format (if the exporter gives one), the element size in bytes, and the shape.
    pub(crate) fn format_and_shape(&self) -> (Option<String>, usize, Vec<usize>) {
        let Self(view) = self;
        let format = (!view.format.is_null()).then(|| {
            // SAFETY: the exporter keeps the text alive as long as the view.
            unsafe { CStr::from_ptr(view.format) }.to_string_lossy().into_owned()
        });
        let count = usize::try_from(view.ndim).unwrap_or(0);
        let extents = if count == 0 || view.shape.is_null() {
            &[]
        } else {
            // SAFETY: a shape was requested, so the exporter stored one number per dimension.
            unsafe { std::slice::from_raw_parts(view.shape, count) }
        };
        let shape = extents.iter().map(|extent| usize::try_from(*extent).unwrap_or(0)).collect();
        (format, usize::try_from(view.itemsize).unwrap_or(1), shape)
    }

    /// Wraps the view as memory. `TypeError` if the memory holds references to Python objects.
    pub(crate) fn checked(self, what: &str, py: Python<'_>) -> PyResult<ForeignMemory> {
        let checked = self.without_objects(what, py)?;
        let Self(view) = &checked;
        let (address, is_read_only) = (view.buf.cast::<u8>(), view.readonly != 0);
        let bytes = usize::try_from(view.len).unwrap_or(0); // never negative
        Ok(ForeignMemory::new(address, bytes, is_read_only, Box::new(checked)))
    }

    /// Copies strided elements into contiguous memory. Releases the exporter right after the copy.
    fn gather(self, what: &str, py: Python<'_>) -> PyResult<ForeignMemory> {
        let checked = self.without_objects(what, py)?;
        let (_, item_bytes, shape) = checked.format_and_shape();
        let strides: &[isize] = if shape.is_empty() || checked.0.strides.is_null() {
            &[]
        } else {
            // SAFETY: strides were requested, so the exporter stored one stride per dimension.
            unsafe { std::slice::from_raw_parts(checked.0.strides, shape.len()) }
        };
        let elements = Strided::new(checked.0.buf.cast(), item_bytes, &shape, strides);
        // SAFETY: the exporter keeps the elements alive until the release. The program does not
        // write them during the call, as the contract of Python's API requires.
        let words = unsafe { gather_words(py, &elements) };
        Box::new(checked).take_back(py);
        Ok(ForeignMemory::owned(words?, elements.nbytes()))
    }

    /// Refuses memory that holds references to Python objects, because copies and native functions
    /// would not update the objects' reference counts.
    fn without_objects(self, what: &str, py: Python<'_>) -> PyResult<Self> {
        let (format, ..) = self.format_and_shape();
        let format = format.unwrap_or_else(|| "B".to_owned());
        // SAFETY: the pointer is null or refers to the exporter, which the view keeps alive.
        let exporter = unsafe { Bound::from_borrowed_ptr_or_opt(py, self.0.obj) };
        // ctypes describes packed structures and unions as bytes, even if their fields hold
        // objects.
        let may_hide = format.trim_start_matches(['<', '>']) == "B";
        let hides = || exporter.is_some_and(|it| may_hide && hides_objects(it).unwrap_or(true));
        if !has_objects(&format) && !hides() {
            return Ok(self);
        }
        Box::new(self).take_back(py);
        let text = format!("{what} must not hold Python objects: its format is {format:?}");
        Err(PyTypeError::new_err(text))
    }
}

/// Acquires the bytes of an object and, if possible, their format.
pub(crate) fn acquire(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Option<Exported>> {
    match Exported::acquire(object, flags | ffi::PyBUF_FORMAT) {
        // NumPy refuses the format of dates. An array without objects needs no format.
        Err(_) if is_without_objects(object) => Exported::acquire(object, flags),
        exported => exported,
    }
}

pub(crate) fn has_buffer_protocol(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is live and the GIL is held.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// True when a format of the buffer protocol may contain Python objects: an `O` outside the field
/// names, which are enclosed in colons. Also true for any `O` when names cannot be told from types,
/// because names of ctypes fields may contain colons.
fn has_objects(format: &str) -> bool {
    let is_word = |name: &str| name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    let pieces: Vec<&str> = format.split(':').collect();
    let has_odd_names =
        pieces.len().is_multiple_of(2) || !pieces.iter().skip(1).step_by(2).all(|it| is_word(it));
    let types = pieces.iter().step_by(if has_odd_names { 1 } else { 2 });
    types.into_iter().any(|types| types.contains('O'))
}

/// True when the exporter is a ctypes object that holds Python objects, or a memoryview of one.
fn hides_objects(exporter: Bound<'_, PyAny>) -> PyResult<bool> {
    let mut exporter = exporter;
    while exporter.is_exact_instance_of::<PyMemoryView>() {
        exporter = exporter.getattr(intern!(exporter.py(), "obj"))?;
    }
    holds_objects(&exporter.get_type())
}

/// True when a ctypes type holds references to Python objects, also inside of its arrays and
/// structures. False for types of other libraries.
fn holds_objects(kind: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = kind.py();
    if let Some(element) = kind.getattr_opt(intern!(py, "_type_"))? {
        if let Ok(letter) = element.cast::<PyString>() {
            return Ok(letter.to_str()? == "O");
        }
        // A pointer holds no reference, even if its target does.
        return Ok(kind.hasattr(intern!(py, "_length_"))? && holds_objects(&element)?);
    }
    for class in kind.getattr(intern!(py, "__mro__"))?.try_iter()? {
        let own = class?.getattr(intern!(py, "__dict__"))?;
        let fields = own.call_method1(intern!(py, "get"), (intern!(py, "_fields_"), ()))?;
        for field in fields.try_iter()? {
            if holds_objects(&field?.get_item(1)?)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// True when a NumPy array's dtype contains no Python objects.
fn is_without_objects(object: &Bound<'_, PyAny>) -> bool {
    let has_objects = object.getattr("dtype").and_then(|dtype| dtype.getattr("hasobject"));
    has_objects.and_then(|answer| answer.extract()).is_ok_and(|has_objects: bool| !has_objects)
}

/// Adds the argument's name to a plain `BufferError` or `ValueError`. Other errors stay unchanged.
pub(crate) fn name_argument(what: &str, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    let kind = error.get_type(py);
    let is_plain = [py.get_type::<PyBufferError>(), py.get_type::<PyValueError>()];
    if !is_plain.iter().any(|plain| kind.is(plain)) {
        return error;
    }
    let text = format!("{what} ({}): {}", type_name(object), error.value(py));
    let named = PyErr::from_type(kind, text);
    named.set_cause(py, Some(error));
    named
}

impl Lender for Exported {
    fn take_back(mut self: Box<Self>, _py: Python<'_>) {
        // SAFETY: `acquire` filled the structure. This call consumes the structure, with the GIL.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }
}

/// Drops all parked objects in its own drop. Declare it after the field whose drop may park them.
#[derive(Clone)]
pub(crate) struct ParkedDropper;

impl Drop for ParkedDropper {
    fn drop(&mut self) {
        Python::attach(drop_parked);
    }
}
