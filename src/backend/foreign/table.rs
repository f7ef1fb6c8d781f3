//! The layout of `include/accelrt_backend.h`: a table of C functions, its check and its records.
//!
//! Every table begins with its size and the version of the interface. A version is never changed:
//! functions are only added at the end, so a table of the same version may be shorter or longer.
//! What a shorter one lacks counts as null.
//!
//! A driver in Rust writes its functions as one in C does:
//!
//! ```
//! use std::ffi::c_void;
//! use accelrt::backend::foreign::table::{
//!     ABI_VERSION, BackendTable, ErrorRecord, MEMORY_DEVICE, MEMORY_HOST, Owner, STATUS_OK,
//!     STATUS_REFUSED, StatusCode,
//! };
//! unsafe extern "C" fn pointer_owner(
//!     _instance: *mut c_void,
//!     address: u64,
//!     owner: *mut Owner,
//!     error: *mut ErrorRecord,
//! ) -> StatusCode {
//!     if address == 0 {
//!         unsafe { (*error).code = 22 };
//!         return STATUS_REFUSED;
//!     }
//!     let memory = if address >> 62 == 1 { MEMORY_DEVICE } else { MEMORY_HOST };
//!     unsafe { owner.write(Owner { base: address, bytes: 64, memory, ..Owner::default() }) };
//!     STATUS_OK
//! }
//! fn complete(table: BackendTable) -> BackendTable {
//!     BackendTable { abi_version: ABI_VERSION, pointer_owner: Some(pointer_owner), ..table }
//! }
//! ```
#![expect(unsafe_code, reason = "copies tables, whose maker vouches for them")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::{mem, ptr};

/// The version of the interface.
pub const ABI_VERSION: u32 = 1;

/// What a function of a table returns: one of `STATUS_*`.
pub type StatusCode = c_int;

/// The call did what it should.
pub const STATUS_OK: StatusCode = 0;
/// The driver refused; [`ErrorRecord::code`] is its code.
pub const STATUS_REFUSED: StatusCode = 1;
/// The device has too little memory; the record has the free and total bytes.
pub const STATUS_OUT_OF_MEMORY: StatusCode = 2;
/// The device is lost for good; [`ErrorRecord::device`] is its index.
pub const STATUS_DEVICE_LOST: StatusCode = 3;
/// The device cannot do this.
pub const STATUS_UNSUPPORTED: StatusCode = 4;

/// Bytes of [`ErrorRecord::text`], the zero at the end included.
pub const TEXT_BYTES: usize = 256;

/// What a function that fails fills in; zeros before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorRecord {
    /// Size of the record: a driver writes no field beyond it.
    pub size_bytes: u64,
    /// The driver's code.
    pub code: i64,
    /// Index of the device that the error is about; before the call that of the argument.
    pub device: u64,
    /// Bytes that were free.
    pub free_bytes: u64,
    /// The device's capacity.
    pub total_bytes: u64,
    /// UTF-8 with a zero at the end.
    pub text: [c_char; TEXT_BYTES],
}

/// What [`BackendTable::properties`] fills in; the defaults of `DeviceProperties` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Size of the structure: a driver writes no field beyond it.
    pub size_bytes: u64,
    /// UTF-8 with a zero at the end.
    pub name: [c_char; TEXT_BYTES],
    /// Capacity.
    pub total_memory_bytes: u64,
    /// Multiprocessors.
    pub core_count: u64,
    /// A power of two.
    pub page_bytes: u64,
    /// 1 for GPUs.
    pub is_gpu: u32,
    /// 1 when `allocate_shared` works.
    pub has_shared_memory: u32,
}

/// What [`BackendTable::pointer_owner`] fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    /// First address of the allocation.
    pub base: u64,
    /// Size of the allocation.
    pub bytes: u64,
    /// Index of the device.
    pub device: u64,
    /// 0 when the address is unknown, else one of `MEMORY_*`.
    pub memory: u32,
    /// For later versions; 0.
    pub reserved: u32,
}

/// Memory of one device.
pub const MEMORY_DEVICE: u32 = 1;
/// Pinned memory of the host.
pub const MEMORY_HOST: u32 = 2;
/// Memory that a device and the host share.
pub const MEMORY_SHARED: u32 = 3;

/// A function that a driver calls once, from any thread, with the data it was given.
pub type Callback = unsafe extern "C" fn(data: *mut c_void);

/// The type of a function of the table: the instance first, the error's record last.
macro_rules! function {
    ($($argument:ty),*) => {
        Option<unsafe extern "C" fn(*mut c_void, $($argument,)* *mut ErrorRecord) -> StatusCode>
    };
}

/// The table. All functions may be called by any thread, also at once. `instance` is what `open`
/// returned. The header says what each function does; `None` where it may be null.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is named after its method, documented at the trait")]
pub struct BackendTable {
    pub size_bytes: u64,
    pub abi_version: u32,
    pub type_code: u32,
    pub name: *const c_char,
    /// For `open` alone.
    pub data: *mut c_void,
    pub open:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut ErrorRecord) -> StatusCode>,
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
    pub device_count: function!(*mut u64),
    pub properties: function!(u64, *mut Properties),
    pub memory_info: function!(u64, *mut u64, *mut u64),
    pub priority_range: function!(u64, *mut i32, *mut i32),
    pub stream_create: function!(u64, i32, *mut u64),
    pub stream_destroy: function!(u64),
    pub stream_wrap: function!(u64, u64, *mut u64),
    pub stream_native: function!(u64, *mut u64),
    pub stream_flush: function!(u64),
    pub stream_query: function!(u64, *mut u32),
    pub stream_synchronize: function!(u64),
    pub mark: function!(u64, u32, *mut u64),
    pub mark_done: function!(u64, *mut u32),
    pub wait_mark: function!(u64),
    pub stream_wait: function!(u64, u64),
    pub when_done: function!(u64, Callback, *mut c_void),
    pub elapsed_ns: function!(u64, u64, *mut i64),
    pub mark_release: function!(u64),
    pub allocate: function!(u64, u64, u64, *mut u64),
    pub allocate_shared: function!(u64, u64, u64, *mut u64),
    pub release: function!(u64, u64),
    pub allocate_host: function!(u64, u64, *mut u64),
    pub release_host: function!(u64),
    pub pointer_owner: function!(u64, *mut Owner),
    pub copy: function!(u64, u64, u64, u64),
    pub fill: function!(u64, u64, u32, u64),
    pub shutdown: function!(),
    /// Null for a kind without virtual memory.
    pub virtual_memory: *const VirtualMemoryTable,
    /// Null for a kind without kernels.
    pub kernels: *const KernelsTable,
}

/// Pages that can be mapped and moved: the functions of `VirtualMemory`, for each device. All are
/// there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is named after its method, documented at the trait")]
pub struct VirtualMemoryTable {
    pub size_bytes: u64,
    pub granularity_bytes: function!(u64, *mut u64),
    pub reserve: function!(u64, u64, *mut u64),
    pub unreserve: function!(u64, u64, u64),
    pub create: function!(u64, u64, *mut u64),
    pub map: function!(u64, u64, u64),
    pub unmap: function!(u64, u64),
    pub relocate: function!(u64, u64, u64),
    pub release: function!(u64, u64),
}

/// A kernel's parameter, which [`KernelsTable::parameter`] fills in; zeros before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Size of the structure: a driver writes no field beyond it.
    pub size_bytes: u64,
    /// UTF-8 with a zero at the end; empty where the program has no names.
    pub name: [c_char; TEXT_BYTES],
    /// As `name`.
    pub type_name: [c_char; TEXT_BYTES],
    /// One of `PARAMETER_*`; 0 when the program does not say.
    pub parameter_class: u32,
    /// Size of a number.
    pub value_bytes: u32,
}

/// An address that the device can access.
pub const PARAMETER_POINTER: u32 = 1;
/// Memory of each work-group.
pub const PARAMETER_LOCAL: u32 = 2;
/// A signed integer.
pub const PARAMETER_SIGNED: u32 = 3;
/// An unsigned integer.
pub const PARAMETER_UNSIGNED: u32 = 4;
/// A floating-point number.
pub const PARAMETER_FLOAT: u32 = 5;

/// An argument of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgumentRecord {
    /// One of `ARGUMENT_*`.
    pub argument_class: u32,
    /// Bytes of `value` that count.
    pub value_bytes: u32,
    /// The address of memory; the size of local memory.
    pub number: u64,
    /// A number or structure, as its bytes lie in memory.
    pub value: [u8; 16],
}

/// Memory at an address.
pub const ARGUMENT_MEMORY: u32 = 1;
/// A value.
pub const ARGUMENT_VALUE: u32 = 2;
/// Memory of each work-group.
pub const ARGUMENT_LOCAL: u32 = 3;

/// How many work-items a launch has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WorkSize {
    /// 1 in the dimensions that are not in use.
    pub global: [u64; 3],
    /// Of a work-group; zeros leave the choice to the driver.
    pub local: [u64; 3],
    /// From 1 to 3.
    pub dimensions: u64,
}

/// Programs and their kernels: the functions of `Kernels`. All are there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is named after its method, documented at the trait")]
pub struct KernelsTable {
    pub size_bytes: u64,
    pub compile: function!(u64, *const c_char, u64, u32, *const c_char, *mut u64),
    pub kernel_count: function!(u64, *mut u64),
    pub kernel_name: function!(u64, u64, *mut c_char, u64),
    pub kernel: function!(u64, *const c_char, *mut u64),
    pub parameter_count: function!(u64, *mut u64),
    pub parameter: function!(u64, u64, *mut Parameter),
    pub launch: function!(u64, u64, *const ArgumentRecord, u64, *const WorkSize),
    pub kernel_release: function!(u64),
    pub program_release: function!(u64),
}

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
