//! The page map: finds the block that contains an address.

use std::collections::BTreeMap;

use crate::memory::allocator::block::{BlockId, Blocks};

/// All blocks by first address. A lookup finds interior addresses at the same cost.
#[derive(Debug, Default)]
pub(super) struct PageMap(BTreeMap<u64, BlockId>);

impl PageMap {
    pub(super) fn insert(&mut self, address: u64, id: BlockId) {
        self.0.insert(address, id);
    }

    pub(super) fn remove(&mut self, address: u64) {
        let found = self.0.remove(&address);
        debug_assert!(found.is_some(), "no block began at {address:#x}");
    }

    pub(super) fn containing(&self, address: u64, blocks: &Blocks) -> Option<BlockId> {
        let (_, id) = self.0.range(..=address).next_back()?;
        (address < blocks[*id].end()).then_some(*id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, BlockId)> {
        self.0.iter().map(|(address, id)| (*address, *id))
    }
}
