//! The part of OpenCL that this crate uses: types, constants, and function tables.
//!
//! Source: the Khronos OpenCL 3.0 specification and `cl_intel_unified_shared_memory` revision 1.0.
//! `table!` defines a function table. At run time, a table resolves all of its functions or fails.
#![expect(unsafe_code, reason = "casts symbols to functions, and shares handles among threads")]
use std::ffi::{c_char, c_void};

/// Defines a type for each sort of opaque driver object.
macro_rules! handle {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(super) *mut c_void);

        // SAFETY: an opaque name. The specification lets any thread use the object: see section
        // "Multiple Host Threads" in its appendix A.
        unsafe impl Send for $name {}
        // SAFETY: as above. Calls that change one kernel object must not be concurrent; the mutex
        // in program.rs ensures that.
        unsafe impl Sync for $name {}

        impl $name {
            pub(crate) const NULL: Self = Self(std::ptr::null_mut());
        }
    )* };
}

handle! {
    /// `cl_platform_id`
    Platform;
    /// `cl_device_id`
    DeviceId;
    /// `cl_context`
    Context;
    /// `cl_command_queue`
    Queue;
    /// `cl_event`
    Event;
    /// `cl_program`
    ProgramObject;
    /// `cl_kernel`
    KernelObject;
}

/// Defines a function table. The syntax is `Name { clSymbol as field(arguments) -> result; }`.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident {
        $($symbol:ident as $field:ident ($($argument:ty),* $(,)?) -> $result:ty;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            /// Resolves every function. The error is the name of the first missing function.
            pub(crate) fn resolve(
                find: impl Fn(&str) -> Option<std::ptr::NonNull<std::ffi::c_void>>,
            ) -> Result<Self, &'static str> {
                $(
                    let found = find(stringify!($symbol)).ok_or(stringify!($symbol))?;
                    // SAFETY: the specification declares a function of this name with these types,
                    // and `find` searches only OpenCL libraries. Both types are one pointer.
                    let $field = unsafe {
                        std::mem::transmute::<
                            std::ptr::NonNull<std::ffi::c_void>,
                            unsafe extern "C" fn($($argument),*) -> $result,
                        >(found)
                    };
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

/// The callback of `clSetEventCallback`.
pub(crate) type EventCallback = unsafe extern "C" fn(Event, i32, *mut c_void);
/// The callback of `clBuildProgram`; always `None`, since it would make the call asynchronous.
pub(crate) type BuildCallback = unsafe extern "C" fn(ProgramObject, *mut c_void);
/// The error callback of `clCreateContext`; always `None`.
pub(crate) type ContextCallback =
    unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);

table! {
    /// Functions exported by the ICD loader.
    Core {
        clGetPlatformIDs as get_platform_ids(u32, *mut Platform, *mut u32) -> i32;
        clGetPlatformInfo as get_platform_info(
            Platform, u32, usize, *mut c_void, *mut usize,
        ) -> i32;
        clGetDeviceIDs as get_device_ids(Platform, u64, u32, *mut DeviceId, *mut u32) -> i32;
        clGetDeviceInfo as get_device_info(DeviceId, u32, usize, *mut c_void, *mut usize) -> i32;
        clGetExtensionFunctionAddressForPlatform as get_extension_function(
            Platform, *const c_char,
        ) -> *mut c_void;
        clCreateContext as create_context(
            *const isize, u32, *const DeviceId, Option<ContextCallback>, *mut c_void, *mut i32,
        ) -> Context;
        clReleaseContext as release_context(Context) -> i32;
        clCreateCommandQueueWithProperties as create_queue(
            Context, DeviceId, *const u64, *mut i32,
        ) -> Queue;
        clRetainCommandQueue as retain_queue(Queue) -> i32;
        clReleaseCommandQueue as release_queue(Queue) -> i32;
        clGetCommandQueueInfo as get_queue_info(Queue, u32, usize, *mut c_void, *mut usize) -> i32;
        clEnqueueMarkerWithWaitList as enqueue_marker(Queue, u32, *const Event, *mut Event) -> i32;
        clEnqueueBarrierWithWaitList as enqueue_barrier(
            Queue, u32, *const Event, *mut Event,
        ) -> i32;
        clFlush as flush(Queue) -> i32;
        clFinish as finish(Queue) -> i32;
        clGetEventInfo as get_event_info(Event, u32, usize, *mut c_void, *mut usize) -> i32;
        clWaitForEvents as wait_for_events(u32, *const Event) -> i32;
        clSetEventCallback as set_event_callback(Event, i32, EventCallback, *mut c_void) -> i32;
        clGetEventProfilingInfo as get_event_profiling_info(
            Event, u32, usize, *mut c_void, *mut usize,
        ) -> i32;
        clReleaseEvent as release_event(Event) -> i32;
    }
}

table! {
    /// Unified shared memory: extension functions, resolved for each platform.
    Usm {
        clDeviceMemAllocINTEL as device_alloc(
            Context, DeviceId, *const u64, usize, u32, *mut i32,
        ) -> *mut c_void;
        clSharedMemAllocINTEL as shared_alloc(
            Context, DeviceId, *const u64, usize, u32, *mut i32,
        ) -> *mut c_void;
        clHostMemAllocINTEL as host_alloc(
            Context, *const u64, usize, u32, *mut i32,
        ) -> *mut c_void;
        clMemFreeINTEL as free(Context, *mut c_void) -> i32;
        clGetMemAllocInfoINTEL as alloc_info(
            Context, *const c_void, u32, usize, *mut c_void, *mut usize,
        ) -> i32;
        clEnqueueMemcpyINTEL as enqueue_memcpy(
            Queue, u32, *mut c_void, *const c_void, usize, u32, *const Event, *mut Event,
        ) -> i32;
        clEnqueueMemFillINTEL as enqueue_fill(
            Queue, *mut c_void, *const c_void, usize, usize, u32, *const Event, *mut Event,
        ) -> i32;
    }
}

table! {
    /// The compiler and kernels. Without this table, the driver supports everything else.
    Compiler {
        clCreateProgramWithSource as create_with_source(
            Context, u32, *const *const c_char, *const usize, *mut i32,
        ) -> ProgramObject;
        clCreateProgramWithIL as create_with_il(
            Context, *const c_void, usize, *mut i32,
        ) -> ProgramObject;
        clBuildProgram as build(
            ProgramObject, u32, *const DeviceId, *const c_char, Option<BuildCallback>, *mut c_void,
        ) -> i32;
        clGetProgramBuildInfo as get_build_info(
            ProgramObject, DeviceId, u32, usize, *mut c_void, *mut usize,
        ) -> i32;
        clGetProgramInfo as get_program_info(
            ProgramObject, u32, usize, *mut c_void, *mut usize,
        ) -> i32;
        clReleaseProgram as release_program(ProgramObject) -> i32;
        clCreateKernel as create_kernel(ProgramObject, *const c_char, *mut i32) -> KernelObject;
        clGetKernelInfo as get_kernel_info(
            KernelObject, u32, usize, *mut c_void, *mut usize,
        ) -> i32;
        clGetKernelArgInfo as get_kernel_arg_info(
            KernelObject, u32, u32, usize, *mut c_void, *mut usize,
        ) -> i32;
        clSetKernelExecInfo as set_exec_info(KernelObject, u32, usize, *const c_void) -> i32;
        clSetKernelArg as set_arg(KernelObject, u32, usize, *const c_void) -> i32;
        clEnqueueNDRangeKernel as enqueue_kernel(
            Queue, KernelObject, u32, *const usize, *const usize, *const usize, u32, *const Event,
            *mut Event,
        ) -> i32;
        clReleaseKernel as release_kernel(KernelObject) -> i32;
    }
}

table! {
    /// Kernel arguments in unified shared memory: an extension function, resolved per platform.
    SetMemPointer {
        clSetKernelArgMemPointerINTEL as set(KernelObject, u32, *const c_void) -> i32;
    }
}

pub(crate) const PLATFORM_NAME: u32 = 0x0902;
pub(crate) const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
pub(crate) const DEVICE_TYPE_GPU: u64 = 1 << 2;
pub(crate) const DEVICE_TYPE: u32 = 0x1000;
pub(crate) const DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
pub(crate) const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
pub(crate) const DEVICE_GLOBAL_MEM_CACHE_SIZE: u32 = 0x101E;
pub(crate) const DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
pub(crate) const DEVICE_AVAILABLE: u32 = 0x1027;
pub(crate) const DEVICE_NAME: u32 = 0x102B;
pub(crate) const DEVICE_EXTENSIONS: u32 = 0x1030;
pub(crate) const DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
pub(crate) const DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL: u32 = 0x4192;
pub(crate) const UNIFIED_SHARED_MEMORY_ACCESS_INTEL: u64 = 1 << 0;
pub(crate) const CONTEXT_PLATFORM: isize = 0x1084;
pub(crate) const QUEUE_CONTEXT: u32 = 0x1090;
pub(crate) const QUEUE_DEVICE: u32 = 0x1091;
pub(crate) const QUEUE_PROPERTIES: u32 = 0x1093;
pub(crate) const QUEUE_PRIORITY_KHR: u64 = 0x1096;
pub(crate) const QUEUE_PRIORITY_HIGH_KHR: u64 = 1 << 0;
pub(crate) const QUEUE_PRIORITY_MED_KHR: u64 = 1 << 1;
pub(crate) const QUEUE_PRIORITY_LOW_KHR: u64 = 1 << 2;
pub(crate) const QUEUE_OUT_OF_ORDER: u64 = 1 << 0;
pub(crate) const QUEUE_PROFILING_ENABLE: u64 = 1 << 1;
pub(crate) const EVENT_COMMAND_EXECUTION_STATUS: u32 = 0x11D3;
pub(crate) const COMPLETE: i32 = 0;
pub(crate) const PROGRAM_KERNEL_NAMES: u32 = 0x1168;
pub(crate) const PROGRAM_BUILD_LOG: u32 = 0x1183;
pub(crate) const KERNEL_NUM_ARGS: u32 = 0x1191;
pub(crate) const KERNEL_ARG_ADDRESS_QUALIFIER: u32 = 0x1196;
pub(crate) const KERNEL_ARG_TYPE_NAME: u32 = 0x1198;
pub(crate) const KERNEL_ARG_NAME: u32 = 0x119A;
pub(crate) const KERNEL_ARG_ADDRESS_GLOBAL: u32 = 0x119B;
pub(crate) const KERNEL_ARG_ADDRESS_LOCAL: u32 = 0x119C;
pub(crate) const KERNEL_ARG_ADDRESS_CONSTANT: u32 = 0x119D;
pub(crate) const KERNEL_ARG_ADDRESS_PRIVATE: u32 = 0x119E;
pub(crate) const KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL: u32 = 0x4200;
pub(crate) const KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL: u32 = 0x4201;
pub(crate) const KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL: u32 = 0x4202;
pub(crate) const PROFILING_COMMAND_END: u32 = 0x1283;
pub(crate) const MEM_ALLOC_TYPE_INTEL: u32 = 0x419A;
pub(crate) const MEM_ALLOC_BASE_PTR_INTEL: u32 = 0x419B;
pub(crate) const MEM_ALLOC_SIZE_INTEL: u32 = 0x419C;
pub(crate) const MEM_ALLOC_DEVICE_INTEL: u32 = 0x419D;
pub(crate) const MEM_TYPE_UNKNOWN_INTEL: u32 = 0x4196;
pub(crate) const MEM_TYPE_HOST_INTEL: u32 = 0x4197;
pub(crate) const MEM_TYPE_SHARED_INTEL: u32 = 0x4199;

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const DEVICE_NOT_FOUND: i32 = -1;
pub(crate) const DEVICE_NOT_AVAILABLE: i32 = -2;
pub(crate) const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
pub(crate) const OUT_OF_RESOURCES: i32 = -5;
pub(crate) const OUT_OF_HOST_MEMORY: i32 = -6;
pub(crate) const BUILD_PROGRAM_FAILURE: i32 = -11;
pub(crate) const KERNEL_ARG_INFO_NOT_AVAILABLE: i32 = -19;
pub(crate) const INVALID_VALUE: i32 = -30;
pub(crate) const INVALID_DEVICE: i32 = -33;
pub(crate) const INVALID_CONTEXT: i32 = -34;
pub(crate) const INVALID_QUEUE_PROPERTIES: i32 = -35;
pub(crate) const INVALID_COMMAND_QUEUE: i32 = -36;
pub(crate) const INVALID_BUILD_OPTIONS: i32 = -43;
pub(crate) const INVALID_KERNEL_NAME: i32 = -46;
pub(crate) const INVALID_BUFFER_SIZE: i32 = -61;

/// The specification's name of an error code.
pub(crate) fn code_name(code: i32) -> &'static str {
    match code {
        0 => "CL_SUCCESS",
        -1 => "CL_DEVICE_NOT_FOUND",
        -2 => "CL_DEVICE_NOT_AVAILABLE",
        -3 => "CL_COMPILER_NOT_AVAILABLE",
        -4 => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        -5 => "CL_OUT_OF_RESOURCES",
        -6 => "CL_OUT_OF_HOST_MEMORY",
        -7 => "CL_PROFILING_INFO_NOT_AVAILABLE",
        -8 => "CL_MEM_COPY_OVERLAP",
        -11 => "CL_BUILD_PROGRAM_FAILURE",
        -12 => "CL_MAP_FAILURE",
        -14 => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -15 => "CL_COMPILE_PROGRAM_FAILURE",
        -16 => "CL_LINKER_NOT_AVAILABLE",
        -17 => "CL_LINK_PROGRAM_FAILURE",
        -19 => "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
        -30 => "CL_INVALID_VALUE",
        -32 => "CL_INVALID_PLATFORM",
        -33 => "CL_INVALID_DEVICE",
        -34 => "CL_INVALID_CONTEXT",
        -35 => "CL_INVALID_QUEUE_PROPERTIES",
        -36 => "CL_INVALID_COMMAND_QUEUE",
        -38 => "CL_INVALID_MEM_OBJECT",
        -42 => "CL_INVALID_BINARY",
        -43 => "CL_INVALID_BUILD_OPTIONS",
        -44 => "CL_INVALID_PROGRAM",
        -45 => "CL_INVALID_PROGRAM_EXECUTABLE",
        -46 => "CL_INVALID_KERNEL_NAME",
        -47 => "CL_INVALID_KERNEL_DEFINITION",
        -48 => "CL_INVALID_KERNEL",
        -49 => "CL_INVALID_ARG_INDEX",
        -50 => "CL_INVALID_ARG_VALUE",
        -51 => "CL_INVALID_ARG_SIZE",
        -52 => "CL_INVALID_KERNEL_ARGS",
        -53 => "CL_INVALID_WORK_DIMENSION",
        -54 => "CL_INVALID_WORK_GROUP_SIZE",
        -55 => "CL_INVALID_WORK_ITEM_SIZE",
        -56 => "CL_INVALID_GLOBAL_OFFSET",
        -57 => "CL_INVALID_EVENT_WAIT_LIST",
        -58 => "CL_INVALID_EVENT",
        -59 => "CL_INVALID_OPERATION",
        -61 => "CL_INVALID_BUFFER_SIZE",
        -63 => "CL_INVALID_GLOBAL_WORK_SIZE",
        -64 => "CL_INVALID_PROPERTY",
        -66 => "CL_INVALID_COMPILER_OPTIONS",
        -1001 => "CL_PLATFORM_NOT_FOUND_KHR",
        _ => "a code that OpenCL does not name",
    }
}
