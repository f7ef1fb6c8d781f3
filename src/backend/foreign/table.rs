//! The layout of `include/accelrt_backend.h`: a table of C functions, and what they fill in.
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

use std::ffi::{c_char, c_int, c_void};

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
