//! Indices of free and unmapped blocks, one for each class of a pool.

use std::collections::BTreeMap;

use crate::memory::allocator::block::{Block, BlockId, Blocks};
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::snapshot::PoolClass;

/// The free blocks of one class of a pool by stream, size and address, and its unmapped blocks by
/// stream and address: each once, and no other blocks.
#[derive(Debug, Default)]
pub(super) struct FreeIndex {
    free: BTreeMap<(u64, usize, u64), BlockId>,
    unmapped: BTreeMap<(u64, u64), BlockId>,
    /// The number of searches while garbage collection is on: the clock of the blocks' ages.
    pub(super) searches: u64,
}

impl FreeIndex {
    pub(super) const fn new() -> Self {
        Self { free: BTreeMap::new(), unmapped: BTreeMap::new(), searches: 0 }
    }

    pub(super) fn insert(&mut self, stream: u64, id: BlockId, block: &Block) {
        let before = self.free.insert((stream, block.bytes, block.address), id);
        debug_assert!(before.is_none(), "{before:?} stands where {block:?} belongs");
    }

    pub(super) fn remove(&mut self, stream: u64, block: &Block) {
        let found = self.free.remove(&(stream, block.bytes, block.address));
        debug_assert!(found.is_some(), "not in the index: {block:?}");
    }

    /// Returns a stream's free blocks of at least `bytes`, by size and address.
    pub(super) fn of_size(&self, stream: u64, bytes: usize) -> impl Iterator<Item = BlockId> {
        self.free.range((stream, bytes, 0)..=(stream, usize::MAX, u64::MAX)).map(|(_, id)| *id)
    }

    /// Returns a stream's free blocks of less than `bytes`, the largest first.
    pub(super) fn below_size(&self, stream: u64, bytes: usize) -> impl Iterator<Item = BlockId> {
        self.free.range((stream, 0, 0)..(stream, bytes, 0)).rev().map(|(_, id)| *id)
    }

    /// Returns all free blocks by stream, size and address.
    pub(super) fn all(&self) -> impl Iterator<Item = BlockId> {
        self.free.values().copied()
    }

    pub(super) fn insert_unmapped(&mut self, stream: u64, id: BlockId, block: &Block) {
        let before = self.unmapped.insert((stream, block.address), id);
        debug_assert!(before.is_none(), "{before:?} stands where {block:?} belongs");
    }

    pub(super) fn remove_unmapped(&mut self, stream: u64, block: &Block) {
        let found = self.unmapped.remove(&(stream, block.address));
        debug_assert!(found.is_some(), "not in the index: {block:?}");
    }

    /// Returns a stream's unmapped blocks by address.
    pub(super) fn unmapped_of(&self, stream: u64) -> impl Iterator<Item = BlockId> {
        self.unmapped.range((stream, 0)..=(stream, u64::MAX)).map(|(_, id)| *id)
    }

    pub(super) fn all_unmapped(&self) -> impl Iterator<Item = BlockId> {
        self.unmapped.values().copied()
    }

    /// Asserts that each key has its block's stream, size and address.
    pub(super) fn check_keys(&self, blocks: &Blocks, stream_of: impl Fn(BlockId) -> u64) {
        for (key, id) in &self.free {
            let block = &blocks[*id];
            assert_eq!(*key, (stream_of(*id), block.bytes, block.address), "{block:?}");
        }
        for (key, id) in &self.unmapped {
            let block = &blocks[*id];
            assert_eq!(*key, (stream_of(*id), block.address), "{block:?}");
        }
    }
}

static EMPTY: FreeIndex = FreeIndex::new();

/// The indices of each pool with segments, by class.
#[derive(Debug, Default)]
pub(super) struct Indices(BTreeMap<PoolId, [FreeIndex; 2]>);

impl Indices {
    pub(super) fn of(&self, pool: PoolId, class: PoolClass) -> &FreeIndex {
        self.0.get(&pool).map_or(&EMPTY, |classes| &classes[class as usize])
    }

    pub(super) fn of_mut(&mut self, pool: PoolId, class: PoolClass) -> &mut FreeIndex {
        &mut self.0.entry(pool).or_default()[class as usize]
    }

    /// Counts a search of an index, if the pool has one.
    pub(super) fn count_search(&mut self, pool: PoolId, class: PoolClass) {
        if let Some(classes) = self.0.get_mut(&pool) {
            classes[class as usize].searches += 1;
        }
    }

    /// Removes the indices of a pool without segments. The default pool keeps its clocks.
    pub(super) fn forget(&mut self, pool: PoolId) {
        if pool != PoolId::DEFAULT {
            self.0.remove(&pool);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PoolId, PoolClass, &FreeIndex)> {
        let classes = [PoolClass::Large, PoolClass::Small];
        self.0.iter().flat_map(move |(pool, indices)| {
            classes.map(|class| (*pool, class, &indices[class as usize]))
        })
    }
}
