//! An allocator of PyTorch's policy on a device of numbers, which checks its invariants.

use std::sync::Arc;

use accelrt::allocator::{Allocated, CachingAllocator, Request};
use accelrt::{AllocatorConfig, Device, DeviceKind, Error};
use accelrt_testing::null::{NullBackend, NullConfig};

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;

/// Settings of PyTorch's policy, with its defaults.
pub(crate) fn torch() -> AllocatorConfig {
    "policy:torch".parse().unwrap()
}

/// An allocator whose invariants are checked after each step.
pub(crate) struct Bench {
    null: Arc<NullBackend>,
    pub(crate) allocator: CachingAllocator,
}

impl Bench {
    /// With settings in addition to PyTorch's policy, on a device of 1 GiB.
    pub(crate) fn new(settings: &str) -> Self {
        Self::of_capacity(settings, 1024 * MIB)
    }

    pub(crate) fn of_capacity(settings: &str, capacity_bytes: usize) -> Self {
        Self::on(settings, NullConfig { capacity_bytes, ..NullConfig::default() })
    }

    pub(crate) fn on(settings: &str, device: NullConfig) -> Self {
        let null = NullBackend::new(device);
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let config = format!("policy:torch,{settings}").parse().unwrap();
        let allocator = CachingAllocator::new(Arc::clone(&null) as _, device, config).unwrap();
        Self { null, allocator }
    }

    pub(crate) fn request(&self, request: Request) -> Result<Allocated, Error> {
        let outcome = self.allocator.allocate(request);
        self.allocator.check_all();
        outcome
    }

    /// Allocates a block for stream 0.
    pub(crate) fn take(&self, bytes: usize) -> Allocated {
        self.request(Request::new(bytes, 0)).unwrap()
    }

    /// Frees a block and returns its address.
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

    pub(crate) fn reserved_bytes(&self) -> usize {
        usize::try_from(self.allocator.statistics().reserved_bytes.all.current).unwrap()
    }

    /// The bytes that the device gave out.
    pub(crate) fn device_bytes(&self) -> usize {
        let counts = self.null.resource_counts();
        counts.device_bytes + counts.physical_bytes
    }
}
