//! The functions that are registered with oneMKL: each hands its call to the current allocator.
//!
//! oneMKL reads its pointers once, so the same functions stay there whichever allocator is current.
//! A free goes to the allocator that gave the memory, by its address: the heap knows its pages, and
//! mimalloc its own; everything else is from the functions that were there before.
#![expect(unsafe_code, reason = "memory by the rules of C: oneMKL keeps them")]

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

/// A `MklAllocator`. Relaxed, here and below: a call that meets a change may be served by either.
static CURRENT: AtomicUsize = AtomicUsize::new(MklAllocator::System as usize);
/// How often each gave memory.
static CALLS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// The functions that were registered before: set once, before any of this file's is registered.
static OLD: OnceLock<Functions> = OnceLock::new();
static MIMALLOC: OnceLock<Mimalloc> = OnceLock::new();

/// mimalloc, and its check whether memory is its own.
#[derive(Debug)]
struct Mimalloc {
    functions: Functions,
    has: unsafe extern "C" fn(*const c_void) -> bool,
}

/// Our functions for oneMKL's four pointers.
pub(super) fn ours() -> [*mut c_void; 4] {
    [malloc as *mut c_void, calloc as *mut c_void, realloc as *mut c_void, free as *mut c_void]
}

pub(super) fn current() -> MklAllocator {
    match CURRENT.load(Ordering::Relaxed) {
        0 => MklAllocator::System,
        1 => MklAllocator::Accelrt,
        _ => MklAllocator::Mimalloc,
    }
}

/// Serves the next calls from another allocator.
pub(super) fn switch(allocator: MklAllocator) {
    CURRENT.store(allocator as usize, Ordering::Relaxed);
}

/// How often an allocator gave memory to oneMKL.
pub(super) fn calls(allocator: MklAllocator) -> u64 {
    CALLS[allocator as usize].load(Ordering::Relaxed)
}

/// Saves the functions that were registered before: `malloc`, `calloc`, `realloc`, `free`, as
/// oneMKL's pointers have them. Only the first call has an effect.
pub(super) fn take_over(pointers: [*mut c_void; 4]) {
    OLD.get_or_init(|| {
        if pointers.iter().any(|pointer| pointer.is_null()) {
            return Functions::LIBC;
        }
        // SAFETY: oneMKL's pointers are to functions of these types, and stay: it calls them too.
        unsafe { transmute::<[*mut c_void; 4], Functions>(pointers) }
    });
}

fn old() -> &'static Functions {
    OLD.get().unwrap_or(&Functions::LIBC) // the default before anything is registered only
}

/// Makes an allocator ready; nothing has changed when that fails.
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

/// mimalloc's functions in a library; fails with the name of a missing one.
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

/// The functions of the allocator that gave memory which is not the heap's.
fn owner_of(foreign: *mut c_void) -> &'static Functions {
    // SAFETY: any address may be asked for.
    let is_its = |mimalloc: &&Mimalloc| unsafe { (mimalloc.has)(foreign) };
    MIMALLOC.get().filter(is_its).map_or_else(old, |mimalloc| &mimalloc.functions)
}

/// Memory of the current allocator, counted.
fn given(take: impl FnOnce(MklAllocator) -> *mut c_void) -> *mut c_void {
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
    mimalloc.map_or_else(old, |mimalloc| &mimalloc.functions)
}

extern "C" fn malloc(bytes: usize) -> *mut c_void {
    given(|allocator| match allocator {
        MklAllocator::Accelrt => host_heap::malloc(bytes, old()),
        // SAFETY: any size may be asked for.
        other => unsafe { (functions_of(other).malloc)(bytes) },
    })
}

extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    given(|allocator| match allocator {
        MklAllocator::Accelrt => host_heap::calloc(count, bytes, old()),
        // SAFETY: any size may be asked for.
        other => unsafe { (functions_of(other).calloc)(count, bytes) },
    })
}

/// # Safety
/// oneMKL gives null or what one of these functions, or one from before, gave to it.
unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if memory.is_null() {
        return malloc(bytes);
    }
    if is_ours(memory) {
        // SAFETY: the caller's promise.
        return unsafe { host_heap::realloc(memory, bytes, old()) };
    }
    // SAFETY: the caller's promise: it is its owner's.
    unsafe { (owner_of(memory).realloc)(memory, bytes) }
}

/// # Safety
/// oneMKL gives back what one of these functions, or one from before, gave to it, once.
unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller's promise: it is the heap's, or its owner's.
    unsafe { host_heap::free(memory, owner_of(memory)) };
}
