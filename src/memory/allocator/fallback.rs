//! Serves a request from any free memory, when neither its own arena nor the device does.
//!
//! Law 8: a request fails only when no heap that may serve it can hold it. Those are the heaps of
//! its pool and of pools that help out, for all streams whose uses are done or ordered before it.
//! The search looks at every block of both arenas: a large request may share pages in the middle
//! arena, a small one may take a block of its own or a small block of a larger class. Pages move to
//! the place that takes the fewest from the device.
//!
//! # Memory outside of the request's arena
//!
//! Heaps of other streams, and the other arena of its own heap, serve before the device is asked,
//! if their uses are done or ordered before the request's next task.

use crate::base::steps::step;
use crate::engine::frontier::Frontier;
use crate::memory::allocator::allocate::Step;
use crate::memory::allocator::block::Block;
use crate::memory::allocator::block_ref::{BlockRef, BlockSelection};
use crate::memory::allocator::core::{Native, units_of};
use crate::memory::allocator::heap::Heap;
use crate::memory::allocator::ids::{HeapId, Kind, SlabId};
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::page_work::IdlePage;
use crate::memory::allocator::plan::{Cost, Found, NativePlan, Search};
use crate::memory::allocator::request::{PoolId, Request};
use crate::memory::allocator::slab::{CLASS_COUNT, SizeClass};
#[derive(Clone, Copy, Debug)]
enum FitCandidate {
    /// A slab with a free small block.
    Slab(SlabId),
    Place(Found),
}

/// The uses of free memory that stop a request from taking it.
#[derive(Clone, Copy, Debug)]
enum Uses<'a> {
    /// Uses that are neither done nor ordered before the frontier.
    Known(Option<&'a Frontier>),
    /// No uses, as if all were over.
    Over,
}

impl Uses<'_> {
    fn are_over(self, native: &Native, heap: HeapId, ticket: u64) -> bool {
        match self {
            Self::Known(before) => native.is_ready(heap, ticket, before),
            Self::Over => true,
        }
    }
}

impl Native {
    pub(super) fn step_anywhere(
        &mut self,
        ledger: &mut Ledger,
        plan: &NativePlan,
        search: Search,
        left_bytes: usize,
    ) -> Step {
        let before = plan.home.and_then(|home| home.history.latest());
        let rooms = self.rooms(ledger, plan, left_bytes, Uses::Known(before.as_deref()), search);
        let room = rooms.best(plan, search);
        let is_left = |fresh: usize| fresh * self.sizes.page_bytes <= left_bytes;
        let Some((room, _)) = room.filter(|(_, fresh)| is_left(*fresh)) else {
            return Step::Helpers;
        };
        let piece = match room {
            FitCandidate::Slab(slab) => self.take_of_slab(slab),
            FitCandidate::Place(found) if found.cost.missing == 0 => {
                let kind = self.areas[self.blocks[found.id].area].kind;
                let block = self.carve(&found, kind);
                self.finish(block, &plan.whole())
            }
            FitCandidate::Place(_) if !self.may_move_pages(ledger) => {
                return Step::AwaitPages(search);
            }
            FitCandidate::Place(found) => return self.begin_page_work(ledger, &found, search),
        };
        let owner = self.heaps[self.heap_of(piece.part())].owner;
        ledger.statistics.num_frontier_reuses += u64::from(owner.stream != plan.owner.stream);
        Step::Take(BlockSelection::other(piece))
    }

    /// Returns the heaps that may serve a request: its own, then others of its pool, then those of
    /// pools that help out. With `deterministic`, other streams' heaps only in the last search.
    fn heaps_for(&self, ledger: &Ledger, plan: &NativePlan, search: Search) -> Vec<HeapId> {
        let own = plan.owner;
        let helpers: Vec<PoolId> = ledger.helpers(own.pool).collect();
        let is_own_stream_only = ledger.config.deterministic && search != Search::Last;
        let heaps = self.heaps.iter().filter(|(_, heap)| {
            let is_pool = heap.owner.pool == own.pool || helpers.contains(&heap.owner.pool);
            is_pool && (heap.owner.stream == own.stream || !is_own_stream_only)
        });
        let mut heaps: Vec<_> = heaps
            .map(|(id, heap)| (heap.owner.pool != own.pool, heap.owner.stream != own.stream, id))
            .collect();
        heaps.sort();
        heaps.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Returns the largest size at which a request like this one could be served now, if the device
    /// and the limit have `left_bytes` left.
    pub(crate) fn most_bytes(
        &self,
        ledger: &Ledger,
        request: &Request,
        left_bytes: usize,
    ) -> usize {
        let unit_bytes = self.sizes.granularity.block_bytes;
        let plan = |units: usize| {
            let bytes = units * unit_bytes;
            self.sizes.plan(&Request { bytes, ..*request }, None)
        };
        let Some(least) = plan(1) else { return 0 };
        let rooms = self.rooms(ledger, &least, left_bytes, Uses::Known(None), Search::Last);
        let places = rooms.largest_places(&least);
        let has_room = |units: usize| plan(units).is_some_and(|plan| rooms.hold(&plan, &places));
        let taken_bytes = ledger.limits.taken_bytes.saturating_add(left_bytes);
        // Memory for a request also holds a smaller one, so a binary search finds the largest.
        let (mut enough, mut above) = (0, taken_bytes / unit_bytes + 1);
        while enough + 1 < above {
            let middle = enough.midpoint(above);
            if has_room(middle) { enough = middle } else { above = middle }
        }
        enough * unit_bytes
    }

    /// True when the request could be served if no stream used free memory. Also true with pending
    /// frees, which have no place yet, and without virtual memory, where the device decides.
    pub(super) fn could_serve_if_idle(
        &self,
        ledger: &Ledger,
        plan: &NativePlan,
        left_bytes: usize,
    ) -> bool {
        !self.awaiting.is_empty() || !self.sizes.has_pages || {
            let rooms = self.rooms(ledger, plan, left_bytes, Uses::Over, Search::Last);
            rooms.hold(plan, &rooms.largest_places(plan))
        }
    }

    fn count_movable(&self, ledger: &Ledger, pool: PoolId, uses: Uses<'_>) -> usize {
        match uses {
            Uses::Known(_) => self.movable_pages(ledger, pool).count(),
            Uses::Over => self.idle_pages_for(ledger, pool).count(),
        }
    }

    /// Collects the free memory that may serve requests of the plan's owner.
    fn rooms<'a>(
        &'a self,
        ledger: &Ledger,
        plan: &NativePlan,
        left_bytes: usize,
        uses: Uses<'a>,
        search: Search,
    ) -> FitIndex<'a> {
        let heaps = self.heaps_for(ledger, plan, search);
        let pool = |heap: &HeapId| self.heaps[*heap].owner.pool;
        // The heaps of one pool are adjacent.
        let pools = heaps.chunk_by(|one, next| pool(one) == pool(next));
        let counted = pools.flat_map(|heaps| {
            let movable = self.count_movable(ledger, pool(&heaps[0]), uses);
            heaps.iter().map(move |heap| (*heap, movable))
        });
        FitIndex {
            native: self,
            heaps: counted.collect(),
            own_movable: self.count_movable(ledger, plan.owner.pool, uses),
            left_pages: left_bytes / self.sizes.page_bytes,
            uses,
        }
    }
}

struct Place {
    heap: HeapId,
    kind: Kind,
    units: u32,
}

/// The free memory that may serve requests of one owner, collected once for several questions.
struct FitIndex<'a> {
    native: &'a Native,
    /// Each heap, and the number of pages that could move there.
    heaps: Vec<(HeapId, usize)>,
    own_movable: usize,
    /// The pages that the device and the limit have left.
    left_pages: usize,
    uses: Uses<'a>,
}

impl FitIndex<'_> {
    /// True when the request could be served. `places` are the largest places of its owner.
    fn hold(&self, plan: &NativePlan, places: &[Place]) -> bool {
        let native = self.native;
        // New pages may be enough for the piece where they are too few for a slab.
        let new_pages = plan.bytes.div_ceil(native.sizes.page_bytes);
        if new_pages <= self.left_pages.saturating_add(self.own_movable)
            || self.slab(plan).is_some()
        {
            return true;
        }
        if plan.align_bytes > native.sizes.granularity.block_bytes {
            let fresh = self.best(plan, Search::Last).map(|(_, fresh)| fresh);
            return fresh.is_some_and(|fresh| fresh <= self.most_new_page_count());
        }
        places.iter().any(|Place { heap, kind, units }| {
            let want = plan.want_in(*heap, *kind, &native.sizes);
            want.is_some_and(|it| units_of(it.bytes, native.sizes.unit_bytes(*kind)) <= *units)
        })
    }

    /// Returns the largest place of each heap and arena that can get its missing pages.
    fn largest_places(&self, plan: &NativePlan) -> Vec<Place> {
        let native = self.native;
        let arenas = self.heaps.iter().flat_map(|it| [(it, Kind::Middle), (it, Kind::Large)]);
        let largest = arenas.map(|(&(heap, movable), kind)| {
            let is_ready = |block: &Block| self.is_ready(plan, heap, block.busy_until());
            let most_pages = self.most_new_page_count().saturating_add(movable);
            let most_pages = u32::try_from(most_pages).unwrap_or(u32::MAX);
            Place { heap, kind, units: native.largest_place(heap, kind, most_pages, is_ready) }
        });
        largest.collect()
    }

    /// Returns the most new pages that a place may get: 0 without virtual memory.
    fn most_new_page_count(&self) -> usize {
        if self.native.sizes.has_pages { self.left_pages } else { 0 }
    }

    fn is_ready(&self, plan: &NativePlan, heap: HeapId, ticket: u64) -> bool {
        let is_own = self.native.heaps[heap].owner.stream == plan.owner.stream;
        is_own || self.uses.are_over(self.native, heap, ticket)
    }

    /// Finds a slab with a free small block for the request.
    fn slab(&self, plan: &NativePlan) -> Option<SlabId> {
        let native = self.native;
        let classes = plan.class.map_or(CLASS_COUNT, SizeClass::number)..CLASS_COUNT;
        let mut lists = classes.flat_map(|class| self.heaps.iter().map(move |it| (it.0, class)));
        lists.find_map(|(heap, class)| {
            let mut slabs = native.slabs.list(native.heaps[heap].slabs[class]);
            slabs.find(|slab| self.is_ready(plan, heap, native.slabs[*slab].busy_until))
        })
    }

    /// Returns the room that takes the fewest pages from the device, and their number.
    fn best(&self, plan: &NativePlan, search: Search) -> Option<(FitCandidate, usize)> {
        if let Some(slab) = self.slab(plan) {
            return Some((FitCandidate::Slab(slab), 0));
        }
        let native = self.native;
        let mut best: Option<(usize, Cost, Found)> = None;
        for (heap, movable) in &self.heaps {
            let is_ready = |block: &Block| self.is_ready(plan, *heap, block.busy_until());
            for kind in [Kind::Middle, Kind::Large] {
                let Some(want) = plan.want_in(*heap, kind, &native.sizes) else { continue };
                let Some(found) = native.find(&want, search, is_ready) else { continue };
                let (fresh, cost) =
                    ((found.cost.pages as usize).saturating_sub(*movable), found.cost);
                if best.is_none_or(|(least, least_cost, _)| (fresh, cost) < (least, least_cost)) {
                    best = Some((fresh, cost, found));
                }
            }
        }
        best.map(|(fresh, _, found)| (FitCandidate::Place(found), fresh))
    }
}

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
    ) -> Option<BlockRef> {
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
    ) -> BlockRef {
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
    ) -> Option<BlockRef> {
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
