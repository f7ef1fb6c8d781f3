//! Watches of memory: while one is there, allocators of a runtime's devices tell the log.

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
#[derive(Debug)]
pub struct MemoryWatch(Runtime);

impl Runtime {
    /// Begins a watch. Several may be there at once. Allocators of pinned and shared memory,
    /// separate ones and that of the host heap are not recorded.
    #[doc(hidden)]
    pub fn log_memory(&self) -> MemoryWatch {
        self.change_watches(|count| *count += 1);
        MemoryWatch(self.clone())
    }

    /// Has no effect in a forked child, where a thread that the child lacks may hold the lock.
    fn change_watches(&self, change: fn(&mut usize)) {
        if fork::is_child() {
            return;
        }
        let mut allocators = self.inner.allocators.lock();
        change(&mut allocators.watch_count);
        for (device, allocator) in &allocators.by_device {
            self.record(allocator, *device, &allocators);
        }
    }

    /// The allocators of all devices that have one, which watches are about. None in a forked
    /// child, as above.
    #[must_use]
    pub fn allocators_of_devices(&self) -> Vec<Arc<CachingAllocator>> {
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
        self.0.change_watches(|count| *count -= 1);
    }
}
