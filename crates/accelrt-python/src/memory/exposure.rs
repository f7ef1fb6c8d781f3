//! Fills the structures of Python's buffer protocol for buffers and views, and releases them.
#![expect(unsafe_code, reason = "the buffer protocol is one of C structures")]

use std::ffi::{CString, c_int};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::memory::shape::bytes_of_shape;
use crate::memory::view_memory::MemoryExport;
use crate::support::stacks::FreedWithStack;

/// Memory and its description, for a consumer of the buffer protocol.
pub(crate) struct Exposure {
    pub(crate) export: MemoryExport,
    pub(crate) format: CString,
    pub(crate) item_bytes: usize,
    pub(crate) shape: Vec<usize>,
}

/// The data behind `Py_buffer::internal`. Lives until the consumer releases the `Py_buffer`.
struct ExposedMemory {
    _export: MemoryExport,
    format: CString,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

/// The bit of `PyBUF_F_CONTIGUOUS` beyond `PyBUF_STRIDES`.
const FORTRAN_ORDER: c_int = ffi::PyBUF_F_CONTIGUOUS & !ffi::PyBUF_STRIDES;

impl Exposure {
    /// Fills the consumer's structure, or fails when the memory cannot meet `flags`. After a
    /// success, the interpreter calls [`release`].
    ///
    /// # Safety
    /// `view` must be the interpreter's argument of `__getbuffer__` on `owner`.
    pub(crate) unsafe fn fill(
        self,
        owner: &Bound<'_, PyAny>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if self.export.is_read_only && flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("memory is read-only"));
        }
        let is_empty = self.shape.contains(&0);
        // C order and Fortran order differ only when two or more extents are above 1.
        let has_rows = !is_empty && self.shape.iter().filter(|extent| **extent > 1).count() > 1;
        if flags & FORTRAN_ORDER != 0 && has_rows {
            let text = format!("memory of shape {:?} is in C order, not in Fortran's", self.shape);
            return Err(PyBufferError::new_err(text));
        }
        let (bytes, item_bytes) = (bytes_of_shape(&self.shape, self.item_bytes), self.item_bytes);
        let strides = strides_of(&self.shape, item_bytes);
        let (address, is_read_only) = (self.export.pointer(), self.export.is_read_only);
        let shape = self.shape.iter().map(|extent| signed(*extent)).collect();
        let exposed = ExposedMemory { _export: self.export, format: self.format, shape, strides };
        let exposed = Box::into_raw(Box::new(exposed));
        let has = |flag: c_int| flags & flag == flag;
        // SAFETY: `into_raw` returned a live allocation, which only `release` frees.
        let content = unsafe { &mut *exposed };
        let dimensions = c_int::try_from(content.shape.len()).unwrap_or(c_int::MAX);
        let filled = ffi::Py_buffer {
            buf: address.cast(),
            obj: owner.clone().into_ptr(),
            len: signed(bytes),
            itemsize: signed(item_bytes),
            readonly: c_int::from(is_read_only),
            ndim: dimensions,
            format: if has(ffi::PyBUF_FORMAT) {
                content.format.as_ptr().cast_mut()
            } else {
                ptr::null_mut()
            },
            shape: if has(ffi::PyBUF_ND) { content.shape.as_mut_ptr() } else { ptr::null_mut() },
            strides: if has(ffi::PyBUF_STRIDES) {
                content.strides.as_mut_ptr()
            } else {
                ptr::null_mut()
            },
            suboffsets: ptr::null_mut(),
            internal: exposed.cast(),
        };
        // SAFETY: the caller passes the interpreter's structure to fill.
        unsafe { view.write(filled) };
        Ok(())
    }
}

/// Releases a structure that [`Exposure::fill`] filled.
///
/// # Safety
/// [`Exposure::fill`] must have filled `view`, which must be released only once.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller passes a live structure. The interpreter drops the reference to the owner.
    let exposed = unsafe { (*view).internal }.cast::<ExposedMemory>();
    // SAFETY: `fill` leaked this box, and the caller releases it once.
    let exposed = unsafe { Box::from_raw(exposed) };
    drop(FreedWithStack::new(exposed));
}

/// The byte strides of contiguous memory in C order.
pub(crate) fn strides_of(shape: &[usize], item_bytes: usize) -> Vec<ffi::Py_ssize_t> {
    let mut stride = item_bytes;
    let mut strides: Vec<_> = shape
        .iter()
        .rev()
        .map(|extent| {
            let own = signed(stride);
            stride = stride.saturating_mul(*extent);
            own
        })
        .collect();
    strides.reverse();
    strides
}

/// Converts a size to Python's type. Sizes of memory fit: they are below half the address space.
fn signed(size: usize) -> ffi::Py_ssize_t {
    ffi::Py_ssize_t::try_from(size).unwrap_or(ffi::Py_ssize_t::MAX)
}
