//! The heap behind the C functions: an allocator of pinned memory, used by addresses alone.

use std::sync::Arc;

use accelrt::CachingAllocator;
use accelrt::allocator::HostStatistics;

use crate::host_heap::boundary;
use crate::host_heap::boundary::leak;

/// A heap, for any thread. Treats addresses as numbers, and never accesses the memory.
pub(super) struct Heap {
    allocator: Arc<CachingAllocator>,
}

impl Heap {
    /// Creates a heap over `allocator`. No other code may request memory from the allocator.
    pub(super) fn new(allocator: Arc<CachingAllocator>) -> Self {
        Self { allocator }
    }

    pub(super) fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.allocator
    }

    /// Allocates at least `bytes` bytes, aligned to 64 bytes. `None` when memory is short.
    #[inline]
    pub(super) fn allocate(&self, bytes: usize) -> Option<usize> {
        self.allocator.give(bytes)
    }

    /// Frees an object. False when the address is not of this heap. An address of the heap without
    /// an object in use counts as a leak, because it is no other allocator's either.
    #[inline]
    pub(super) fn free(&self, address: usize) -> bool {
        let freed = self.allocator.free_at(address);
        if freed == Some(false) {
            leak(format_args!("{address:#x} is freed, and not in use"));
        }
        freed.is_some()
    }

    /// Returns the size of the object that begins at `address`; `None` without one.
    pub(super) fn usable_bytes(&self, address: usize) -> Option<usize> {
        self.allocator.usable_bytes_at(address)
    }

    /// Returns the allocator's statistics, and the number of leaks of all heaps.
    pub(super) fn statistics(&self) -> HostStatistics {
        let mut statistics = self.allocator.host_statistics().unwrap_or_default();
        statistics.num_leaks = boundary::leaks();
        statistics
    }
}
