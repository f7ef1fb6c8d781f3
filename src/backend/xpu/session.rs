//! The context of the devices, created at the first use of a device.

use super::driver::{Answer, Driver};
use super::probe::Found;
use super::sys::{Context, DeviceId, SetMemPointer, Usm};
use crate::base::fork;

/// One context for all devices, so that they share memory and events. Its last stream ends it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) driver: Driver,
    pub(super) usm: Usm,
    pub(super) context: Context,
    /// `None` where kernels accept no unified shared memory.
    pub(super) set_mem_pointer: Option<SetMemPointer>,
}

impl Session {
    /// Creates the context and thus starts the driver's threads: forked children are refused from
    /// here.
    pub(super) fn begin(found: &Found) -> Answer<Self> {
        fork::watch();
        let ids: Vec<DeviceId> = found.devices.iter().map(|device| device.id()).collect();
        let context = found.driver.create_context(found.platform, &ids)?;
        let set_mem_pointer = found.driver.set_mem_pointer(found.platform);
        Ok(Self { driver: found.driver, usm: found.usm, context, set_mem_pointer })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !fork::is_child() {
            // An error has no remedy: this was the only handle of the context.
            let _ = self.driver.release_context(self.context);
        }
    }
}
