//! Indices of blocks: free and unmapped ones by class of a pool, pages by address, and homes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::stream_map::StreamMap;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::block::{Block, BlockId, Blocks};
use crate::memory::allocator::known_stream::KnownStream;
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

/// The known streams that are checked for each new one.
const LOOKS: usize = 2;

/// The streams on which blocks were freed, without ended streams whose tasks are done.
#[derive(Debug, Default)]
pub(super) struct Homes(StreamMap<KnownStream>);

impl Homes {
    /// Notes a stream that has used blocks of its own.
    pub(super) fn note(&mut self, stream: &Arc<StreamCore>) {
        if self.0.get(stream.key()).is_none() {
            self.0.extract_if(LOOKS, |_, home| home.progress.is_over());
            self.0.insert(stream.key(), KnownStream::of(stream));
        }
    }

    /// True when a stream has not passed its task `ticket`. A stream that is only a number uses
    /// nothing after a free.
    pub(super) fn is_using(&self, stream: u64, ticket: u64) -> bool {
        ticket > 0 && self.0.get(stream).is_some_and(|home| home.progress.done() < ticket)
    }

    /// The live stream with a key, if known.
    pub(super) fn known(&self, key: u64) -> Option<&KnownStream> {
        self.0.get(key)
    }
}

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
