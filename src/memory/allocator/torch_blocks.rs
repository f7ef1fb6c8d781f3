//! Blocks, segments and indices of policy torch: linked blocks tile each segment.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::contract::{Address, PhysicalHandle};
use crate::base::size::to_usize;
use crate::base::stream_map::StreamMap;
use crate::base::table::{Id, Table};
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::request::{KnownStream, PoolId};
use crate::memory::allocator::snapshot::{BlockInfo, BlockState, PoolClass};
pub(super) type BlockId = Id<Block>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Free: in the index of its pool.
    Free,
    /// Handed out and not freed.
    Allocated,
    /// Freed, while other streams have not passed their last use of it.
    AwaitingFree,
    /// Unmapped addresses of an expandable segment: in the index of its pool.
    Unmapped,
    /// In no index: owned by the thread that takes, maps or releases it.
    InFlight,
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// The requested size of its last allocation; 0 for none.
    pub(super) requested_bytes: usize,
    pub(super) segment: SegmentId,
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    pub(super) state: State,
    /// The unique number of its last allocation, which reveals a second free.
    pub(super) handout: u64,
    /// True when its last allocation counted as oversize.
    pub(super) is_oversize: bool,
    /// The number of searches of its index when it became free: its age for garbage collection.
    pub(super) freed_at_search: u64,
    /// The last task of the segment's stream that uses it; 0 for none.
    pub(super) busy_until: u64,
}

impl Block {
    pub(super) fn new(segment: SegmentId, address: u64, bytes: usize, state: State) -> Self {
        Self {
            address,
            bytes,
            requested_bytes: 0,
            segment,
            previous: None,
            next: None,
            state,
            handout: 0,
            is_oversize: false,
            freed_at_search: 0,
            busy_until: 0,
        }
    }

    /// True when its segment has other blocks.
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes as u64
    }
}

impl From<&Block> for BlockInfo {
    fn from(block: &Block) -> Self {
        let state = match block.state {
            State::Allocated => BlockState::Allocated,
            State::AwaitingFree => BlockState::AwaitingFree,
            State::Free | State::InFlight | State::Unmapped => BlockState::Inactive,
        };
        let Block { address, bytes, requested_bytes, .. } = *block;
        Self { address, bytes, requested_bytes, state }
    }
}

pub(super) type Blocks = Table<Block>;

impl Blocks {
    /// Splits the first `bytes` off a block, as a new block in the same state.
    pub(super) fn split_head(&mut self, id: BlockId, bytes: usize) -> BlockId {
        let rest = &self[id];
        debug_assert!(bytes > 0 && bytes < rest.bytes, "{bytes} of {rest:?}");
        let mut front = Block { bytes, next: Some(id), ..rest.clone() };
        front.requested_bytes = 0;
        let before = front.previous;
        let front = self.insert(front);
        let rest = &mut self[id];
        rest.address += bytes as u64;
        rest.bytes -= bytes;
        rest.previous = Some(front);
        if let Some(before) = before {
            self[before].next = Some(front);
        }
        front
    }

    /// Merges a block with its neighbour `other`. Removes and returns `other`.
    pub(super) fn merge(&mut self, id: BlockId, other: BlockId) -> Block {
        let gone = self.remove(other);
        let block = &mut self[id];
        block.bytes += gone.bytes;
        block.busy_until = block.busy_until.max(gone.busy_until);
        if block.previous == Some(other) {
            block.address = gone.address;
            block.previous = gone.previous;
            if let Some(before) = gone.previous {
                self[before].next = Some(id);
            }
        } else {
            debug_assert_eq!(block.next, Some(other), "only neighbours merge");
            block.next = gone.next;
            if let Some(after) = gone.next {
                self[after].previous = Some(id);
            }
        }
        gone
    }

    /// Iterates over a block and those behind it in its segment.
    pub(super) fn chain(&self, first: BlockId) -> impl Iterator<Item = (BlockId, &Block)> {
        let step = |(_, block): &(BlockId, &Block)| block.next.map(|next| (next, &self[next]));
        std::iter::successors(Some((first, &self[first])), step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocator::torch_blocks::Segments;

    #[test]
    fn merged_blocks_are_as_busy_as_the_busier_one() {
        for tickets in [[7, 3], [3, 7]] {
            let mut blocks = Blocks::default();
            let segment = Segments::default().next_id();
            let rest = blocks.insert(Block::new(segment, 0, 1024, State::Free));
            let front = blocks.split_head(rest, 512);
            for (id, ticket) in [front, rest].into_iter().zip(tickets) {
                blocks[id].busy_until = ticket;
            }
            blocks.merge(front, rest);
            assert_eq!(blocks[front].busy_until, 7);
        }
    }
}

pub(super) type SegmentId = Id<Segment>;

/// The requests that a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) stream: u64,
    pub(super) class: PoolClass,
    pub(super) pool: PoolId,
}

#[derive(Debug)]
pub(super) struct Segment {
    /// The first address, in the numbers of its blocks.
    pub(super) address: u64,
    /// The first address at the backend, which differs where a snapshot chose `address`.
    pub(super) base: Address,
    /// Size; of an expandable segment the size of its reserved addresses.
    pub(super) bytes: usize,
    pub(super) owner: Owner,
    pub(super) first: BlockId,
    /// True when it counts in `oversize_segments`.
    pub(super) is_oversize: bool,
    /// `None` unless the segment is expandable.
    pub(super) pages: Option<Pages>,
}

impl Segment {
    pub(super) fn is_expandable(&self) -> bool {
        self.pages.is_some()
    }

    /// True when an address is mapped. Pages that a thread is mapping or unmapping are not.
    pub(super) fn has_memory_at(&self, address: u64) -> bool {
        let has_page = |pages: &Pages| {
            pages.get(to_usize(address - self.address) / pages.page_bytes).is_some()
        };
        self.pages.as_ref().is_none_or(has_page)
    }

    /// Translates a block's address into the backend's.
    pub(super) fn at_backend(&self, address: u64) -> Address {
        Address(address - self.address + self.base.0)
    }
}

/// The handles of the mapped pages of an expandable segment.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) page_bytes: usize,
    handles: Vec<Option<PhysicalHandle>>,
}

impl Pages {
    pub(super) fn new(page_bytes: usize) -> Self {
        Self { page_bytes, handles: Vec::new() }
    }

    /// Sets the handles of adjacent unmapped pages.
    pub(super) fn put(&mut self, first: usize, handles: Vec<PhysicalHandle>) {
        for (index, handle) in (first..).zip(handles) {
            if self.handles.len() <= index {
                self.handles.resize(index + 1, None);
            }
            let before = self.handles[index].replace(handle);
            debug_assert!(before.is_none(), "page {index} has memory: {before:?}");
        }
    }

    /// Takes the handle of a mapped page. Unmapped pages at the end leave the list.
    pub(super) fn take(&mut self, index: usize) -> PhysicalHandle {
        let handle = self.handles[index].take().expect("a mapped page");
        while self.handles.last().is_some_and(Option::is_none) {
            self.handles.pop();
        }
        handle
    }

    pub(super) fn get(&self, index: usize) -> Option<PhysicalHandle> {
        self.handles.get(index).copied().flatten()
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = PhysicalHandle> {
        self.handles.iter().flatten().copied()
    }
}

pub(super) type Segments = Table<Segment>;

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
