//! Guards that may start without a device or stream, as c10's optional guards.

use crate::base::device::Device;
use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::runtime::Runtime;
use crate::runtime::guard::{DeviceGuard, StreamGuard};

/// A [`DeviceGuard`] that may start without a device.
///
/// ```
/// use accelrt::{Config, Device, OptionalDeviceGuard, Runtime};
/// let runtime = Runtime::new(Config::builder().cpu_devices(2).build()?)?;
/// let mut guard = OptionalDeviceGuard::new(&runtime, None)?; // nothing yet
/// guard.set(&runtime, Device::cpu(1))?;
/// assert_eq!(runtime.current_device()?, Device::cpu(1));
/// guard.reset(); // or the drop
/// assert_eq!(runtime.current_device()?, Device::cpu(0));
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "the previous device is current again when the guard is dropped"]
pub struct OptionalDeviceGuard(Option<DeviceGuard>);

impl OptionalDeviceGuard {
    /// Makes `device` current; `None` changes nothing until [`Self::set`].
    pub fn new(runtime: &Runtime, device: Option<Device>) -> Result<Self> {
        device.map(|device| DeviceGuard::new(runtime, device)).transpose().map(Self)
    }

    /// Makes a device current. The drop restores the device from before the guard's first change.
    pub fn set(&mut self, runtime: &Runtime, device: Device) -> Result<()> {
        match &mut self.0 {
            Some(guard) => guard.set(device),
            none => DeviceGuard::new(runtime, device).map(|guard| *none = Some(guard)),
        }
    }

    /// Restores the previous device now instead of at the drop. Has no effect on an empty guard.
    pub fn reset(&mut self) {
        self.0 = None;
    }
}

/// A [`StreamGuard`] that may start without a stream.
///
/// ```
/// use accelrt::{Config, Device, OptionalStreamGuard, Runtime};
/// let runtime = Runtime::new(Config::builder().cpu_devices(2).build()?)?;
/// let stream = runtime.stream(Device::cpu(1))?;
/// let mut guard = OptionalStreamGuard::new(&runtime, None)?; // nothing yet
/// guard.set(&runtime, &stream)?;
/// assert_eq!(runtime.current_stream()?, stream);
/// guard.reset(); // or the drop
/// assert_eq!(runtime.current_stream()?.id(), 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "the previous stream is current again when the guard is dropped"]
pub struct OptionalStreamGuard(Option<StreamGuard>);

impl OptionalStreamGuard {
    /// Makes `stream` current; `None` changes nothing until [`Self::set`].
    pub fn new(runtime: &Runtime, stream: Option<&Stream>) -> Result<Self> {
        stream.map(|stream| StreamGuard::new(runtime, stream)).transpose().map(Self)
    }

    /// Restores the stream and device from before the guard, then makes `stream` current.
    pub fn set(&mut self, runtime: &Runtime, stream: &Stream) -> Result<()> {
        self.reset();
        self.0 = Some(StreamGuard::new(runtime, stream)?);
        Ok(())
    }

    /// Restores the previous stream and device now instead of at the drop. Has no effect on an
    /// empty guard.
    pub fn reset(&mut self) {
        self.0 = None;
    }
}
