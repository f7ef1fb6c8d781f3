//! Streams that other code has made with the driver, as streams of a runtime.
#![expect(unsafe_code, reason = "passes on what a caller says of a driver's stream")]

use crate::backend::contract::owned::OwnedStream;
use crate::base::device::Device;
use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::runtime::Runtime;

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
