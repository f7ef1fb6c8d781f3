//! The allocators behind oneMKL, and the registered memory functions, which dispatch to them.
//!
//! oneMKL reads its pointers once, so these functions stay registered when the current allocator
//! changes. An allocation goes to the current allocator, a free to the allocator that owns the
//! address. The heap and mimalloc recognise their memory; the previous functions own the rest.
#![expect(unsafe_code, reason = "C memory functions, whose contract oneMKL upholds")]

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use accelrt::internal::dylib::Library;
use accelrt::{Error, IntegrationError, Result};

use crate::host_heap;
use crate::host_heap::{Functions, is_ours};

/// The allocator behind oneMKL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum MklAllocator {
    /// The functions that oneMKL used before: the C library's, unless the program set others.
    System,
    /// The host heap, whose memory is pinned.
    Accelrt,
    /// mimalloc, which the first registration loads by its library name.
    Mimalloc,
}

/// The current `MklAllocator`. Relaxed, here and below: a concurrent call may use either allocator.
static CURRENT: AtomicUsize = AtomicUsize::new(MklAllocator::System as usize);
/// Successful allocations per allocator.
static CALLS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// oneMKL's functions from before the first registration, which saves them.
static PREVIOUS: OnceLock<Functions> = OnceLock::new();
static MIMALLOC: OnceLock<Mimalloc> = OnceLock::new();

/// mimalloc's functions. `has` tells whether mimalloc owns an address.
#[derive(Debug)]
struct Mimalloc {
    functions: Functions,
    has: unsafe extern "C" fn(*const c_void) -> bool,
}

/// The addresses of this file's functions, in the order of oneMKL's four pointers.
pub(super) fn registered_functions() -> [*mut c_void; 4] {
    [malloc as *mut c_void, calloc as *mut c_void, realloc as *mut c_void, free as *mut c_void]
}

impl MklAllocator {
    /// All allocators.
    pub const ALL: [Self; 3] = [Self::Accelrt, Self::Mimalloc, Self::System];

    /// The name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Accelrt => "accelrt",
            Self::Mimalloc => "mimalloc",
        }
    }

    /// The functions that oneMKL uses now.
    pub fn current() -> Self {
        match CURRENT.load(Ordering::Relaxed) {
            0 => Self::System,
            1 => Self::Accelrt,
            _ => Self::Mimalloc,
        }
    }

    pub(super) fn refused(self, reason: String) -> Error {
        Error::Integration(IntegrationError::MklAllocator { allocator: self.name(), reason })
    }
}

pub(super) fn set_current(allocator: MklAllocator) {
    CURRENT.store(allocator as usize, Ordering::Relaxed);
}

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
        // SAFETY: oneMKL's pointers are to functions of these types, which stay loaded with oneMKL.
        unsafe { transmute::<[*mut c_void; 4], Functions>(pointers) }
    });
}

fn previous() -> &'static Functions {
    PREVIOUS.get().unwrap_or(&Functions::LIBC) // the default is for calls before a registration
}

/// Makes an allocator ready: opens the heap, or loads mimalloc. A failure changes nothing.
pub(super) fn prepare(allocator: MklAllocator) -> Result<()> {
    match allocator {
        MklAllocator::System => Ok(()),
        MklAllocator::Accelrt => host_heap::open(),
        MklAllocator::Mimalloc if MIMALLOC.get().is_some() => Ok(()),
        MklAllocator::Mimalloc => {
            let names = ["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"];
            let library =
                Library::open_first(&names).map_err(|e| allocator.refused(e.to_string()))?;
            let found = mimalloc_in(library)
                .map_err(|name| allocator.refused(format!("it has no {name}")))?;
            MIMALLOC.get_or_init(|| found);
            Ok(())
        }
    }
}

/// Finds mimalloc's functions in a library. The error is the name of a missing function.
fn mimalloc_in(library: Library) -> std::result::Result<Mimalloc, &'static str> {
    let symbol = |name| library.symbol(name).map(NonNull::as_ptr).ok_or(name);
    let pointers =
        [symbol("mi_malloc")?, symbol("mi_calloc")?, symbol("mi_realloc")?, symbol("mi_free")?];
    let has = symbol("mi_is_in_heap_region")?;
    // SAFETY: mimalloc's functions of these names have the C library's types in every version.
    let functions = unsafe { transmute::<[*mut c_void; 4], Functions>(pointers) };
    // SAFETY: mimalloc's function of this name has this type in every version.
    let has = unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*const c_void) -> bool>(has) };
    Ok(Mimalloc { functions, has })
}

/// The functions of the allocator that owns `foreign`, which is not memory of the heap.
fn owner_of(foreign: *mut c_void) -> &'static Functions {
    // SAFETY: `mi_is_in_heap_region` accepts any address.
    let is_its = |mimalloc: &&Mimalloc| unsafe { (mimalloc.has)(foreign) };
    MIMALLOC.get().filter(is_its).map_or_else(previous, |mimalloc| &mimalloc.functions)
}

fn counted_allocation(take: impl FnOnce(MklAllocator) -> *mut c_void) -> *mut c_void {
    let allocator = MklAllocator::current();
    let memory = take(allocator);
    if !memory.is_null() {
        CALLS[allocator as usize].fetch_add(1, Ordering::Relaxed);
    }
    memory
}

/// mimalloc's functions, or else the previous functions. Callers call the heap directly.
fn functions_of(allocator: MklAllocator) -> &'static Functions {
    let mimalloc = MIMALLOC.get().filter(|_| allocator == MklAllocator::Mimalloc);
    mimalloc.map_or_else(previous, |mimalloc| &mimalloc.functions)
}

extern "C" fn malloc(bytes: usize) -> *mut c_void {
    counted_allocation(|allocator| match allocator {
        MklAllocator::Accelrt => host_heap::malloc(bytes, previous()),
        // SAFETY: `malloc` of every allocator accepts any size.
        other => unsafe { (functions_of(other).malloc)(bytes) },
    })
}

extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    counted_allocation(|allocator| match allocator {
        MklAllocator::Accelrt => host_heap::calloc(count, bytes, previous()),
        // SAFETY: `calloc` of every allocator accepts any count and size.
        other => unsafe { (functions_of(other).calloc)(count, bytes) },
    })
}

/// # Safety
/// `memory` is null, or live memory that these functions or the previous functions allocated.
unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if memory.is_null() {
        return malloc(bytes);
    }
    if is_ours(memory) {
        // SAFETY: `is_ours` found that the heap owns the memory; the caller upholds it is live.
        return unsafe { host_heap::realloc(memory, bytes, previous()) };
    }
    // SAFETY: the caller upholds that the memory is live; `owner_of` finds its allocator.
    unsafe { (owner_of(memory).realloc)(memory, bytes) }
}

/// # Safety
/// `memory` is null, or live, unused memory that these functions or the previous ones allocated.
unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller upholds that the memory is live and unused. The heap frees its memory,
    // `owner_of` all other memory.
    unsafe { host_heap::free(memory, owner_of(memory)) };
}
