//! A heap over pinned memory: for programs that call `malloc`, from any thread.

use std::sync::Arc;

use crate::integrations::host_heap::boundary::{self, leak};
use crate::memory::allocator::{CachingAllocator, HostStatistics};

/// See the head of this file. Addresses are numbers here: the memory is its user's.
pub(super) struct Heap {
    allocator: Arc<CachingAllocator>,
}

impl Heap {
    /// A heap whose memory is an allocator's that nothing else asks.
    pub(super) fn new(allocator: Arc<CachingAllocator>) -> Self {
        Self { allocator }
    }

    pub(super) fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.allocator
    }

    /// Memory of at least so many bytes, aligned to 64; `None` when there is not enough.
    #[inline]
    pub(super) fn allocate(&self, bytes: usize) -> Option<usize> {
        self.allocator.give(bytes)
    }

    /// Gives memory back; false when it is not of this heap. What is not in use there is counted as
    /// a leak: no other allocator would know it.
    #[inline]
    pub(super) fn free(&self, address: usize) -> bool {
        let freed = self.allocator.free_at(address);
        if freed == Some(false) {
            leak(format_args!("{address:#x} is freed, and not in use"));
        }
        freed.is_some()
    }

    /// How many bytes there are at an address that was handed out; `None` when it is not of this
    /// heap.
    pub(super) fn usable_bytes(&self, address: usize) -> Option<usize> {
        self.allocator.usable_bytes_at(address)
    }

    /// What the allocator counts, and what was leaked.
    pub(super) fn statistics(&self) -> HostStatistics {
        let counted = self.allocator.host_statistics().unwrap_or_default();
        HostStatistics { num_leaks: boundary::leaks(), ..counted }
    }
}
