//! Copies strided elements into contiguous memory.
#![expect(unsafe_code, reason = "reads what an exporter describes by addresses and distances")]

use std::ptr;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use crate::memory::shape::bytes_of_shape;
use crate::support::deferred_drops::Lender;

/// Elements of foreign memory, with strides in bytes.
pub(crate) struct Strided {
    address: *const u8,
    item_bytes: usize,
    /// Extents and strides. The innermost dimension is last, and its elements are not contiguous.
    dimensions: Vec<(usize, isize)>,
    bytes: usize,
}

// SAFETY: no method writes the elements. The caller of `gather` guarantees that they are live.
unsafe impl Sync for Strided {}

impl Strided {
    /// Describes an array by as few dimensions as possible: merges those that one stride can
    /// describe, and makes a contiguous innermost dimension part of the element.
    pub(crate) fn new(
        address: *const u8,
        item_bytes: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Self {
        let bytes = bytes_of_shape(shape, item_bytes);
        let mut dimensions: Vec<(usize, isize)> = Vec::with_capacity(shape.len());
        for (extent, stride) in shape.iter().copied().zip(strides.iter().copied()) {
            let is_one_with_last = dimensions.last_mut().filter(|(_, outer)| {
                isize::try_from(extent).is_ok_and(|extent| extent.wrapping_mul(stride) == *outer)
            });
            match is_one_with_last {
                _ if extent == 1 => {}
                Some(last) => *last = (last.0 * extent, stride),
                None => dimensions.push((extent, stride)),
            }
        }
        let mut item_bytes = item_bytes;
        if let Some((extent, stride)) = dimensions.last().copied()
            && isize::try_from(item_bytes) == Ok(stride)
        {
            item_bytes *= extent;
            dimensions.pop();
        }
        Self { address, item_bytes, dimensions, bytes }
    }

    pub(crate) fn nbytes(&self) -> usize {
        self.bytes
    }

    /// Copies the elements to `target`, in C order.
    ///
    /// # Safety
    /// The elements are live, no thread writes them, and `target` has `nbytes` writable bytes.
    pub(crate) unsafe fn gather(&self, target: *mut u8) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: `gather` and `gather_inner` have the same contract, which the caller upholds.
        unsafe { self.gather_inner(&self.dimensions, self.address, target) };
    }

    /// As [`Strided::gather`], for the elements of the inner `dimensions` that begin at `from`.
    /// Returns the address after the last written byte.
    ///
    /// # Safety
    /// As [`Strided::gather`], for the elements of `dimensions` and the bytes at `to`.
    unsafe fn gather_inner(
        &self,
        dimensions: &[(usize, isize)],
        mut from: *const u8,
        mut to: *mut u8,
    ) -> *mut u8 {
        let (count, stride) = match *dimensions {
            [] => (1, 0),
            [row] => row,
            [(count, stride), ref inner @ ..] => {
                for _ in 0..count {
                    // SAFETY: the caller upholds the contract for all elements of `dimensions` and
                    // the bytes at `to`; this call covers a part of both.
                    to = unsafe { self.gather_inner(inner, from, to) };
                    from = from.wrapping_offset(stride);
                }
                return to;
            }
        };
        // SAFETY: the caller guarantees that the row's elements are live and fit into `to`.
        unsafe { copy_row(from, stride, to, self.item_bytes, count) };
        to.wrapping_add(self.item_bytes * count)
    }
}

/// Copies `count` elements that are `stride` bytes apart to contiguous memory.
///
/// # Safety
/// The elements must be live, and `to` must have `count` times `item_bytes` writable bytes.
unsafe fn copy_row(from: *const u8, stride: isize, to: *mut u8, item_bytes: usize, count: usize) {
    match item_bytes {
        // SAFETY: the caller guarantees `count` live elements at `from` and room for them at `to`.
        1 => unsafe { copy_items::<u8>(from, stride, to, count) },
        // SAFETY: the caller guarantees `count` live elements at `from` and room for them at `to`.
        2 => unsafe { copy_items::<u16>(from, stride, to, count) },
        // SAFETY: the caller guarantees `count` live elements at `from` and room for them at `to`.
        4 => unsafe { copy_items::<u32>(from, stride, to, count) },
        // SAFETY: the caller guarantees `count` live elements at `from` and room for them at `to`.
        8 => unsafe { copy_items::<u64>(from, stride, to, count) },
        _ => {
            let (mut from, mut to) = (from, to);
            for _ in 0..count {
                // SAFETY: the caller guarantees that this element is live and fits into `to`.
                unsafe { ptr::copy_nonoverlapping(from, to, item_bytes) };
                (from, to) = (from.wrapping_offset(stride), to.wrapping_add(item_bytes));
            }
        }
    }
}

/// As [`copy_row`], for elements that fit into a register. They need not be aligned.
///
/// # Safety
/// As [`copy_row`].
unsafe fn copy_items<T: Copy>(from: *const u8, stride: isize, to: *mut u8, count: usize) {
    let (mut from, mut to) = (from, to.cast::<T>());
    for _ in 0..count {
        // SAFETY: the caller guarantees `count` live elements at `from`, and this is one of them.
        let item = unsafe { from.cast::<T>().read_unaligned() };
        // SAFETY: the caller guarantees room for `count` elements at `to`, and this is one of them.
        unsafe { to.write_unaligned(item) };
        (from, to) = (from.wrapping_offset(stride), to.wrapping_add(1));
    }
}

/// Gathered elements are a copy that the vector owns, so its drop frees them.
impl Lender for Vec<u64> {
    fn take_back(self: Box<Self>, _py: Python<'_>) {}
}

/// Copies the elements to new contiguous memory of whole words, aligned for any type. `MemoryError`
/// when the memory is too large: a stride of 0 can repeat an element any number of times.
///
/// # Safety
/// As [`Strided::gather`].
pub(crate) unsafe fn gather_words(py: Python<'_>, elements: &Strided) -> PyResult<Vec<u64>> {
    let nbytes = elements.nbytes();
    let count = nbytes.div_ceil(size_of::<u64>());
    let mut words = Vec::new();
    words.try_reserve_exact(count).map_err(|_| {
        PyMemoryError::new_err(format!("no memory for {nbytes} bytes of elements side by side"))
    })?;
    words.resize(count, 0_u64);
    let target = words.as_mut_ptr().expose_provenance();
    py.detach(|| {
        // SAFETY: the caller guarantees that the elements are live and not written. `words` has
        // room for them and is not shared.
        unsafe { elements.gather(ptr::with_exposed_provenance_mut(target)) };
    });
    Ok(words)
}
