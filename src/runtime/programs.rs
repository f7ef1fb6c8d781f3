//! Creates programs: kernels compiled for a device.

use crate::base::device::Device;
use crate::base::error::Result;
use crate::compute::{Program, ProgramSource};
use crate::runtime::Runtime;

impl Runtime {
    /// Compiles a program for a device while the caller waits; `options` go to the compiler.
    ///
    /// Fails with [`BuildFailed`](crate::ProgramError::BuildFailed), which contains the compiler's
    /// log. Also fails on kinds without a compiler, when the device does not exist, after a
    /// shutdown and in a forked child.
    ///
    /// ```
    /// use accelrt::{Config, Device, DriverError, Error, ProgramSource, Runtime};
    /// let runtime = Runtime::new(Config::default())?;
    /// let refused = runtime.compile(Device::cpu(0), ProgramSource::Text(""), "");
    /// assert!(matches!(refused, Err(Error::Driver(DriverError::Unsupported { .. }))));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn compile(
        &self,
        device: Device,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<Program> {
        Program::compile(self.initialized(device)?, device, source, options)
    }
}
