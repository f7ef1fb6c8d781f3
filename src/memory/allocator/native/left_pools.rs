//! Private pools whose last user went before their last block: no request names them any more.

use std::collections::VecDeque;

use crate::memory::allocator::pool::PoolId;

/// As many are looked at for each pool that is made. More than are added meanwhile, so that the
/// list holds hardly more than the pools in which something is in use.
const LOOKS: usize = 4;

/// In the order in which they are looked at next.
#[derive(Debug, Default)]
pub(in crate::memory::allocator) struct LeftPools(VecDeque<PoolId>);

impl LeftPools {
    /// The last user of a pool with memory has gone, or it was looked at once more.
    pub(in crate::memory::allocator) fn note(&mut self, pool: PoolId) {
        self.0.push_back(pool);
    }

    /// Those to be looked at next: each is noted again by who does.
    pub(in crate::memory::allocator) fn take(&mut self) -> Vec<PoolId> {
        let count = LOOKS.min(self.0.len());
        self.0.drain(..count).collect()
    }
}
