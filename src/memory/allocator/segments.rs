//! Segments of policy torch: from the device for a request, and back.
//!
//! # Departures
//!
//! An engine chooses and forgets memory under the lock; it goes back without the lock, because the
//! device may hand out its addresses again before its call returns. A part that the device refuses
//! is never used again. The limit counts a part until the call is over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::backend::contract::Address;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::sync::MutexGuard;
use crate::engine::log::record::MemoryAction;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::request::PoolId;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::source::{Part, ReleaseBatch};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::torch::{Plan, Torch};
use crate::memory::allocator::torch_blocks::{Block, BlockId, Owner, Pages, Segment, State};
impl CachingAllocator {
    /// Gives back the free segment, or the pages of an expandable one, at a recorded address. False
    /// when the address has no free block that may go back, and when the block has another size
    /// than recorded, although it goes back then.
    #[doc(hidden)]
    pub fn release_recorded(&self, address: u64, bytes: usize) -> bool {
        let victim = self.with_torch(|torch, ledger| torch.release_at(ledger, address));
        let is_right = victim.as_ref().is_some_and(|victim| victim.bytes == bytes);
        self.give_back(victim.into_iter().collect());
        is_right
    }
}

impl Torch {
    /// Removes a free block, if it is a whole segment or whole pages and no stream uses it.
    fn begin_release(&mut self, ledger: &mut Ledger, id: BlockId) -> Option<ReleaseBatch> {
        let block = &self.blocks[id];
        if self.is_busy(block) {
            return None;
        }
        if self.is_expandable(id) {
            return self.begin_unmap(ledger, id);
        }
        (!block.is_split()).then(|| self.forget_segment(ledger, id))
    }

    /// Removes the free block that contains an address, as far as it may go back.
    fn release_at(&mut self, ledger: &mut Ledger, address: u64) -> Option<ReleaseBatch> {
        let id = self.map.containing(address, &self.blocks)?;
        if self.blocks[id].state == State::Free { self.begin_release(ledger, id) } else { None }
    }

    fn forget_segment(&mut self, ledger: &mut Ledger, id: BlockId) -> ReleaseBatch {
        self.take_free(id);
        let segment = self.remove_segment(ledger, id);
        if segment.is_oversize {
            ledger.statistics.oversize_segments.decrease(1);
        }
        let (Owner { stream, pool, class }, bytes) = (segment.owner, segment.bytes);
        let place = Place { address: segment.address, bytes, stream, pool };
        ledger.recorder.note_moved(MemoryAction::SegmentFreed, &place);
        ledger.leave(Part::Segment(segment.base, bytes), &[(class, bytes)])
    }

    /// Removes all free memory of some pools: of the default pool large segments first, of private
    /// pools small ones.
    pub(super) fn release_pools(
        &mut self,
        ledger: &mut Ledger,
        is_wanted: impl Fn(&Ledger, PoolId) -> bool,
    ) -> Vec<ReleaseBatch> {
        let (mut free, mut unmapped): (Vec<BlockId>, Vec<BlockId>) = Default::default();
        for (id, _) in ledger.pools.iter().filter(|(id, _)| is_wanted(ledger, *id)) {
            let mut classes = [PoolClass::Large, PoolClass::Small];
            classes.rotate_left(usize::from(id != PoolId::DEFAULT));
            for index in classes.map(|class| self.indices.of(id, class)) {
                let is_whole = |id: &BlockId| !self.is_expandable(*id);
                let (whole, pages): (Vec<_>, Vec<_>) = index.all().partition(is_whole);
                free.extend(whole.into_iter().chain(pages));
                unmapped.extend(index.all_unmapped());
            }
        }
        let mut victims: Vec<ReleaseBatch> =
            free.into_iter().filter_map(|id| self.begin_release(ledger, id)).collect();
        if ledger.is_closed {
            // Until then, addresses for which a request got no page serve the next request, as in
            // PyTorch.
            for id in unmapped {
                victims
                    .extend(self.begin_unreserve(ledger, id).map(|part| ledger.leave(part, &[])));
            }
        }
        victims
    }

    /// Removes unused pinned segments above the size that is cached, or all when nothing is cached.
    pub(super) fn release_beyond_cache(&mut self, ledger: &mut Ledger) -> Vec<ReleaseBatch> {
        if ledger.is_closed {
            return self.release_pools(ledger, |_, _| true);
        }
        let Some(most_bytes) = ledger.config.pinned_max_cached_bytes.filter(|_| ledger.is_host())
        else {
            return Vec::new();
        };
        let free = self.indices.iter().flat_map(|(_, _, index)| index.all());
        let beyond: Vec<BlockId> = free.filter(|id| self.blocks[*id].bytes > most_bytes).collect();
        beyond.into_iter().filter_map(|id| self.begin_release(ledger, id)).collect()
    }

    /// Under a limit to splits, removes free blocks that are too large to split: one of sufficient
    /// size, or the largest until their sum suffices. Also returns whether it does.
    pub(super) fn release_oversize(
        &mut self,
        ledger: &mut Ledger,
        plan: &Plan,
    ) -> (Vec<ReleaseBatch>, bool) {
        let Some(most_split_bytes) = ledger.config.max_split_bytes else {
            return (Vec::new(), false);
        };
        let key_bytes = plan.search_bytes.max(most_split_bytes);
        let index = self.indices.of(plan.owner.pool, plan.owner.class);
        let first = index.of_size(plan.owner.stream, key_bytes).next();
        let chosen: Vec<BlockId> = match first.filter(|id| !self.is_expandable(*id)) {
            Some(single) => vec![single],
            None => index
                .below_size(plan.owner.stream, key_bytes)
                .take_while(|id| self.blocks[*id].bytes >= most_split_bytes)
                .filter(|id| !self.is_expandable(*id))
                .collect(),
        };
        let (mut victims, mut released_bytes) = (Vec::new(), 0);
        for id in chosen {
            if released_bytes >= key_bytes {
                break;
            }
            let bytes = self.blocks[id].bytes;
            if let Some(victim) = self.begin_release(ledger, id) {
                released_bytes += bytes;
                victims.push(victim);
            }
        }
        (victims, released_bytes >= key_bytes)
    }

    /// Above the threshold of the garbage collection, removes large segments that were free longer
    /// than average.
    pub(super) fn release_garbage(&mut self, ledger: &mut Ledger) -> Vec<ReleaseBatch> {
        let mut victims = Vec::new();
        let Some(mut wanted_bytes) = ledger.bytes_above_threshold() else { return victims };
        let index = self.indices.of(PoolId::DEFAULT, PoolClass::Large);
        let searches = index.searches;
        let mut old: Vec<(BlockId, u64)> = index
            .all()
            .filter(|id| !self.blocks[*id].is_split() && !self.is_expandable(*id))
            .map(|id| (id, searches - self.blocks[id].freed_at_search))
            .filter(|(id, _)| !self.is_busy(&self.blocks[*id]))
            .collect();
        while wanted_bytes > 0 && !old.is_empty() {
            let (ages, count): (u64, _) = (old.iter().map(|(_, age)| age).sum(), old.len() as u64);
            // Compares with the average without a division.
            let is_old = |age: u64| age * count >= ages;
            for (id, _) in old.extract_if(.., |(_, age)| is_old(*age)) {
                wanted_bytes = wanted_bytes.saturating_sub(self.blocks[id].bytes);
                victims.extend(self.begin_release(ledger, id));
            }
        }
        victims
    }
}

impl CachingAllocator {
    /// Gives parts back to the device.
    pub(super) fn give_back(&self, parts: Vec<ReleaseBatch>) {
        self.try_give_back(parts).unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Returns what a request was served with, unless the device has panicked since: then the block
    /// goes back, because the caller gets the panic.
    pub(super) fn unless_panicked(
        &self,
        served: Option<Allocated>,
        outcome: thread::Result<()>,
    ) -> Option<Allocated> {
        if let Err(panic) = outcome {
            self.free(served.unwrap_or_default()).expect("it is from here");
            resume_unwind(panic)
        }
        served
    }

    /// As `give_back`. Returns the first panic of the device, after all parts went back.
    pub(super) fn try_give_back(&self, parts: Vec<ReleaseBatch>) -> thread::Result<()> {
        let mut outcome = Ok(());
        for ReleaseBatch { part, bytes, block } in parts {
            outcome = outcome.and(self.source.give_back(part));
            let vacant =
                block.and_then(|id| self.with_torch(|it, ledger| it.end_unmap(ledger, id)));
            if let Some(addresses) = vacant {
                // The addresses go back after their last page.
                outcome = outcome.and(self.source.give_back(addresses));
            }
            self.state.lock().ledger.note_left(bytes);
        }
        outcome
    }
}

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

#[cfg(test)]
mod tests {
    //! Goal: what goes back first, and at the end. Method: free segments of every pool and class,
    //! noted by hand; memory of a pool with a user.

    use super::*;
    use crate::backend::contract::Address;
    use crate::base::config::AllocatorConfig;
    use crate::base::device::{Device, DeviceKind};
    use crate::base::size::MIB;
    use crate::memory::allocator::ledger::Purpose;
    use crate::memory::allocator::request::{PoolOptions, Request};
    use crate::memory::allocator::torch_blocks::Owner;
    use crate::null::{NullBackend, NullConfig};

    #[test]
    fn large_segments_go_back_before_small_ones_and_those_of_private_pools_last() {
        // As PyTorch's: large pool, small pool, and of private pools the small one first.
        let ledger = &mut Ledger::new(AllocatorConfig::default(), 1 << 30, Purpose::Device);
        let mut torch = Torch::default();
        let private = PoolId(0, 1);
        let noted = [
            (private, PoolClass::Small),
            (private, PoolClass::Large),
            (PoolId::DEFAULT, PoolClass::Small),
            (PoolId::DEFAULT, PoolClass::Large),
        ];
        for (number, (pool, class)) in (1..).zip(noted) {
            let (base, owner) = (number * MIB as u64, Owner { stream: 0, class, pool });
            ledger.limits.take_anyway(MIB);
            ledger.note_segment(class, MIB, &Ok(()));
            let id = torch.add_segment(ledger, base, Address(base), MIB, owner, None);
            torch.put_in(id);
        }
        let base = |victim: &ReleaseBatch| match victim {
            ReleaseBatch { part: Part::Segment(base, _), .. } => base.0 / MIB as u64,
            other => panic!("{other:?}"),
        };
        let victims = torch.release_pools(ledger, |_, _| true);
        assert_eq!(victims.iter().map(base).collect::<Vec<_>>(), [4, 3, 1, 2]);
    }

    #[test]
    fn behind_a_close_all_that_is_free_goes_back_also_of_pools_with_users() {
        for settings in ["policy:torch", "policy:native"] {
            let device = Device::new(DeviceKind::NULL, 0).unwrap();
            let (null, config) = (NullBackend::new(NullConfig::default()), settings.parse());
            let allocator = CachingAllocator::new(null, device, config.unwrap()).unwrap();
            let reserved_bytes = || allocator.statistics().reserved_bytes.all.current;
            let pool = PoolId(0, 1);
            allocator.retain_pool(pool, PoolOptions::default());
            let blocks = [30 * MIB, 50 * MIB].map(|bytes| {
                allocator.allocate(Request { pool, ..Request::new(bytes, 0) }).unwrap()
            });
            let [kept, freed] = blocks;
            allocator.free(freed).unwrap();
            assert_eq!(reserved_bytes(), 80 * MIB as u64, "{settings}: it has a user");
            allocator.close();
            assert_eq!(reserved_bytes(), 30 * MIB as u64, "{settings}: free before");
            allocator.free(kept).unwrap();
            assert_eq!(reserved_bytes(), 0, "{settings}: freed behind it");
        }
    }
}
