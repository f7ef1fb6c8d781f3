//! `malloc`, `calloc`, `realloc` and `free` of the process's heap, for libraries to call.
//!
//! Each function takes `other`, the allocator that resizes and frees all memory outside the heap,
//! and that serves all requests in a forked child and after the end of the runtime. The heap's
//! memory stays valid there, and frees of it have no effect. No error ends the process: see
//! `boundary`.
#![expect(unsafe_code, reason = "C memory functions, whose contract the callers uphold")]

use std::ffi::c_void;
use std::ptr;

use crate::host_heap::boundary::contain;
use crate::host_heap::{is_serving, process_heap};

/// The functions of an allocator, in the order of oneMKL's pointers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Functions {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(*mut c_void),
}

impl Functions {
    /// The functions of the C library.
    pub const LIBC: Self = Self {
        malloc: libc::malloc,
        calloc: libc::calloc,
        realloc: libc::realloc,
        free: libc::free,
    };
}

/// True when an object of the process's heap begins at this address.
pub fn is_ours(pointer: *mut c_void) -> bool {
    process_heap().is_some_and(|heap| heap.usable_bytes(pointer.addr()).is_some())
}

/// Allocates from the heap, or from `other` where the heap does not serve. Null without memory.
#[inline]
pub fn malloc(bytes: usize, other: &Functions) -> *mut c_void {
    let Some(heap) = process_heap().filter(|_| is_serving()) else {
        // SAFETY: `malloc` accepts any size.
        return unsafe { (other.malloc)(bytes) };
    };
    let given = contain(None, || heap.allocate(bytes));
    given.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// As [`malloc`], for `count * bytes` bytes, filled with zeros.
#[inline]
#[must_use]
pub fn calloc(count: usize, bytes: usize, other: &Functions) -> *mut c_void {
    if !is_serving() {
        // SAFETY: `calloc` accepts any count and size.
        return unsafe { (other.calloc)(count, bytes) };
    }
    let Some(bytes) = count.checked_mul(bytes) else { return ptr::null_mut() };
    let made = malloc(bytes, other);
    if !made.is_null() {
        // SAFETY: `malloc` returned this memory of at least `bytes` bytes for this call.
        unsafe { ptr::write_bytes(made.cast::<u8>(), 0, bytes) };
    }
    made
}

/// Resizes memory. Returns null, and leaves the memory as it is, when memory is short. A size of 0
/// requests the smallest object.
///
/// # Safety
/// `old` is null, or memory of the heap or of `other` that is not freed. After a result other than
/// null, the caller no longer uses `old`.
pub unsafe fn realloc(old: *mut c_void, bytes: usize, other: &Functions) -> *mut c_void {
    if old.is_null() {
        return malloc(bytes, other);
    }
    let Some(usable) = process_heap().and_then(|heap| heap.usable_bytes(old.addr())) else {
        // No object begins at `old`. If the address is the heap's, `free` counts it as a leak.
        let is_lost = || process_heap().is_some_and(|heap| heap.free(old.addr()));
        if is_serving() && contain(true, is_lost) {
            return ptr::null_mut();
        }
        // SAFETY: by the caller's promise, `old` is of `other`, since it is not of the heap.
        return unsafe { (other.realloc)(old, bytes) };
    };
    // The object stays in place, unless half of its memory would suffice.
    if bytes <= usable && (usable <= 64 || bytes > usable / 2) {
        return old;
    }
    let new = malloc(bytes, other);
    if new.is_null() {
        return new;
    }
    // SAFETY: the old object has `usable` bytes and the new one `bytes`. They are disjoint, because
    // the old one is not freed yet.
    unsafe { ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), bytes.min(usable)) };
    // SAFETY: the caller upholds that `old` is not freed and no longer used.
    unsafe { free(old, other) };
    new
}

/// Frees memory by the allocator that owns it.
///
/// # Safety
/// `old` is null, or memory of the heap or of `other` that is not freed and no longer used.
#[inline]
pub unsafe fn free(old: *mut c_void, other: &Functions) {
    let Some(heap) = process_heap() else {
        // SAFETY: without a heap, the memory is of `other`.
        return unsafe { (other.free)(old) };
    };
    let is_known = if is_serving() {
        contain(true, || heap.free(old.addr()))
    } else {
        is_ours(old) // has no effect in a forked child and after the end
    };
    if !is_known {
        // SAFETY: by the caller's promise, `old` is of `other`, since it is not of the heap.
        unsafe { (other.free)(old) };
    }
}
