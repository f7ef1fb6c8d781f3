//! The policy of pinned host memory: best fit, every block splits, no rounding to powers of two.

use crate::base::config::AllocatorConfig;
use crate::memory::allocator::block::BlockId;
use crate::memory::allocator::policy::torch::LEAST_BLOCK_BYTES;
use crate::memory::allocator::policy::{Candidates, Policy};
use crate::memory::allocator::snapshot::PoolClass;

/// Segments are a multiple of this size.
const PAGE_BYTES: usize = 4096;

#[derive(Debug)]
pub(in crate::memory::allocator) struct Pinned<'a>(
    pub(in crate::memory::allocator) &'a AllocatorConfig,
);

impl Policy for Pinned<'_> {
    fn round(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(LEAST_BLOCK_BYTES)
    }

    fn class(&self, bytes: usize) -> PoolClass {
        if bytes <= self.0.pinned_segment_bytes { PoolClass::Small } else { PoolClass::Large }
    }

    fn segment_bytes(&self, bytes: usize) -> usize {
        bytes.max(self.0.pinned_segment_bytes).next_multiple_of(PAGE_BYTES)
    }

    fn page_bytes(&self, _class: PoolClass) -> usize {
        self.0.pinned_segment_bytes
    }

    fn splits(&self, _class: PoolClass, block_bytes: usize, bytes: usize) -> bool {
        block_bytes - bytes >= LEAST_BLOCK_BYTES
    }

    fn choose(&self, _bytes: usize, candidates: Candidates<'_>) -> Option<BlockId> {
        candidates.next().map(|best| best.id)
    }
}
