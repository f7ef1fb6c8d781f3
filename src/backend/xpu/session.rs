//! The OpenCL context of all devices. The first use of a device creates it.

use super::driver::{CallResult, Driver};
use super::probe::UsableDevices;
use super::sys::{Context, DeviceId, SetMemPointer, Usm};
use crate::base::fork;

/// The context of all devices, so that they share memory and events. The drop releases it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) driver: Driver,
    pub(super) usm: Usm,
    pub(super) context: Context,
    /// `None` where kernels accept no pointers to unified shared memory.
    pub(super) set_mem_pointer: Option<SetMemPointer>,
}

impl Session {
    /// Creates the context. The driver may then start threads, so from now on the runtime detects
    /// forks and refuses to work in a child.
    pub(super) fn create(found: &UsableDevices) -> CallResult<Self> {
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
