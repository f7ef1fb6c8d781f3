//! Typed wrappers of OpenCL's compiler and kernel functions: all of their unsafe code is here.
//!
//! The comments below call a handle "live" if it comes from the driver and is not yet released.
//! [`XpuProgram`](crate::program::XpuProgram) ensures that for its program, and
//! [`XpuKernel`](crate::program::XpuKernel) for its kernel.
#![expect(unsafe_code, reason = "calls OpenCL")]
use std::ffi::{CStr, c_void};
use std::ptr;

use accelrt::backend::contract::{LaunchArgument, LaunchSize, ProgramSource};

use crate::driver::{CallError, CallResult, check, pointer, text, value};
use crate::sys::{
    self, Compiler, Context, DeviceId, KernelObject, ProgramObject, Queue, SetMemPointer,
};

/// OpenCL's description of a kernel argument.
#[derive(Debug)]
pub(crate) struct ArgumentInfo {
    pub(crate) address_space: u32,
    pub(crate) type_name: String,
    pub(crate) name: String,
}

/// Checks the result of a creation. Null without an error code counts as a lack of resources.
fn created_object<T: PartialEq>(
    call: &'static str,
    object: T,
    null: &T,
    code: i32,
) -> CallResult<T> {
    check(call, code)?;
    if object == *null { Err(CallError { call, code: sys::OUT_OF_RESOURCES }) } else { Ok(object) }
}

impl Compiler {
    pub(crate) fn create(
        &self,
        context: Context,
        source: ProgramSource<'_>,
    ) -> CallResult<ProgramObject> {
        let mut code = sys::SUCCESS;
        let (call, program) = match source {
            ProgramSource::Text(text) => {
                // For a length of 0, OpenCL reads up to a zero byte, which a Rust string lacks.
                let text = if text.is_empty() { "\n" } else { text };
                let (begin, bytes) = (text.as_ptr().cast(), text.len());
                // SAFETY: the handle is live (head of this file). The driver copies the one text,
                // which has this length.
                let program = unsafe {
                    (self.create_with_source)(
                        context,
                        1,
                        &raw const begin,
                        &raw const bytes,
                        &raw mut code,
                    )
                };
                ("clCreateProgramWithSource", program)
            }
            ProgramSource::Binary(binary) => {
                let (begin, bytes) = (binary.as_ptr().cast(), binary.len());
                // SAFETY: the handle is live (head of this file). The driver copies the binary,
                // which has this length.
                let program =
                    unsafe { (self.create_with_il)(context, begin, bytes, &raw mut code) };
                ("clCreateProgramWithIL", program)
            }
            _ => return Err(CallError { call: "clCreateProgram", code: sys::INVALID_VALUE }),
        };
        created_object(call, program, &ProgramObject::NULL, code)
    }

    pub(crate) fn build(
        &self,
        program: ProgramObject,
        device: DeviceId,
        options: &CStr,
    ) -> CallResult {
        // SAFETY: the handles are live (head of this file); the list has one device; `options`
        // ends with a zero; there is no callback.
        let code = unsafe {
            (self.build)(program, 1, &raw const device, options.as_ptr(), None, ptr::null_mut())
        };
        check("clBuildProgram", code)
    }

    pub(crate) fn build_log(&self, program: ProgramObject, device: DeviceId) -> CallResult<String> {
        text("clGetProgramBuildInfo", |room, place, size| {
            let what = sys::PROGRAM_BUILD_LOG;
            // SAFETY: the handles are live (head of this file); `place` has `room` bytes, or is
            // null with a room of 0.
            unsafe { (self.get_build_info)(program, device, what, room, place, size) }
        })
    }

    /// The names of a program's kernels, separated by semicolons.
    pub(crate) fn kernel_names(&self, program: ProgramObject) -> CallResult<String> {
        text("clGetProgramInfo", |room, place, size| {
            let what = sys::PROGRAM_KERNEL_NAMES;
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes, or is null
            // with a room of 0.
            unsafe { (self.get_program_info)(program, what, room, place, size) }
        })
    }

    pub(crate) fn release_program(&self, program: ProgramObject) -> CallResult {
        // SAFETY: the handle is live (head of this file). Its owner no longer uses it.
        check("clReleaseProgram", unsafe { (self.release_program)(program) })
    }

    pub(crate) fn create_kernel(
        &self,
        program: ProgramObject,
        name: &CStr,
    ) -> CallResult<KernelObject> {
        let mut code = sys::SUCCESS;
        // SAFETY: the handle is live (head of this file); the name ends with a zero.
        let kernel = unsafe { (self.create_kernel)(program, name.as_ptr(), &raw mut code) };
        created_object("clCreateKernel", kernel, &KernelObject::NULL, code)
    }

    pub(crate) fn argument_count(&self, kernel: KernelObject) -> CallResult<u32> {
        value("clGetKernelInfo", |room, place| {
            let what = sys::KERNEL_NUM_ARGS;
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes.
            unsafe { (self.get_kernel_info)(kernel, what, room, place, ptr::null_mut()) }
        })
    }

    /// The program's description of an argument; `None` when the compiler stored no descriptions.
    pub(crate) fn argument_info(
        &self,
        kernel: KernelObject,
        index: u32,
    ) -> CallResult<Option<ArgumentInfo>> {
        let ask = |what: u32, room: usize, place: *mut c_void, size: *mut usize| {
            // SAFETY: the handle is live (head of this file); `place` has `room` bytes, or is null
            // with a room of 0.
            unsafe { (self.get_kernel_arg_info)(kernel, index, what, room, place, size) }
        };
        let call = "clGetKernelArgInfo";
        let space = value(call, |room, place| {
            ask(sys::KERNEL_ARG_ADDRESS_QUALIFIER, room, place, ptr::null_mut())
        });
        let address_space = match space {
            Err(CallError { code: sys::KERNEL_ARG_INFO_NOT_AVAILABLE, .. }) => return Ok(None),
            space => space?,
        };
        let text = |what| text(call, |room, place, size| ask(what, room, place, size));
        let type_name = text(sys::KERNEL_ARG_TYPE_NAME)?;
        Ok(Some(ArgumentInfo { address_space, type_name, name: text(sys::KERNEL_ARG_NAME)? }))
    }

    /// Lets the kernel dereference pointers loaded from memory. `what` names the memory's kind.
    pub(crate) fn allow_indirect_access(&self, kernel: KernelObject, what: u32) -> CallResult {
        let yes = 1_u32;
        // SAFETY: the handle is live (head of this file). The driver copies the value, which
        // is a `cl_bool`.
        let code = unsafe {
            (self.set_exec_info)(kernel, what, size_of::<u32>(), (&raw const yes).cast())
        };
        check("clSetKernelExecInfo", code)
    }

    /// Sets an argument. The caller must hold the kernel's lock: OpenCL forbids concurrent calls.
    pub(crate) fn set_argument(
        &self,
        set_mem_pointer: SetMemPointer,
        kernel: KernelObject,
        index: u32,
        argument: &LaunchArgument,
    ) -> CallResult {
        let (bytes, begin) = match argument {
            LaunchArgument::Memory(address) => {
                let address = pointer(address.0).cast_const();
                // SAFETY: the handle is live (head of this file); the driver stores the address,
                // and only the kernel dereferences it.
                let code = unsafe { (set_mem_pointer.set)(kernel, index, address) };
                return check("clSetKernelArgMemPointerINTEL", code);
            }
            LaunchArgument::Value(value) => {
                let bytes = value.as_slice();
                (bytes.len(), bytes.as_ptr().cast())
            }
            LaunchArgument::Local(bytes) => (*bytes, ptr::null()),
        };
        // SAFETY: the handle is live (head of this file); the driver checks the size against the
        // declared one and copies the bytes. For local memory it reads only the size.
        check("clSetKernelArg", unsafe { (self.set_arg)(kernel, index, bytes, begin) })
    }

    /// Enqueues the kernel with the arguments that `set_argument` has set.
    pub(crate) fn enqueue(
        &self,
        queue: Queue,
        kernel: KernelObject,
        size: &LaunchSize,
    ) -> CallResult {
        let local = size.local.as_ref().map_or(ptr::null(), |local| local.as_ptr());
        // SAFETY: the handles are live (head of this file); both sizes have three numbers, of which
        // `dimensions` are read. The caller of the launch upholds that the kernel's accesses are
        // sound.
        let code = unsafe {
            (self.enqueue_kernel)(
                queue,
                kernel,
                size.dimensions,
                ptr::null(),
                size.global.as_ptr(),
                local,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check("clEnqueueNDRangeKernel", code)
    }

    pub(crate) fn release_kernel(&self, kernel: KernelObject) -> CallResult {
        // SAFETY: the handle is live (head of this file). Its owner no longer uses it.
        // Queued launches retain the kernel.
        check("clReleaseKernel", unsafe { (self.release_kernel)(kernel) })
    }
}
