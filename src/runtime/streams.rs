//! What a runtime gives to its callers: current devices and streams, new streams, programs.
#![expect(unsafe_code, reason = "passes on what a caller says of a driver's stream")]

use std::sync::Arc;

use crate::backend::contract::owned::OwnedStream;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::Result;
use crate::base::fork;
use crate::compute::{Program, ProgramSource};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::lifecycle::Lifecycle;
use crate::engine::stream::{Stream, order_watch};
use crate::runtime::current::Selected;
use crate::runtime::{Runtime, current};

impl Runtime {
    #[doc(hidden)]
    #[must_use]
    pub fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.inner.lifecycle
    }

    /// Every stream that exists, of all devices.
    #[doc(hidden)]
    #[must_use]
    pub fn all_streams(&self) -> Vec<Arc<StreamCore>> {
        self.inner.streams()
    }

    /// This thread's current device of the accelerator's kind.
    pub fn current_device(&self) -> Result<Device> {
        self.current_device_of(self.accelerator()?)
    }

    /// This thread's current device of a kind; device 0 when the thread has set none.
    pub fn current_device_of(&self, kind: DeviceKind) -> Result<Device> {
        current::device(self.id(), kind).map_or_else(|| Device::new(kind, 0), Ok)
    }

    /// Makes a device current for its kind on this thread. Fails when the device does not exist.
    pub fn set_device(&self, device: Device) -> Result<()> {
        self.exchange_device(device).map(drop)
    }

    /// As [`Runtime::set_device`], and returns the previous device of that kind.
    pub fn exchange_device(&self, device: Device) -> Result<Device> {
        self.backend(device)?;
        let previous = self.current_device_of(device.kind())?;
        current::set_device(self.id(), device);
        Ok(previous)
    }

    /// Sets the current device without a check. For guards, which restore an earlier device.
    #[doc(hidden)]
    pub fn restore_device(&self, device: Device) {
        current::set_device(self.id(), device);
    }

    /// This thread's current stream on its current device.
    pub fn current_stream(&self) -> Result<Stream> {
        self.current_stream_of(self.current_device()?)
    }

    /// This thread's current stream on a device; the default stream when the thread has set none.
    pub fn current_stream_of(&self, device: Device) -> Result<Stream> {
        match current::stream(self.id(), device) {
            Some(stream) => Ok(stream),
            None => self.default_stream(device),
        }
    }

    /// Makes a stream and its device current for this thread. Fails, without a change, as
    /// [`Runtime::exchange_stream`].
    pub fn set_stream(&self, stream: &Stream) -> Result<()> {
        // Sets the stream first, so that a refused stream leaves the device unchanged.
        self.exchange_stream(stream)?;
        self.exchange_device(stream.device()).map(drop)
    }

    /// Makes a stream current on the stream's device and returns that device's previous stream.
    /// Leaves the current device unchanged. Fails when the stream belongs to another runtime.
    pub fn exchange_stream(&self, stream: &Stream) -> Result<Stream> {
        self.inner.lifecycle.check_same_runtime("a stream", stream.core().lifecycle.runtime)?;
        let previous = self.current_stream_of(stream.device())?;
        current::set_stream(self.id(), stream);
        Ok(previous)
    }

    /// Sets the current stream without a check. For guards, which restore an earlier stream.
    #[doc(hidden)]
    pub fn restore_stream(&self, stream: &Stream) {
        current::set_stream(self.id(), stream);
    }

    /// What this thread has made current.
    #[doc(hidden)]
    #[must_use]
    pub fn selected(&self) -> Selected {
        current::selected(self.id())
    }

    /// Replaces what this thread has made current, without a check, and returns it.
    #[doc(hidden)]
    #[must_use]
    pub fn exchange_selected(&self, selected: Selected) -> Selected {
        current::exchange_selected(self.id(), selected)
    }

    /// Replaces this thread's state by a stream and its device, or clears it with `None`. For the
    /// helper thread, which serves many streams. Also works after a shutdown.
    #[doc(hidden)]
    pub fn adopt_stream(&self, stream: Option<&Stream>) {
        current::forget(self.id());
        if let Some(stream) = stream {
            self.restore_device(stream.device());
            self.restore_stream(stream);
        }
    }

    /// Creates a stream for the caller alone. The stream ends when its last handle is dropped and
    /// its work is done. Fails when the device does not exist, after a shutdown and in a forked
    /// child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let stream = runtime.stream(accelrt::Device::cpu(0))?;
    /// stream.enqueue(|| println!("on a worker"))?;
    /// stream.synchronize()?;
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn stream(&self, device: Device) -> Result<Stream> {
        self.stream_with_priority(device, 0)
    }

    /// As [`Runtime::stream`], with a priority; a smaller number runs first. A priority outside of
    /// [`Runtime::priority_range`] becomes the nearest one in it.
    pub fn stream_with_priority(&self, device: Device, priority: i32) -> Result<Stream> {
        self.table(device)?.dedicated_stream(priority).map(Stream::from_core)
    }

    /// Takes the next stream of the device's pool of 32, as PyTorch's `Stream()` does. The streams
    /// live as long as the runtime, so a request costs a lock and creates at most 32 streams.
    ///
    /// Request 33 gets the stream of request 1 again. Its callers share the order of their tasks.
    /// Errors of tasks that were enqueued before a request do not fail the tasks of that caller,
    /// who does not see them. But a synchronise by one caller clears the error of a later task of
    /// another: code that must see its own errors takes [`Runtime::stream`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// let streams = [(); 33].map(|()| runtime.pooled_stream(device).unwrap());
    /// assert_eq!(streams[0], streams[32]);
    /// assert_ne!(runtime.stream(device)?, runtime.stream(device)?);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn pooled_stream(&self, device: Device) -> Result<Stream> {
        self.pooled_stream_with_priority(device, 0)
    }

    /// As [`Runtime::pooled_stream`], from the pool of streams with this priority; a smaller number
    /// runs first. A priority out of range becomes the nearest one in it.
    pub fn pooled_stream_with_priority(&self, device: Device, priority: i32) -> Result<Stream> {
        let (stream, issued_after) = self.table(device)?.pooled_stream(priority)?;
        Ok(Stream::issued_after_ticket(issued_after, stream))
    }

    /// The device's default stream: id 0, shared by all threads, not ordered with other streams.
    pub fn default_stream(&self, device: Device) -> Result<Stream> {
        self.table(device)?.default_stream().map(Stream::from_core)
    }

    /// The stream with this id. Fails for an id that was never issued or whose stream has ended.
    pub fn stream_by_id(&self, device: Device, stream_id: u64) -> Result<Stream> {
        self.table(device)?.stream_by_id(stream_id).map(Stream::from_core)
    }

    /// Waits for the device's streams, and tells a watch of the order.
    pub(super) fn told_wait(
        &self,
        device: Device,
        wait: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !order_watch::is_on() || fork::is_child() {
            return wait();
        }
        let streams = self.inner.streams().into_iter().map(|stream| (stream.pushed(), stream));
        let of_device: Vec<_> = streams.filter(|(_, it)| it.identity.device == device).collect();
        let waited = wait();
        for (last, stream) in of_device {
            stream.tell_waited(last, true, &waited);
        }
        waited
    }
}

/// Device-agnostic functions, in which an index names a device of the accelerator's kind.
impl Runtime {
    /// The index of this thread's current device, which is of the accelerator's kind.
    pub fn current_device_index(&self) -> Result<usize> {
        Ok(self.current_device()?.index())
    }

    /// Makes the device of the accelerator's kind with this index current for this thread. Fails,
    /// without a change, when the device does not exist.
    ///
    /// torch ignores a negative index, for a caller that may have no device. Here such a caller
    /// uses [`OptionalDeviceGuard`](crate::OptionalDeviceGuard) with `None`.
    ///
    /// ```
    /// use accelrt::{Config, Device, Runtime};
    /// let runtime = Runtime::new(Config::builder().cpu_devices(2).build()?)?;
    /// runtime.set_device_index(1)?;
    /// assert_eq!(runtime.current_device_index()?, 1);
    /// assert_eq!(runtime.current_device()?, Device::cpu(1));
    /// assert!(runtime.set_device_index(2).is_err());
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn set_device_index(&self, index: usize) -> Result<()> {
        self.set_device(Device::new(self.accelerator()?, index)?)
    }

    /// The older name of [`Runtime::current_device_index`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # #[expect(deprecated)]
    /// let index = runtime.current_device_idx()?;
    /// assert_eq!(index, runtime.current_device_index()?);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    #[deprecated(since = "0.1.0", note = "use `current_device_index` instead")]
    pub fn current_device_idx(&self) -> Result<usize> {
        self.current_device_index()
    }

    /// The older name of [`Runtime::set_device_index`].
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// # #[expect(deprecated)]
    /// runtime.set_device_idx(0)?;
    /// assert_eq!(runtime.current_device_index()?, 0);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    #[deprecated(since = "0.1.0", note = "use `set_device_index` instead")]
    pub fn set_device_idx(&self, index: usize) -> Result<()> {
        self.set_device_index(index)
    }
}

impl Runtime {
    /// Makes a stream of the driver, by its native handle, a dedicated stream of this runtime: on
    /// xpu a `cl_command_queue`. The driver orders work that other code submits to it. Fails with
    /// [`Unsupported`](crate::DriverError::Unsupported) on kinds without native streams, as cpu.
    ///
    /// # Safety
    /// The handle is that of an existing stream of the driver and the device. Its owner destroys it
    /// after the returned stream has ended: its last handle is dropped, and its work is done.
    pub unsafe fn wrap_stream(&self, device: Device, native_handle: u64) -> Result<Stream> {
        let (table, backend) = (self.table(device)?, self.backend(device)?);
        // SAFETY: the caller upholds the conditions on the driver's stream.
        let handle = unsafe { OwnedStream::wrap(backend, device.index(), native_handle) }?;
        Ok(Stream::from_core(table.dedicate(handle, 0)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::base::config::Config;
    use crate::base::device::{Device, DeviceKind};
    use crate::base::error::{DriverError, Error};
    use crate::null::{NullBackend, NullConfig};
    use crate::runtime::Runtime;

    #[test]
    fn a_stream_of_the_driver_takes_work_and_leaves_the_drivers_own_there() {
        let null = NullBackend::new(NullConfig::default());
        let runtime = Runtime::with_backends(Config::default(), [null as _]).unwrap();
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let owner = runtime.stream(device).unwrap();
        let native = owner.native_handle().unwrap();
        // SAFETY: `owner` keeps the driver's stream until behind the end of the wrapped one.
        let wrapped = unsafe { runtime.wrap_stream(device, native) }.unwrap();
        assert_eq!(wrapped.native_handle().unwrap(), native);
        assert!(wrapped.is_dedicated() && wrapped.id() != owner.id());
        assert_eq!(runtime.stream_by_id(device, wrapped.id()).unwrap(), wrapped);
        let buffer = runtime.zeros(64, device).unwrap();
        buffer.fill(1, &wrapped).unwrap();
        wrapped.synchronize().unwrap();
        drop(wrapped);
        buffer.fill(2, &owner).unwrap();
        owner.synchronize().unwrap();
    }

    #[test]
    fn kinds_without_streams_of_a_driver_refuse() {
        let runtime = Runtime::new(Config::default()).unwrap();
        // SAFETY: a kind that refuses uses no handle.
        let refused = unsafe { runtime.wrap_stream(Device::cpu(0), 1) }.unwrap_err();
        assert!(matches!(refused, Error::Driver(DriverError::Unsupported { .. })), "{refused}");
    }
}

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
