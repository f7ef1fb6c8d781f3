//! Watches of memory: while one is there, allocators of a runtime's devices tell the log.

use std::fmt;
use std::sync::Arc;

use crate::base::device::Device;
use crate::base::fork;
use crate::engine::log::collector::shortened;
use crate::memory::allocator::{CachingAllocator, Recorded};
use crate::runtime::Runtime;
use crate::runtime::allocators::Allocators;

/// Makes allocators tell the log what they do, until the drop. Requests and frees take the slow
/// path meanwhile.
#[must_use = "the drop ends the watch"]
pub(crate) struct MemoryWatch(Runtime);

impl Runtime {
    /// Begins a watch. Several may be there at once. Allocators of pinned and shared memory,
    /// separate ones and that of the host heap are not recorded.
    pub(crate) fn log_memory(&self) -> MemoryWatch {
        if fork::is_child() {
            return MemoryWatch(self.clone()); // a thread that it lacks may hold the lock
        }
        let mut allocators = self.inner.allocators.lock();
        allocators.watch_count += 1;
        for (device, allocator) in &allocators.by_device {
            self.record(allocator, *device, &allocators);
        }
        drop(allocators);
        MemoryWatch(self.clone())
    }

    /// The allocators of all devices that have one, which watches are about.
    pub(crate) fn allocators_of_devices(&self) -> Vec<Arc<CachingAllocator>> {
        if fork::is_child() {
            return Vec::new();
        }
        self.inner.allocators.lock().by_device.values().cloned().collect()
    }

    /// Makes an allocator do what the watches ask for.
    pub(super) fn record(&self, allocator: &CachingAllocator, device: Device, of: &Allocators) {
        let recorded = Recorded { device, runtime: shortened(self.id()) };
        allocator.record((of.watch_count > 0).then_some(recorded));
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        if fork::is_child() {
            return; // as above
        }
        let Self(runtime) = self;
        let mut allocators = runtime.inner.allocators.lock();
        allocators.watch_count -= 1;
        for (device, allocator) in &allocators.by_device {
            runtime.record(allocator, *device, &allocators);
        }
    }
}

impl fmt::Debug for MemoryWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWatch").finish_non_exhaustive()
    }
}
