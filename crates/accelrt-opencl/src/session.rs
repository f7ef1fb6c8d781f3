//! The OpenCL context of all devices. The first use of a device creates it.
use accelrt::internal::fork;

use crate::driver::{CallResult, Driver};
use crate::probe::UsableDevices;
use crate::sys::{Context, DeviceId, SetMemPointer, Usm};

/// The context of all devices, so that they share memory and events. The drop releases it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) driver: Driver,
    pub(crate) usm: Usm,
    pub(crate) context: Context,
    /// `None` where kernels accept no pointers to unified shared memory.
    pub(crate) set_mem_pointer: Option<SetMemPointer>,
}

impl Session {
    /// Creates the context. The driver may then start threads, so from now on the runtime detects
    /// forks and refuses to work in a child.
    pub(crate) fn create(found: &UsableDevices) -> CallResult<Self> {
        fork::watch();
        let ids: Vec<DeviceId> = found.devices.iter().map(|device| device.info.id).collect();
        let context = found.driver.create_context(found.platform, &ids)?;
        let set_mem_pointer = found.driver.set_mem_pointer(found.platform);
        Ok(Self { driver: found.driver, usm: found.usm, context, set_mem_pointer })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !fork::is_child() {
            // The result is ignored: a failure leaks the context, since no other handle exists.
            let _ = self.driver.release_context(self.context);
        }
    }
}
