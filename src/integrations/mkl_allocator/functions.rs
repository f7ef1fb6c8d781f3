//! The memory functions registered with oneMKL: each dispatches to the current allocator.
//!
//! oneMKL reads its pointers once, so these functions stay registered with any current allocator. A
//! free goes to the allocator of the address: the heap and mimalloc know their own memory; all
//! other memory belongs to the previously registered functions.
#![expect(unsafe_code, reason = "C memory functions, whose contract oneMKL upholds")]

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::base::dylib::Library;
use crate::base::error::{Error, IntegrationError, Result};
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::{AtomicU64, AtomicUsize};
use crate::integrations::host_heap::{self, Functions, is_ours};
use crate::integrations::mkl_allocator::MklAllocator;

/// A `MklAllocator`. Relaxed, here and below: either allocator may serve a concurrent call.
static CURRENT: AtomicUsize = AtomicUsize::new(MklAllocator::System as usize);
/// Successful allocations per allocator.
static CALLS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// The previously registered functions: set once, before any function of this file is registered.
static PREVIOUS: OnceLock<Functions> = OnceLock::new();
static MIMALLOC: OnceLock<Mimalloc> = OnceLock::new();

/// mimalloc, and its test for its own memory.
#[derive(Debug)]
struct Mimalloc {
    functions: Functions,
    has: unsafe extern "C" fn(*const c_void) -> bool,
}

/// This file's functions for oneMKL's four pointers.
pub(super) fn registered_functions() -> [*mut c_void; 4] {
    [malloc as *mut c_void, calloc as *mut c_void, realloc as *mut c_void, free as *mut c_void]
}

pub(super) fn current() -> MklAllocator {
    match CURRENT.load(Ordering::Relaxed) {
        0 => MklAllocator::System,
        1 => MklAllocator::Accelrt,
        _ => MklAllocator::Mimalloc,
    }
}

/// Makes another allocator serve the next calls.
pub(super) fn switch(allocator: MklAllocator) {
    CURRENT.store(allocator as usize, Ordering::Relaxed);
}

/// The number of allocations for oneMKL by an allocator.
pub(super) fn calls(allocator: MklAllocator) -> u64 {
    CALLS[allocator as usize].load(Ordering::Relaxed)
}

/// Saves the previously registered functions: `malloc`, `calloc`, `realloc`, `free`, in the order
/// of oneMKL's pointers. Only the first call has an effect.
pub(super) fn save_previous(pointers: [*mut c_void; 4]) {
    PREVIOUS.get_or_init(|| {
        if pointers.iter().any(|pointer| pointer.is_null()) {
            return Functions::LIBC;
        }
        // SAFETY: oneMKL's pointers are to functions of these types, loaded as long as oneMKL is.
        unsafe { transmute::<[*mut c_void; 4], Functions>(pointers) }
    });
}

fn previous() -> &'static Functions {
    PREVIOUS.get().unwrap_or(&Functions::LIBC) // the default applies only before a registration
}

/// Opens an allocator; a failure changes nothing.
pub(super) fn prepare(allocator: MklAllocator) -> Result<()> {
    match allocator {
        MklAllocator::System => Ok(()),
        MklAllocator::Accelrt => host_heap::open(),
        MklAllocator::Mimalloc if MIMALLOC.get().is_some() => Ok(()),
        MklAllocator::Mimalloc => {
            let names = ["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"];
            let refused = |reason| {
                Error::Integration(IntegrationError::MklAllocator {
                    allocator: allocator.name(),
                    reason,
                })
            };
            let library = Library::open_first(&names).map_err(|e| refused(e.to_string()))?;
            let found =
                mimalloc_in(library).map_err(|name| refused(format!("it has no {name}")))?;
            MIMALLOC.get_or_init(|| found);
            Ok(())
        }
    }
}

/// mimalloc's functions in a library; the error is the name of a missing one.
fn mimalloc_in(library: Library) -> std::result::Result<Mimalloc, &'static str> {
    let symbol = |name| library.symbol(name).map(NonNull::as_ptr).ok_or(name);
    let pointers =
        [symbol("mi_malloc")?, symbol("mi_calloc")?, symbol("mi_realloc")?, symbol("mi_free")?];
    let has = symbol("mi_is_in_heap_region")?;
    // SAFETY: mimalloc's functions of these names have the C library's types in every version.
    let functions = unsafe { transmute::<[*mut c_void; 4], Functions>(pointers) };
    // SAFETY: the function of this name has this type in every version.
    let has = unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*const c_void) -> bool>(has) };
    Ok(Mimalloc { functions, has })
}

/// The functions of the allocator of this memory, which is not the heap's.
fn owner_of(foreign: *mut c_void) -> &'static Functions {
    // SAFETY: the function accepts any address.
    let is_its = |mimalloc: &&Mimalloc| unsafe { (mimalloc.has)(foreign) };
    MIMALLOC.get().filter(is_its).map_or_else(previous, |mimalloc| &mimalloc.functions)
}

/// Allocates from the current allocator, and counts.
fn counted_allocation(take: impl FnOnce(MklAllocator) -> *mut c_void) -> *mut c_void {
    let allocator = current();
    let memory = take(allocator);
    if !memory.is_null() {
        CALLS[allocator as usize].fetch_add(1, Ordering::Relaxed);
    }
    memory
}

/// The functions of an allocator other than the heap.
fn functions_of(allocator: MklAllocator) -> &'static Functions {
    let mimalloc = MIMALLOC.get().filter(|_| allocator == MklAllocator::Mimalloc);
    mimalloc.map_or_else(previous, |mimalloc| &mimalloc.functions)
}

extern "C" fn malloc(bytes: usize) -> *mut c_void {
    counted_allocation(|allocator| match allocator {
        MklAllocator::Accelrt => host_heap::malloc(bytes, previous()),
        // SAFETY: the function accepts any size.
        other => unsafe { (functions_of(other).malloc)(bytes) },
    })
}

extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    counted_allocation(|allocator| match allocator {
        MklAllocator::Accelrt => host_heap::calloc(count, bytes, previous()),
        // SAFETY: the function accepts any size.
        other => unsafe { (functions_of(other).calloc)(count, bytes) },
    })
}

/// # Safety
/// `memory` is null, or live memory of one of these or of the previous functions.
unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if memory.is_null() {
        return malloc(bytes);
    }
    if is_ours(memory) {
        // SAFETY: the heap owns this live memory: `is_ours` found it, the caller upholds the rest.
        return unsafe { host_heap::realloc(memory, bytes, previous()) };
    }
    // SAFETY: the caller upholds that the memory is live; `owner_of` finds its allocator.
    unsafe { (owner_of(memory).realloc)(memory, bytes) }
}

/// # Safety
/// `memory` is null, or live memory of one of these or the previous functions, no longer used.
unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller upholds that the memory is live and unused; the heap or its owner frees
    // it.
    unsafe { host_heap::free(memory, owner_of(memory)) };
}
