//! The context of the devices, made when a device is first used.

use super::driver::{Answer, Driver};
use super::probe::Found;
use super::sys::{Context, DeviceId, SetMemPointer, Usm};
use crate::base::fork;

/// One context over all devices, so that they share memory and events; it ends with its last
/// stream.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) driver: Driver,
    pub(super) usm: Usm,
    pub(super) context: Context,
    /// Missing where kernels take no unified shared memory.
    pub(super) set_mem_pointer: Option<SetMemPointer>,
}

impl Session {
    /// Starts the driver's threads: from here on a forked child is refused.
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
            // A refusal leaves nothing to do: there is no other handle of the context.
            let _ = self.driver.release_context(self.context);
        }
    }
}
