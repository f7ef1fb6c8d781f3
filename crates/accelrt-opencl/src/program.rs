//! Programs and kernels, compiled in the context of all devices.
#![expect(unsafe_code, reason = "handles are addresses, which the caller keeps live")]
use std::ffi::CString;
use std::sync::Arc;

use accelrt::backend::contract::{
    KernelHandle, KernelParameter, Kernels, LaunchArgument, LaunchSize, ParameterClass,
    ProgramHandle, ProgramSource, StreamHandle,
};
use accelrt::internal::class_of_value;
use accelrt::internal::{LockRank, Mutex, fork};
use accelrt::{DeviceKind, DriverError, Error, ProgramError, Result};

use crate::backend::XpuBackend;
use crate::compiler::ArgumentInfo;
use crate::device::XpuDevice;
use crate::driver::{CallError, CallResult};
use crate::handle;
use crate::session::Session;
use crate::sys::{self, Compiler, KernelObject, ProgramObject, Queue, SetMemPointer};

/// The first word of a SPIR-V binary.
const SPIR_V: u32 = 0x0723_0203;

/// The option that makes the compiler retain the names and types of kernel arguments.
const KEEP_ARGUMENT_INFO: &str = "-cl-kernel-arg-info";

const INDIRECT_ACCESS_FLAGS: [u32; 3] = [
    sys::KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL,
    sys::KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
    sys::KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL,
];

/// A program, compiled for one device. The drop releases the driver's object.
#[derive(Debug)]
pub(crate) struct XpuProgram {
    session: Arc<Session>,
    compiler: Compiler,
    set_mem_pointer: SetMemPointer,
    object: ProgramObject,
    device_index: usize,
}

/// A kernel. A launch sets the arguments and enqueues the kernel under the lock of `object`,
/// because OpenCL forbids concurrent calls that set arguments of one kernel.
#[derive(Debug)]
pub(crate) struct XpuKernel {
    compiler: Compiler,
    set_mem_pointer: SetMemPointer,
    device_index: usize,
    object: Mutex<KernelObject>,
    /// Keeps the context alive until the kernel's release.
    _session: Arc<Session>,
}

impl XpuProgram {
    /// Compiles a program. The error of a failed build contains the compiler's log.
    fn compile(
        session: &Arc<Session>,
        (device, device_index): (&XpuDevice, usize),
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<Self> {
        let failed =
            |log: String| Error::Program(ProgramError::BuildFailed { device: device.device, log });
        let refused = |refusal| device.lost_or_refused(&session.driver, refusal);
        let missing = Error::Driver(DriverError::Unsupported {
            kind: DeviceKind::XPU,
            capability: "programs of kernels: its driver lacks a function for them",
        });
        let tables = session.driver.compiler.zip(session.set_mem_pointer);
        let (compiler, set_mem_pointer) = tables.ok_or(missing)?;
        if let ProgramSource::Binary(binary) = source
            && binary.first_chunk().is_none_or(|word| u32::from_le_bytes(*word) != SPIR_V)
        {
            let text = "the binary is no SPIR-V: it does not begin with the word 0x07230203";
            return Err(failed(text.to_owned()));
        }
        let options = CString::new(format!("{KEEP_ARGUMENT_INFO} {options}"));
        let options = options.map_err(|_| failed("the options contain a zero byte".to_owned()))?;
        let object = compiler.create(session.context, source).map_err(refused)?;
        // From here on, the drop of `program` releases the object.
        let session = Arc::clone(session);
        let program = Self { session, compiler, set_mem_pointer, object, device_index };
        if let Err(refusal) = compiler.build(object, device.info.id, &options) {
            let log = compiler.build_log(object, device.info.id).unwrap_or_default();
            let is_refused_text =
                [sys::BUILD_PROGRAM_FAILURE, sys::INVALID_BUILD_OPTIONS].contains(&refusal.code);
            return Err(match (is_refused_text, log.is_empty()) {
                (_, false) => failed(log),
                (true, true) => failed(sys::code_name(refusal.code).to_owned()),
                (false, true) => device.lost_or_refused(&program.session.driver, refusal),
            });
        }
        Ok(program)
    }

    fn kernel_names(&self) -> CallResult<Vec<String>> {
        let names = self.compiler.kernel_names(self.object)?;
        Ok(names.split(';').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    fn kernel(&self, name: &str) -> CallResult<XpuKernel> {
        let call = "clCreateKernel";
        let name =
            CString::new(name).map_err(|_| CallError { call, code: sys::INVALID_KERNEL_NAME })?;
        let object = self.compiler.create_kernel(self.object, &name)?;
        for what in INDIRECT_ACCESS_FLAGS {
            // The result is ignored: a driver that rejects the flag lacks this kind of memory.
            let _ = self.compiler.allow_indirect_access(object, what);
        }
        Ok(XpuKernel {
            compiler: self.compiler,
            set_mem_pointer: self.set_mem_pointer,
            device_index: self.device_index,
            object: Mutex::new(LockRank::Backend, object),
            _session: Arc::clone(&self.session),
        })
    }
}

impl Drop for XpuProgram {
    fn drop(&mut self) {
        // The result is ignored, here and below: a failure leaks the object.
        let _ = self.compiler.release_program(self.object);
    }
}

impl XpuKernel {
    fn parameters(&self) -> CallResult<Vec<KernelParameter>> {
        let object = *self.object.lock();
        let count = self.compiler.argument_count(object)?;
        let infos = (0..count).map(|index| self.compiler.argument_info(object, index));
        infos.map(|info| Ok(parameter(info?))).collect()
    }

    fn enqueue(&self, queue: Queue, arguments: &[LaunchArgument], size: &LaunchSize) -> CallResult {
        let object = self.object.lock();
        for (index, argument) in (0..).zip(arguments) {
            self.compiler.set_argument(self.set_mem_pointer, *object, index, argument)?;
        }
        self.compiler.enqueue(queue, *object, size)
    }
}

impl Drop for XpuKernel {
    fn drop(&mut self) {
        let object = *self.object.lock();
        let _ = self.compiler.release_kernel(object);
    }
}

/// Converts OpenCL's description of a parameter. Without a description, the class is unknown.
fn parameter(info: Option<ArgumentInfo>) -> KernelParameter {
    let Some(ArgumentInfo { address_space, type_name, name }) = info else {
        let class = ParameterClass::Unknown;
        return KernelParameter { name: String::new(), type_name: String::new(), class };
    };
    // OpenCL reports images as global too, but they are not pointers.
    let is_pointer = type_name.is_empty() || type_name.ends_with('*');
    let class = match address_space {
        sys::KERNEL_ARG_ADDRESS_GLOBAL | sys::KERNEL_ARG_ADDRESS_CONSTANT if is_pointer => {
            ParameterClass::Pointer
        }
        sys::KERNEL_ARG_ADDRESS_LOCAL => ParameterClass::Local,
        sys::KERNEL_ARG_ADDRESS_PRIVATE => class_of_value(&type_name),
        _ => ParameterClass::Unknown,
    };
    KernelParameter { name, type_name, class }
}

impl XpuBackend {
    /// Converts a refused call on a program or kernel into an error of the device.
    fn program_result<T>(&self, device_index: usize, answer: CallResult<T>) -> Result<T> {
        answer.or_else(|refusal| {
            Err(self.device(device_index)?.lost_or_refused(self.driver(), refusal))
        })
    }
}

// SAFETY: a launch passes only the kernel and its arguments to the driver.
unsafe impl Kernels for XpuBackend {
    fn compile(
        &self,
        device_index: usize,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<ProgramHandle> {
        let (device, session) = self.device_and_session(device_index)?;
        let program = XpuProgram::compile(session, (device, device_index), source, options)?;
        Ok(ProgramHandle(handle::issue(Arc::new(program))))
    }

    unsafe fn kernel_names(&self, program: ProgramHandle) -> Result<Vec<String>> {
        fork::check()?;
        // SAFETY: the caller upholds that the program is live.
        let program = unsafe { handle::borrow::<XpuProgram>(program.0) };
        self.program_result(program.device_index, program.kernel_names())
    }

    unsafe fn kernel(&self, program: ProgramHandle, name: &str) -> Result<KernelHandle> {
        fork::check()?;
        // SAFETY: the caller upholds that the program is live.
        let program = unsafe { handle::borrow::<XpuProgram>(program.0) };
        let kernel = self.program_result(program.device_index, program.kernel(name))?;
        Ok(KernelHandle(handle::issue(Arc::new(kernel))))
    }

    unsafe fn parameters(&self, kernel: KernelHandle) -> Result<Vec<KernelParameter>> {
        fork::check()?;
        // SAFETY: the caller upholds that the kernel is live.
        let kernel = unsafe { handle::borrow::<XpuKernel>(kernel.0) };
        self.program_result(kernel.device_index, kernel.parameters())
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        stream: StreamHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()> {
        // SAFETY: the caller upholds that the stream is live.
        let stream = unsafe { Self::usable_stream(stream) }?;
        // SAFETY: the caller upholds that the kernel is live.
        let kernel = unsafe { handle::borrow::<XpuKernel>(kernel.0) };
        let enqueued = stream.enqueue(|queue| kernel.enqueue(queue, arguments, size));
        self.stream_result(&stream, enqueued)
    }

    unsafe fn kernel_release(&self, kernel: KernelHandle) -> Result<()> {
        if fork::is_child() {
            return Ok(());
        }
        // SAFETY: the caller upholds that the kernel is live, and never uses its handle again.
        drop(unsafe { handle::end::<XpuKernel>(kernel.0) });
        Ok(())
    }

    unsafe fn program_release(&self, program: ProgramHandle) -> Result<()> {
        if fork::is_child() {
            return Ok(());
        }
        // SAFETY: the caller upholds that the program is live, and never uses its handle again.
        drop(unsafe { handle::end::<XpuProgram>(program.0) });
        Ok(())
    }
}
