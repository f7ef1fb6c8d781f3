//! The buffer protocol of our own memory.
#![expect(unsafe_code, reason = "the buffer protocol is one of C structures")]

use std::ffi::{CString, c_int};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::memory::shape::bytes_of_shape;
use crate::python::memory::view_memory::Lent;

/// The memory and its description for a consumer of the buffer protocol.
pub(crate) struct Exposure {
    pub(crate) lent: Lent,
    pub(crate) format: CString,
    pub(crate) item_bytes: usize,
    pub(crate) shape: Vec<usize>,
}

/// Kept behind the view's `internal` pointer until the consumer releases it.
struct ExposedMemory {
    _lent: Lent,
    format: CString,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

/// The part of `PyBUF_F_CONTIGUOUS` that is not `PyBUF_STRIDES`.
const FORTRAN_ORDER: c_int = ffi::PyBUF_F_CONTIGUOUS & !ffi::PyBUF_STRIDES;

impl Exposure {
    /// True when the order of the dimensions matters for the order of the bytes.
    fn has_rows(&self) -> bool {
        let is_empty = self.shape.contains(&0);
        !is_empty && self.shape.iter().filter(|extent| **extent > 1).count() > 1
    }

    /// Fills a consumer's structure; [`release`] ends it.
    ///
    /// # Safety
    /// `view` is the interpreter's argument of `__getbuffer__`, `owner` the object that it is for.
    pub(crate) unsafe fn fill(
        self,
        owner: &Bound<'_, PyAny>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if self.lent.is_read_only && flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("memory is read-only"));
        }
        if flags & FORTRAN_ORDER != 0 && self.has_rows() {
            let text = format!("memory of shape {:?} is in C order, not in Fortran's", self.shape);
            return Err(PyBufferError::new_err(text));
        }
        let (bytes, item_bytes) = (bytes_of_shape(&self.shape, self.item_bytes), self.item_bytes);
        let strides = strides_of(&self.shape, item_bytes);
        let (address, is_read_only) = (self.lent.pointer(), self.lent.is_read_only);
        let shape = self.shape.iter().map(|extent| signed(*extent)).collect();
        let kept = ExposedMemory { _lent: self.lent, format: self.format, shape, strides };
        let kept = Box::into_raw(Box::new(kept));
        let has = |flag: c_int| flags & flag == flag;
        // SAFETY: just made, and freed by `release` only.
        let content = unsafe { &mut *kept };
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
            internal: kept.cast(),
        };
        // SAFETY: the caller promises a structure to fill.
        unsafe { view.write(filled) };
        Ok(())
    }
}

/// Ends an exposure.
///
/// # Safety
/// `view` was filled by [`Exposure::fill`] and is released once.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller's promise; the interpreter drops the reference to the owner.
    let kept = unsafe { (*view).internal }.cast::<ExposedMemory>();
    // SAFETY: `fill` made it from a box.
    drop(unsafe { Box::from_raw(kept) });
}

/// Distances in bytes between neighbours of each dimension, the last one dense.
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

/// A size as Python's type. Sizes of memory are below half of the address space.
fn signed(size: usize) -> ffi::Py_ssize_t {
    ffi::Py_ssize_t::try_from(size).unwrap_or(ffi::Py_ssize_t::MAX)
}
