//! Where an allocator's memory comes from: one device of a backend, or the host.

use std::sync::Arc;

use crate::allocator::config::AllocatorConfig;
use crate::backend::contract::{Address, Backend, VirtualMemory};
use crate::device::Device;
use crate::error::Result;

/// A place to take segments from. Every call is a backend's: none is made with a lock held.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) backend: Arc<dyn Backend>,
    /// The device; for host memory the one that errors name.
    pub(super) device: Device,
    pub(super) is_host: bool,
}

impl Source {
    pub(super) fn allocate(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        if self.is_host {
            self.backend.allocate_host(bytes)
        } else {
            self.backend.allocate(self.device.index(), bytes, align_bytes)
        }
    }

    pub(super) fn release(&self, address: Address) -> Result<()> {
        if self.is_host {
            self.backend.release_host(address)
        } else {
            self.backend.release(self.device.index(), address)
        }
    }

    /// Pages that are mapped one by one, where there are such.
    pub(super) fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        if self.is_host { None } else { self.backend.virtual_memory(self.device.index()) }
    }

    /// The settings of which it can do everything: segments do not expand without virtual memory.
    pub(super) fn in_force(&self, mut config: AllocatorConfig) -> AllocatorConfig {
        config.expandable_segments &= self.virtual_memory().is_some();
        config
    }
}
