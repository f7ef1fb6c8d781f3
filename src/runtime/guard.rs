//! Guards: each makes a device or stream current for its thread until the guard is dropped.
//!
//! Source: c10's `DeviceGuard` and `StreamGuard`. A guard restores the previous device or stream,
//! also when a panic unwinds, and cannot move to another thread.

use std::marker::PhantomData;

use crate::base::device::Device;
use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::runtime::Runtime;

/// Makes a guard not `Send`, because each thread has its own current device and stream.
type ThisThread = PhantomData<*const ()>;

/// Makes a device current for its kind on this thread, until dropped.
///
/// ```
/// use accelrt::{Config, Device, DeviceGuard, Runtime};
/// let runtime = Runtime::new(Config::builder().cpu_devices(2).build()?)?;
/// {
///     let _guard = DeviceGuard::new(&runtime, Device::cpu(1))?;
///     assert_eq!(runtime.current_device()?, Device::cpu(1));
/// }
/// assert_eq!(runtime.current_device()?, Device::cpu(0));
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the previous device is current again when the guard is dropped"]
pub struct DeviceGuard {
    runtime: Runtime,
    previous: Device,
    this_thread: ThisThread,
}

impl DeviceGuard {
    /// Makes `device` current. Fails, without a change, when the device does not exist.
    pub fn new(runtime: &Runtime, device: Device) -> Result<Self> {
        let previous = runtime.exchange_device(device)?;
        Ok(Self { runtime: runtime.clone(), previous, this_thread: PhantomData })
    }

    /// The device that the guard's drop makes current again.
    #[must_use]
    pub fn previous(&self) -> Device {
        self.previous
    }

    /// Makes another device current. The drop still restores the device from before [`Self::new`].
    pub fn set(&mut self, device: Device) -> Result<()> {
        self.runtime.exchange_device(device).map(drop)
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        self.runtime.restore_device(self.previous);
    }
}

/// Makes a stream and its device current on this thread, until dropped.
///
/// ```
/// use accelrt::{Config, Device, Runtime, StreamGuard};
/// let runtime = Runtime::new(Config::default())?;
/// let stream = runtime.stream(Device::cpu(0))?;
/// {
///     let _guard = StreamGuard::new(&runtime, &stream)?;
///     assert_eq!(runtime.current_stream()?, stream);
/// }
/// assert_eq!(runtime.current_stream()?.id(), 0);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the previous stream is current again when the guard is dropped"]
pub struct StreamGuard {
    /// This field drops after `drop` has restored the stream: the reverse of the order in `new`.
    device: DeviceGuard,
    previous: Stream,
}

impl StreamGuard {
    /// Makes `stream` and its device current. Fails, without a change, when the stream belongs to
    /// another runtime.
    pub fn new(runtime: &Runtime, stream: &Stream) -> Result<Self> {
        let device = DeviceGuard::new(runtime, stream.device())?;
        let previous = runtime.exchange_stream(stream)?;
        Ok(Self { device, previous })
    }

    /// The stream that the guard's drop makes current again, on that stream's device.
    #[must_use]
    pub fn previous(&self) -> &Stream {
        &self.previous
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.device.runtime.restore_stream(&self.previous);
    }
}

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
