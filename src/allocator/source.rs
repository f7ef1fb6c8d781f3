//! Where an allocator's memory comes from: one device of a backend, or the host.

use std::sync::Arc;
use std::time::Instant;

use crate::allocator::config::AllocatorConfig;
use crate::allocator::host::Meter;
use crate::backend::contract::{Address, Backend, MemoryInfo, VirtualMemory};
use crate::device::Device;
use crate::error::Result;

/// A place to take segments from. Every call is a backend's: none is made with a lock held.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) backend: Arc<dyn Backend>,
    /// The device; for host memory the one that errors name.
    pub(super) device: Device,
    /// What is known of host memory; `None` for a device's.
    pub(super) host: Option<Meter>,
    /// True for memory of the device that the host reaches too.
    pub(super) is_shared: bool,
}

impl Source {
    pub(super) fn allocate(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let Some(host) = &self.host else {
            let index = self.device.index();
            return if self.is_shared {
                self.backend.allocate_shared(index, bytes, align_bytes)
            } else {
                self.backend.allocate(index, bytes, align_bytes)
            };
        };
        let started = Instant::now();
        let given = self.backend.allocate_host(bytes);
        match &given {
            Ok(_) => host.took(bytes, started.elapsed()),
            Err(refusal) => host.was_refused(refusal),
        }
        given
    }

    pub(super) fn release(&self, address: Address) -> Result<()> {
        let Some(host) = &self.host else {
            return self.backend.release(self.device.index(), address);
        };
        let started = Instant::now();
        let released = self.backend.release_host(address);
        host.gave_back(started.elapsed());
        released
    }

    /// Pages that are mapped one by one, where there are such.
    pub(super) fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        let has_pages = self.host.is_none() && !self.is_shared;
        has_pages.then(|| self.backend.virtual_memory(self.device.index())).flatten()
    }

    /// Free and total bytes now; of the host what its last refusal told.
    pub(super) fn memory_info(&self) -> Result<MemoryInfo> {
        match &self.host {
            Some(host) => Ok(host.memory_info()),
            None => self.backend.memory_info(self.device.index()),
        }
    }

    /// The settings of which it can do everything: segments do not expand without virtual memory.
    pub(super) fn in_force(&self, mut config: AllocatorConfig) -> AllocatorConfig {
        config.expandable_segments &= self.virtual_memory().is_some();
        config
    }
}
