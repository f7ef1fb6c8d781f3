//! Tables that a library gives: copied, and refused with what is wrong.
#![expect(unsafe_code, reason = "copies tables, whose maker vouches for them")]

use std::ffi::{CStr, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use crate::backend::foreign::table::{ABI_VERSION, BackendTable, KernelsTable, VirtualMemoryTable};

/// Size of what every table has: its head and name.
const HEAD_BYTES: usize = mem::offset_of!(BackendTable, data);

/// What a table of every version begins with.
#[repr(C)]
struct TableHead {
    size_bytes: u64,
    version: u32,
}

/// A table that was checked, with its name: of version [`ABI_VERSION`], with all that must be
/// there.
///
/// # Safety
/// `table` is null, or points to the `size_bytes` bytes that it begins with, valid and unchanged
/// while this runs; its name ends with a zero.
pub unsafe fn check_table(table: *const c_void) -> Result<(BackendTable, String), String> {
    if table.is_null() {
        return Err("it has no table".to_owned());
    }
    // SAFETY: the caller promises that a table begins with its size and version.
    let head = unsafe { table.cast::<TableHead>().read() };
    let version = head.version;
    if version != ABI_VERSION {
        return Err(format!("its table is of version {version}, and this is {ABI_VERSION}"));
    }
    let size_bytes = usize::try_from(head.size_bytes).unwrap_or(usize::MAX);
    if size_bytes <= HEAD_BYTES {
        return Err(format!("its table says that it has {size_bytes} bytes"));
    }
    // SAFETY: the caller promises that it is a table, of this version.
    let table: BackendTable = unsafe { copied(table.cast()) };
    if table.name.is_null() {
        return Err("its table has no name".to_owned());
    }
    // SAFETY: the caller promises that the name ends with a zero.
    let name = unsafe { CStr::from_ptr(table.name) }.to_string_lossy().into_owned();
    // SAFETY: the caller promises that what the table points to is null or a table too.
    let missing = unsafe { missing(&table) };
    match missing {
        Some(function) => Err(format!("its table has no function {function}")),
        None => Ok((table, name)),
    }
}

/// A table of functions.
///
/// # Safety
/// It begins with its size in bytes, a `u64`, and zeros are a value of it.
pub(super) unsafe trait Table: Copy {}

// SAFETY: `#[repr(C)]` with the size first; then numbers, pointers and optional functions.
unsafe impl Table for BackendTable {}
// SAFETY: as above.
unsafe impl Table for VirtualMemoryTable {}
// SAFETY: as above.
unsafe impl Table for KernelsTable {}

/// Copies a table. What it lacks at its end is null.
///
/// # Safety
/// It points to a table of this type, with as many bytes as it says.
unsafe fn copied<T: Table>(table: *const T) -> T {
    let mut copied = MaybeUninit::<T>::zeroed();
    // SAFETY: every table begins with its size.
    let size_bytes = unsafe { table.cast::<u64>().read() };
    let bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX).min(size_of::<T>());
    // SAFETY: so many bytes are the table's, and the copy is as large.
    unsafe { ptr::copy_nonoverlapping(table.cast::<u8>(), copied.as_mut_ptr().cast(), bytes) };
    // SAFETY: zeros are a table without functions, and those that were copied are the caller's.
    unsafe { copied.assume_init() }
}

/// As [`copied`], of a table that need not be there.
///
/// # Safety
/// As for [`copied`], or it is null.
pub(super) unsafe fn copied_if_there<T: Table>(table: *const T) -> Option<T> {
    // SAFETY: the caller promises that it is a table, since it is not null.
    (!table.is_null()).then(|| unsafe { copied(table) })
}

/// The first function that must be there and is not.
///
/// # Safety
/// Tables that this one points to are tables.
unsafe fn missing(table: &BackendTable) -> Option<String> {
    macro_rules! first_missing {
        ($table:ident: $($function:ident)*) => {
            [$((stringify!($function), $table.$function.is_some())),*]
                .into_iter()
                .find_map(|(name, is_there)| (!is_there).then_some(name))
        };
    }
    // SAFETY: the caller promises that it is null or a table.
    let pages = unsafe { copied_if_there(table.virtual_memory) };
    // SAFETY: as above.
    let kernels = unsafe { copied_if_there(table.kernels) };
    let of_main = first_missing! { table:
        open close device_count properties memory_info priority_range stream_create stream_destroy
        stream_query stream_synchronize mark mark_done wait_mark stream_wait when_done elapsed_ns
        mark_release allocate release allocate_host release_host pointer_owner copy fill shutdown
    };
    let of_pages = pages.and_then(|pages: VirtualMemoryTable| {
        first_missing! { pages:
            granularity_bytes reserve unreserve create map unmap relocate release
        }
    });
    let of_kernels = kernels.and_then(|kernels: KernelsTable| {
        first_missing! { kernels:
            compile kernel_count kernel_name kernel parameter_count parameter launch kernel_release
            program_release
        }
    });
    of_main
        .map(str::to_owned)
        .or_else(|| of_pages.map(|name| format!("virtual_memory.{name}")))
        .or_else(|| of_kernels.map(|name| format!("kernels.{name}")))
}
