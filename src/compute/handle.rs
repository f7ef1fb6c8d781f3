//! The public types [`Program`] and [`Kernel`]: handles to code that a backend has compiled.
#![expect(unsafe_code, reason = "owners keep their handles live")]

use std::fmt;
use std::sync::Arc;

use crate::backend::contract::{
    Backend, KernelHandle, KernelParameter, Kernels, ProgramHandle, ProgramSource,
};
use crate::base::device::Device;
use crate::base::error::{DriverError, Error, ProgramError, Result};
use crate::base::fork::{self, Inherited};

/// Kernels compiled for one device. Clones share the backend's program.
///
/// Created by [`Runtime::compile`](crate::Runtime::compile), on kinds with a compiler.
///
/// ```
/// use accelrt_testing::null::{NullBackend, NullConfig};
/// use accelrt::{Config, Device, DeviceKind, ProgramSource, Runtime};
/// let null = NullBackend::new(NullConfig::default()); // numbers in place of a device
/// let runtime = Runtime::with_backends(Config::default(), [null as _])?;
/// let device = Device::new(DeviceKind::NULL, 0)?;
/// let text = "kernel void add(global int* numbers, int number) { numbers[0] += number; }";
/// let program = runtime.compile(device, ProgramSource::Text(text), "")?;
/// assert_eq!(program.kernel("add")?.parameters()[1].type_name, "int");
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone)]
pub struct Program {
    compiled: Inherited<Arc<Compiled>>,
}

/// One function of a [`Program`], for [`Stream::launch_kernel`](crate::Stream::launch_kernel).
#[derive(Clone)]
pub struct Kernel {
    core: Inherited<Arc<KernelCore>>,
}

/// Owns a backend's program. The last [`Program`] or kernel that is dropped releases it.
struct Compiled {
    backend: Arc<dyn Backend>,
    device: Device,
    handle: ProgramHandle,
}

/// Owns a backend's kernel. The last [`Kernel`] or launch that is dropped releases it.
pub(super) struct KernelCore {
    /// The kernel's program, which the backend must not release before the kernel.
    program: Arc<Compiled>,
    pub(super) handle: KernelHandle,
    name: String,
    parameters: Vec<KernelParameter>,
}

/// The kernel compiler of a backend. Fails with `Unsupported` if the backend has none.
fn kernels_of(backend: &Arc<dyn Backend>) -> Result<&dyn Kernels> {
    let capability = "programs of kernels";
    backend
        .kernels()
        .ok_or(Error::Driver(DriverError::Unsupported { kind: backend.kind(), capability }))
}

impl Program {
    /// Compiles a program for a device of the backend.
    #[doc(hidden)]
    pub fn compile(
        backend: &Arc<dyn Backend>,
        device: Device,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<Self> {
        let handle = kernels_of(backend)?.compile(device.index(), source, options)?;
        let compiled = Compiled { backend: Arc::clone(backend), device, handle };
        Ok(Self { compiled: Inherited::new(Arc::new(compiled)) })
    }

    /// The device that the program was compiled for.
    #[must_use]
    pub fn device(&self) -> Device {
        self.compiled.device
    }

    /// The names of the program's kernels. Fails in a forked child.
    pub fn kernel_names(&self) -> Result<Vec<String>> {
        fork::check()?;
        let kernels = kernels_of(&self.compiled.backend)?;
        // SAFETY: the program is live: only the drop of `Compiled` releases it.
        unsafe { kernels.kernel_names(self.compiled.handle) }
    }

    /// Finds the kernel `name`. Fails when the program has no such kernel, and in a forked child.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let names = self.kernel_names()?;
        if !names.iter().any(|known| known == name) {
            return Err(Error::Program(ProgramError::NoSuchKernel {
                name: name.to_owned(),
                names,
            }));
        }
        let kernels = kernels_of(&self.compiled.backend)?;
        // SAFETY: the program is live: only the drop of `Compiled` releases it.
        let handle = unsafe { kernels.kernel(self.compiled.handle, name) }?;
        let program = Arc::clone(&self.compiled);
        let mut core =
            KernelCore { program, handle, name: name.to_owned(), parameters: Vec::new() };
        // SAFETY: the kernel is live: `core` owns it, and only the drop of `core` releases it.
        core.parameters = unsafe { kernels.parameters(handle) }?;
        Ok(Kernel { core: Inherited::new(Arc::new(core)) })
    }
}

impl Kernel {
    /// The name of the kernel's function in the program.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The device that the kernel was compiled for.
    #[must_use]
    pub fn device(&self) -> Device {
        self.core.program.device
    }

    /// The declared parameters. A launch takes one argument for each of them, in this order.
    #[must_use]
    pub fn parameters(&self) -> &[KernelParameter] {
        &self.core.parameters
    }

    pub(super) fn core(&self) -> &Arc<KernelCore> {
        &self.core
    }
}

impl KernelCore {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        &self.program.backend
    }

    pub(super) fn kernels(&self) -> Result<&dyn Kernels> {
        kernels_of(self.backend())
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // Both drops ignore the driver's error: the driver's object then leaks.
        let Ok(kernels) = kernels_of(&self.backend) else { return };
        // SAFETY: only this drop releases the program, and its kernels prevent an earlier drop.
        let _ = unsafe { kernels.program_release(self.handle) };
    }
}

impl Drop for KernelCore {
    fn drop(&mut self) {
        let Ok(kernels) = self.kernels() else { return };
        // SAFETY: only this drop releases the kernel, and its launches prevent an earlier drop.
        let _ = unsafe { kernels.kernel_release(self.handle) };
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = format_args!("{}", self.device());
        f.debug_struct("Program").field("device", &device).finish_non_exhaustive()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.name())
            .field("device", &format_args!("{}", self.device()))
            .field("parameters", &self.parameters())
            .finish_non_exhaustive()
    }
}
