//! Growth: taking a segment from the device for a request that no free block serves.

use crate::backend::contract::Address;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::sync::MutexGuard;
use crate::memory::allocator::block::{Block, BlockId, State};
use crate::memory::allocator::books::{Books, Plan};
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::segment::{Owner, Pages, Segment};

impl CachingAllocator {
    /// Takes memory from the device for a request: the block, handed out. `None` when the device or
    /// the limit has not enough. Fails when the device fails otherwise, and with `OutOfMemory`, of
    /// which no observer was told, when the settings have the request fail rather than wait.
    pub(super) fn grow(&self, plan: &Plan) -> Result<Option<BlockId>> {
        let (is_expandable, is_rejected) = {
            let mut books = self.books.lock();
            (books.config.expandable_segments, books.is_rejected(plan))
        };
        if is_rejected {
            return Err(self.refusal(&plan.request()));
        }
        match self.source.virtual_memory().filter(|_| is_expandable) {
            Some(memory) => self.grow_by_pages(plan, memory),
            None => self.grow_by_segment(plan),
        }
    }

    /// The lock, when no other thread has the turn.
    pub(super) fn lock_for_growth(&self) -> MutexGuard<'_, Books> {
        self.lock_when(|books| !books.is_turn_of_another())
    }

    /// The same by a segment of its own.
    pub(super) fn grow_by_segment(&self, plan: &Plan) -> Result<Option<BlockId>> {
        let bytes = {
            let mut books = self.lock_for_growth();
            let bytes = books.segment_bytes(plan);
            if !books.limits.take(bytes) {
                return Ok(None);
            }
            bytes
        };
        let taken = Taken::new(self, bytes);
        let given = self.source.allocate(bytes, plan.align_bytes);
        taken.goes_on();
        let mut books = self.books.lock();
        books.limits.note_segment(bytes, &given);
        match given {
            Ok(base) => {
                let address = books.address_for(base, bytes);
                let id = books.add_segment(address, base, bytes, plan.owner);
                Ok(Some(books.hand_out(id, plan)))
            }
            Err(refusal) => none_if_short(refusal),
        }
    }
}

/// What a request took from the limit, given back when the device's part of the request panics.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    allocator: &'a CachingAllocator,
    bytes: usize,
}

impl<'a> Taken<'a> {
    pub(super) fn new(allocator: &'a CachingAllocator, bytes: usize) -> Self {
        Self { allocator, bytes }
    }

    /// The device has done its part.
    pub(super) fn goes_on(self) {
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.allocator.books.lock().limits.note_answer(self.bytes);
    }
}

/// A shortage is no failure yet. What the device says to be free is not noted: when one page of
/// several is refused, those before it are the requester's for that moment.
pub(super) fn none_if_short<T>(refusal: Error) -> Result<Option<T>> {
    match refusal {
        Error::Memory(MemoryError::OutOfMemory { .. }) => Ok(None),
        refusal => Err(refusal),
    }
}

impl Books {
    /// Notes a segment that the device gave: its one block, which is in no index.
    pub(super) fn add_segment(
        &mut self,
        address: u64,
        base: Address,
        bytes: usize,
        owner: Owner,
    ) -> BlockId {
        let is_oversize = self.is_oversize(bytes);
        let statistics = &mut self.statistics;
        statistics.segment.increase(owner.class, 1);
        statistics.reserved_bytes.increase(owner.class, bytes);
        statistics.num_device_alloc += 1;
        if is_oversize {
            statistics.oversize_segments.increase(1);
        }
        self.add_range(Range { address, base, bytes, owner, is_oversize, pages: None })
    }

    /// Notes a range with the one block that it begins with.
    pub(super) fn add_range(&mut self, range: Range) -> BlockId {
        let Range { address, base, bytes, owner, is_oversize, pages } = range;
        let segment = self.segments.next_id();
        let first = self.blocks.insert(Block::new(segment, address, bytes, State::InFlight));
        let segment = Segment { address, base, bytes, owner, first, is_oversize, pages };
        self.segments.insert(segment);
        self.pools[owner.pool].segments += 1;
        self.map.insert(address, first);
        first
    }

    /// Forgets a range that is one block, which is in no index.
    pub(super) fn forget_range(&mut self, id: BlockId) -> Segment {
        let block = self.blocks.remove(id);
        debug_assert!(!block.is_split() && block.state == State::InFlight, "{block:?}");
        self.map.remove(block.address);
        let segment = self.segments.remove(block.segment);
        self.pools[segment.owner.pool].segments -= 1;
        self.pools.forget_if_gone(segment.owner.pool);
        segment
    }
}

/// What becomes a segment.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) base: Address,
    pub(super) bytes: usize,
    pub(super) owner: Owner,
    pub(super) is_oversize: bool,
    pub(super) pages: Option<Pages>,
}
