//! Growth: a segment from the device for a request that no free block serves.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::backend::contract::Address;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::sync::MutexGuard;
use crate::engine::log::record::MemoryAction;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::block::{Block, BlockId, Owner, Pages, Segment, State};
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::torch::{Plan, Torch};

impl CachingAllocator {
    /// Takes memory from the device and hands out a block. `None` when the device or the limit has
    /// too little. Fails when the device fails otherwise, and with `OutOfMemory`, which no observer
    /// has seen, when the settings reject the request.
    pub(super) fn grow(&self, plan: &Plan) -> Result<Option<Allocated>> {
        let (is_expandable, is_rejected) = self.with_torch(|torch, ledger| {
            (ledger.config.expandable_segments, torch.is_rejected(ledger, plan))
        });
        if is_rejected {
            return Err(self.refusal(&plan.request()));
        }
        match self.source.virtual_memory().filter(|_| is_expandable) {
            Some(memory) => self.grow_by_pages(plan, memory),
            None => self.grow_by_segment(plan),
        }
    }

    /// Takes the lock when no other thread has the turn.
    pub(super) fn lock_for_growth(&self) -> MutexGuard<'_, AllocatorState> {
        self.lock_when(|state| !state.ledger.is_turn_of_another())
    }

    pub(super) fn grow_by_segment(&self, plan: &Plan) -> Result<Option<Allocated>> {
        let bytes = {
            let AllocatorState { torch, ledger, .. } = &mut *self.lock_for_growth();
            let bytes = torch.segment_bytes(ledger, plan);
            if !ledger.limits.take(bytes) {
                return Ok(None);
            }
            bytes
        };
        let given = self.ask_for_segment(bytes, plan.align_bytes);
        let AllocatorState { torch, ledger, .. } = &mut *self.state.lock();
        ledger.note_segment(plan.owner.class, bytes, &given);
        match given {
            Ok(base) => {
                let address = torch.address_for(base, bytes);
                let Owner { stream, pool, .. } = plan.owner;
                let place = Place { address, bytes, stream, pool };
                ledger.recorder.note_moved(MemoryAction::SegmentAllocated, &place);
                let id = torch.add_segment(ledger, address, base, bytes, plan.owner, None);
                Ok(Some(torch.allocate_block(ledger, id, plan)))
            }
            Err(refusal) => none_if_short(refusal),
        }
    }

    /// Asks the device for a segment that the limit counts already, but not after a panic.
    pub(super) fn ask_for_segment(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let given = catch_unwind(AssertUnwindSafe(|| self.source.allocate(bytes, align_bytes)));
        given.unwrap_or_else(|panic| {
            self.state.lock().ledger.note_answer(PoolClass::default(), bytes, 0);
            resume_unwind(panic)
        })
    }
}

/// Turns a shortage into `None`. The refusal's free bytes are not recorded: they lack the pages
/// that the request itself has taken before.
pub(super) fn none_if_short<T>(refusal: Error) -> Result<Option<T>> {
    match refusal {
        Error::Memory(MemoryError::OutOfMemory { .. }) => Ok(None),
        refusal => Err(refusal),
    }
}

impl Torch {
    /// Adds a segment, of which `pages` are mapped where it is expandable. Returns its one block,
    /// which is in no index.
    pub(super) fn add_segment(
        &mut self,
        ledger: &mut Ledger,
        address: u64,
        base: Address,
        bytes: usize,
        owner: Owner,
        pages: Option<Pages>,
    ) -> BlockId {
        let is_oversize = pages.is_none() && ledger.is_oversize(bytes);
        ledger.statistics.oversize_segments.increase(u64::from(is_oversize));
        let id = self.segments.next_id();
        let first = self.blocks.insert(Block::new(id, address, bytes, State::InFlight));
        ledger.pools.add_segment(owner.pool);
        self.segments.insert(Segment { address, base, bytes, owner, first, is_oversize, pages });
        self.map.insert(address, first);
        first
    }

    /// Removes a segment with one block, which is in no index.
    pub(super) fn remove_segment(&mut self, ledger: &mut Ledger, id: BlockId) -> Segment {
        let block = self.blocks.remove(id);
        debug_assert!(!block.is_split() && block.state == State::InFlight, "{block:?}");
        self.map.remove(block.address);
        let segment = self.segments.remove(block.segment);
        let pool = segment.owner.pool;
        if ledger.pools.remove_segment(pool) {
            self.indices.forget(pool);
        }
        segment
    }
}
