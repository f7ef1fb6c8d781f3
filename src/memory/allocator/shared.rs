//! Memory that a device shares with the host: an allocator of its own, beside the device's.
//!
//! Both take from the device's capacity, so each gives its free memory back when the other is
//! short.

use std::sync::{Arc, Weak};

use crate::base::config::AllocatorConfig;
use crate::base::error::Result;
use crate::base::size::to_usize;
use crate::engine::stream::interrupt::Interrupt;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::ledger::Purpose;
use crate::memory::allocator::source::Source;
use crate::memory::allocator::state::AllocatorState;

impl CachingAllocator {
    /// Creates the allocator of memory that the device of `beside` shares with the host: with the
    /// policies for a device, without moving pages, with its own statistics and limit.
    /// [`CachingAllocator::begin_sharing`] makes it known to `beside`.
    pub fn shared(beside: &Arc<Self>, config: AllocatorConfig) -> Result<Self> {
        let Source { backend, device, .. } = &beside.source;
        let (backend, device) = (Arc::clone(backend), *device);
        let total_bytes = backend.memory_info(device.index())?.total_bytes;
        let source = Source { backend, device, host: None, is_shared: true };
        let config = source.in_force(config);
        let state = AllocatorState::new(config, total_bytes, Purpose::Device, None);
        let shared = Self::of_source(source, state);
        shared.begin_sharing(beside);
        Ok(shared)
    }

    /// Makes `shared`, which was created beside this allocator, its sibling: it yields free memory
    /// before this allocator reports a shortage. Only the first call has an effect.
    pub fn begin_sharing(&self, shared: &Arc<Self>) {
        self.sibling.get_or_init(|| Arc::downgrade(shared));
    }

    /// Makes the sibling give back its free memory; false without a sibling. Also waits for the
    /// streams that use some of it, if it may suffice together with `reachable_bytes` here.
    pub(super) fn have_sibling_yield(
        &self,
        bytes: usize,
        reachable_bytes: usize,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<bool> {
        let Some(sibling) = self.sibling.get().and_then(Weak::upgrade) else { return Ok(false) };
        let count_kept = || {
            let counted = sibling.statistics();
            // Other threads may have allocated between the two reads.
            let (reserved, allocated) = (counted.reserved_bytes.all, counted.allocated_bytes.all);
            to_usize(reserved.current.saturating_sub(allocated.current))
        };
        let kept_bytes = count_kept();
        sibling.trim();
        if count_kept() > 0 && reachable_bytes.saturating_add(kept_bytes) >= bytes {
            sibling.empty_cache_unless(interrupt)?;
        }
        Ok(true)
    }
}
