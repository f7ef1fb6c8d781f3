//! The caching allocators of a runtime: one a device, one a kind for pinned host memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::allocator::{AllocatorConfig, CachingAllocator};
use crate::device::{Device, DeviceKind};
use crate::error::Result;
use crate::fork;
use crate::runtime::Runtime;

/// Those that were made: at the first use of a device, and of pinned memory for a kind.
#[derive(Debug, Default)]
pub(super) struct Allocators {
    of_devices: BTreeMap<Device, Arc<CachingAllocator>>,
    pinned: BTreeMap<DeviceKind, Arc<CachingAllocator>>,
}

impl Allocators {
    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<CachingAllocator>> {
        self.of_devices.values().chain(self.pinned.values()).cloned().collect()
    }
}

impl Runtime {
    /// The allocator that the buffers of a device come from.
    ///
    /// Fails when the device does not exist, after a shutdown and in a forked child.
    ///
    /// ```
    /// # let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
    /// let device = accelrt::Device::cpu(0);
    /// let buffer = runtime.empty(1000, device)?;
    /// let statistics = runtime.allocator(device)?.statistics();
    /// assert_eq!(statistics.requested_bytes.all.current, 1000);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn allocator(&self, device: Device) -> Result<Arc<CachingAllocator>> {
        fork::check()?;
        if let Some(known) = self.allocators().lock().of_devices.get(&device) {
            return Ok(Arc::clone(known));
        }
        let backend = Arc::clone(self.initialized(device)?);
        let made = Arc::new(CachingAllocator::new(backend, device, AllocatorConfig::default())?);
        let mut allocators = self.allocators().lock();
        Ok(Arc::clone(allocators.of_devices.entry(device).or_insert(made)))
    }

    /// The allocator of pinned host memory that the devices of a kind reach. Fails as
    /// [`Runtime::allocator`].
    pub fn pinned_allocator(&self, device: Device) -> Result<Arc<CachingAllocator>> {
        let kind = device.kind();
        fork::check()?;
        if let Some(known) = self.allocators().lock().pinned.get(&kind) {
            return Ok(Arc::clone(known));
        }
        let backend = Arc::clone(self.initialized(device)?);
        let made = Arc::new(CachingAllocator::pinned(backend, device, AllocatorConfig::default()));
        let mut allocators = self.allocators().lock();
        Ok(Arc::clone(allocators.pinned.entry(kind).or_insert(made)))
    }

    /// The allocator that a buffer comes from.
    #[cfg(feature = "python")]
    pub(crate) fn allocator_of(
        &self,
        device: Device,
        is_pinned: bool,
    ) -> Result<Arc<CachingAllocator>> {
        if is_pinned { self.pinned_allocator(device) } else { self.allocator(device) }
    }
}
