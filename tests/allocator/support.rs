//! An allocator on a device of numbers, with its accounts at hand.

use std::sync::Arc;

use accelrt::allocator::{Allocated, CachingAllocator, Request, Statistics};
use accelrt::{AllocatorConfig, Device, DeviceKind, Error};
use accelrt_testing::null::{NullBackend, NullConfig, ResourceCounts};

use crate::hang::Watchdog;

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;

/// Settings of PyTorch's policy, with its defaults.
pub(crate) fn torch() -> AllocatorConfig {
    "policy:torch".parse().unwrap()
}

/// An allocator whose laws are checked after each step.
pub(crate) struct Bench {
    watchdog: Watchdog,
    pub(crate) null: Arc<NullBackend>,
    pub(crate) allocator: CachingAllocator,
}

impl Bench {
    /// With settings, on a device of 1 GiB. The policy is torch's unless they name one.
    pub(crate) fn new(settings: &str) -> Self {
        Self::of_capacity(settings, 1024 * MIB)
    }

    pub(crate) fn of_capacity(settings: &str, capacity_bytes: usize) -> Self {
        Self::on(settings, NullConfig { capacity_bytes, ..NullConfig::default() })
    }

    /// On a device of numbers that is made for the test.
    pub(crate) fn on(settings: &str, device: NullConfig) -> Self {
        let null = NullBackend::new(device);
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let is_named = settings.contains("policy:");
        let settings =
            if is_named { settings.to_owned() } else { format!("policy:torch,{settings}") };
        let watchdog = Watchdog::new(&settings);
        let config = settings.parse().unwrap();
        let allocator = CachingAllocator::new(Arc::clone(&null) as _, device, config).unwrap();
        Self { watchdog, null, allocator }
    }

    pub(crate) fn request(&self, request: Request) -> Result<Allocated, Error> {
        self.watchdog.step(format!("{request:?}"));
        let outcome = self.allocator.allocate(request);
        self.allocator.check_all();
        outcome
    }

    /// A block for stream 0.
    pub(crate) fn take(&self, bytes: usize) -> Allocated {
        self.request(Request::new(bytes, 0)).unwrap()
    }

    /// Frees a block: where it was.
    pub(crate) fn free(&self, block: Allocated) -> u64 {
        let address = block.address();
        self.allocator.free(block).unwrap();
        self.allocator.check_all();
        address
    }

    pub(crate) fn empty_cache(&self) {
        self.allocator.empty_cache();
        self.allocator.check_all();
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.allocator.statistics()
    }

    pub(crate) fn reserved_bytes(&self) -> usize {
        usize::try_from(self.statistics().reserved_bytes.all.current).unwrap()
    }

    pub(crate) fn segments(&self) -> u64 {
        self.statistics().segment.all.current
    }

    /// What the device gave out.
    pub(crate) fn device_bytes(&self) -> usize {
        let ResourceCounts { device_bytes, physical_bytes, .. } = self.null.resource_counts();
        device_bytes + physical_bytes
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.device_bytes(), self.reserved_bytes(), "the device's own account");
        }
    }
}
