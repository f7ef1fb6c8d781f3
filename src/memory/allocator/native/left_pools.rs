//! Private pools whose last user went before their last block: nobody asks for them any more.

use std::collections::VecDeque;

use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::pool::PoolId;

/// As many are looked at for each pool that is made. More than are added meanwhile, so that the
/// list holds hardly more than the pools in which something is in use.
const LOOKS: usize = 4;

/// In the order in which they are looked at next.
#[derive(Debug, Default)]
pub(super) struct LeftPools(VecDeque<PoolId>);

impl Native {
    /// The last user of a pool has gone, or it was looked at once more: it is listed while it has
    /// memory.
    pub(in crate::memory::allocator) fn note_left_pool(&mut self, pool: PoolId) {
        if self.heaps.iter().any(|(_, heap)| heap.owner.pool == pool) {
            self.left_pools.0.push_back(pool);
        }
    }

    /// Those to be looked at next: each is noted again by who does.
    pub(in crate::memory::allocator) fn take_left_pools(&mut self) -> Vec<PoolId> {
        let count = LOOKS.min(self.left_pools.0.len());
        self.left_pools.0.drain(..count).collect()
    }
}
