//! The C library's functions of memory, served by the process's heap: what others register.
//!
//! Memory that another allocator gave is that one's: its functions resize and free it. They also
//! serve where the heap does not: in a forked child and after the end of the runtime. What the heap
//! gave before stays valid there, and its frees do nothing. No mistake ends the process here: see
//! `boundary`.
#![expect(unsafe_code, reason = "memory by the rules of C: callers keep them")]

use std::ffi::c_void;
use std::ptr;

use crate::integrations::host_heap::boundary::contain;
use crate::integrations::host_heap::{is_serving, process_heap};

/// An allocator by its four functions.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Functions {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(*mut c_void),
}

impl Functions {
    /// The C library's.
    pub(crate) const LIBC: Self = Self {
        malloc: libc::malloc,
        calloc: libc::calloc,
        realloc: libc::realloc,
        free: libc::free,
    };
}

/// True when the process's heap gave this address.
pub(crate) fn is_ours(pointer: *mut c_void) -> bool {
    process_heap().is_some_and(|heap| heap.usable_bytes(pointer.addr()).is_some())
}

/// Memory from the heap, or from `other` where the heap does not serve. Null when there is not
/// enough.
#[inline]
pub(crate) fn malloc(bytes: usize, other: &Functions) -> *mut c_void {
    let Some(heap) = process_heap().filter(|_| is_serving()) else {
        // SAFETY: any size may be asked for.
        return unsafe { (other.malloc)(bytes) };
    };
    let given = contain(None, || heap.allocate(bytes));
    given.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// As [`malloc`], for `count` times `bytes`, filled with zeros.
#[inline]
pub(crate) fn calloc(count: usize, bytes: usize, other: &Functions) -> *mut c_void {
    if !is_serving() {
        // SAFETY: any size may be asked for.
        return unsafe { (other.calloc)(count, bytes) };
    }
    let Some(bytes) = count.checked_mul(bytes) else { return ptr::null_mut() };
    let made = malloc(bytes, other);
    if !made.is_null() {
        // SAFETY: memory of at least this size, which nobody else has.
        unsafe { ptr::write_bytes(made.cast::<u8>(), 0, bytes) };
    }
    made
}

/// Resizes memory; null, with the memory as it was, when there is not enough. No bytes are a size
/// like others: they get the least object.
///
/// # Safety
/// `old` is null, or memory of the heap or of `other` that is not freed; the caller does not use it
/// any more unless null is returned.
pub(crate) unsafe fn realloc(old: *mut c_void, bytes: usize, other: &Functions) -> *mut c_void {
    if old.is_null() {
        return malloc(bytes, other);
    }
    let Some(usable) = process_heap().and_then(|heap| heap.usable_bytes(old.addr())) else {
        // What is the heap's and not in use: the free is the one that is wrong.
        let is_lost = || process_heap().is_some_and(|heap| heap.free(old.addr()));
        if is_serving() && contain(true, is_lost) {
            return ptr::null_mut();
        }
        // SAFETY: not the heap's, so the other's, by the caller's promise.
        return unsafe { (other.realloc)(old, bytes) };
    };
    // Less than half of what is there is worth a move.
    if bytes <= usable && (usable <= 64 || bytes > usable / 2) {
        return old;
    }
    let new = malloc(bytes, other);
    if new.is_null() {
        return new;
    }
    // SAFETY: both have that many bytes: the old one as its page says, and the new one as it was
    // asked for. They are different memory, because the old one is not freed yet.
    unsafe { ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), bytes.min(usable)) };
    // SAFETY: the caller's promise.
    unsafe { free(old, other) };
    new
}

/// Gives memory back to whoever gave it.
///
/// # Safety
/// `old` is null, or memory of the heap or of `other` that is not freed, and not used any more.
#[inline]
pub(crate) unsafe fn free(old: *mut c_void, other: &Functions) {
    let Some(heap) = process_heap() else {
        // SAFETY: there is no heap, so it is the other's.
        return unsafe { (other.free)(old) };
    };
    let is_known = if is_serving() {
        contain(true, || heap.free(old.addr()))
    } else {
        is_ours(old) // the parent's, or the end's
    };
    if !is_known {
        // SAFETY: not the heap's, so the other's, by the caller's promise.
        unsafe { (other.free)(old) };
    }
}
