//! Memory outside of the request's arena: other streams' heaps, and its own heap's other arena.
//!
//! It serves before the device is asked, where it is. Its uses are done, or ordered before the
//! request's next task.

use crate::base::steps::step;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::native::block::Block;
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::heap::{Heap, HeapId};
use crate::memory::allocator::native::page_work::IdlePage;
use crate::memory::allocator::native::piece::Piece;
use crate::memory::allocator::native::plan::{Found, NativePlan, Search};

impl Native {
    /// True when fewer idle pages may move to a place than it lacks.
    fn needs_new_pages(
        &self,
        ledger: &Ledger,
        plan: &NativePlan,
        found: &Found,
        search: Search,
    ) -> bool {
        let Found { id, offset, units, cost } = *found;
        let missing = cost.missing as usize;
        if ledger.config.deterministic && search != Search::Last {
            return missing > 0;
        }
        let own = self.blocks[id].area;
        let place = self.areas[own].pages_of(offset, units);
        let is_elsewhere = |idle: &IdlePage| idle.area != own || !place.contains(&idle.page);
        let movable = self.movable_pages(ledger, plan.owner.pool).filter(is_elsewhere);
        movable.take(missing).count() < missing
    }

    /// Takes memory of the heap's other arena before the device is asked for pages of the place
    /// that was found. Pages that the heap's stream still uses cannot move to that place, but they
    /// serve where they are: the stream's tasks stand behind those uses. Smaller requests than a
    /// page would waste most of it.
    pub(super) fn take_of_other_arena(
        &mut self,
        ledger: &Ledger,
        plan: &NativePlan,
        found: &Found,
        search: Search,
    ) -> Option<Piece> {
        let (heap, other) = (self.heap_of_block(found.id), plan.kind.other());
        if plan.bytes < self.sizes.page_bytes
            || plan.class.is_some()
            || self.heaps[heap].arena(other).areas.is_empty()
            || !self.needs_new_pages(ledger, plan, found, search)
        {
            return None;
        }
        let want = plan.want_in(heap, other, &self.sizes)?;
        let found = self.find_with_memory(&want, Search::Whole, |_| true)?;
        let block = self.carve(&found, other);
        Some(self.finish(block, plan))
    }

    /// Takes a block of another stream's heap.
    pub(super) fn take_elsewhere(
        &mut self,
        ledger: &mut Ledger,
        plan: &NativePlan,
        found: &Found,
    ) -> Piece {
        let block = self.carve(found, plan.kind);
        ledger.statistics.num_frontier_reuses += 1;
        self.finish(block, plan)
    }

    /// Takes a piece from another stream's heap, so that a stream without a heap gets none. `None`
    /// for slabs, and if that heap's stream is over: then this stream takes over the whole heap.
    #[inline(never)]
    pub(super) fn take_without_heap(
        &mut self,
        ledger: &mut Ledger,
        plan: &NativePlan,
    ) -> Option<Piece> {
        if plan.class.is_some() {
            return None;
        }
        let found = self.find_elsewhere(ledger, plan, None, Search::Bounded)?;
        let heap = self.heap_of_block(found.id);
        let is_over = self.heaps[heap].is_over();
        (!is_over).then(|| self.take_elsewhere(ledger, plan, &found))
    }

    /// Finds a free mapped block in another stream's heap, of those that got free memory last. Its
    /// uses are done, or ordered before the next task of the plan's stream.
    pub(super) fn find_elsewhere(
        &self,
        ledger: &Ledger,
        plan: &NativePlan,
        own: Option<HeapId>,
        search: Search,
    ) -> Option<Found> {
        if ledger.config.deterministic {
            return None; // the result depends on the progress of streams
        }
        let pool = plan.owner.pool;
        let before = plan.home.and_then(|home| home.history.latest());
        let is_other = |(id, heap): &(HeapId, &Heap)| Some(*id) != own && heap.owner.pool == pool;
        let find_in = |(heap, _): (HeapId, &Heap)| {
            step();
            let is_ready =
                |block: &Block| self.is_ready(heap, block.busy_until(), before.as_deref());
            self.find_with_memory(&plan.want_of(heap), search, is_ready)
        };
        self.heaps.roomy().filter(is_other).take(search.heaps()).find_map(find_in)
    }
}
