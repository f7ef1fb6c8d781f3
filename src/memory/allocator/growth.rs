//! Memory for blocks: idle pages are moved first, then the device is asked for more.
//!
//! A page moves only when every use of it is done, because moving acts at once. One thread at a
//! time maps, moves or gives back pages, without the lock: `is_mapping` excludes other threads, so
//! the thread's plan stays valid. Requests that need no page proceed.

use std::panic::resume_unwind;
use std::sync::Arc;

use crate::backend::contract::Address;
use crate::base::error::Result;
use crate::base::size::{GIB, MIB, to_usize};
use crate::engine::log::record::MemoryAction;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::addresses;
use crate::memory::allocator::allocate::Step;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::area::AreaRange;
use crate::memory::allocator::block::{Block, State};
use crate::memory::allocator::block_ref::{BlockRef, BlockSelection};
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::core::Native;
use crate::memory::allocator::ids::{BlockId, HeapId, Kind};
use crate::memory::allocator::ledger::{Ledger, Purpose};
use crate::memory::allocator::page_work::{IdlePage, PageLists, PageWork};
use crate::memory::allocator::pending::{LOOKS, LOOKS_BEFORE_GROWTH};
use crate::memory::allocator::plan::{BlockRequest, Cost, Found, NativePlan, Search};
use crate::memory::allocator::segments::none_if_short;
use crate::memory::allocator::slab::HEAP_PAGE_BYTES;
use crate::memory::allocator::source::Part;
use crate::memory::allocator::state::AllocatorState;
/// The size of an arena's first range of addresses; each later one doubles the arena.
const LEAST_AREA_BYTES: usize = GIB;
/// Bounds of shared segments, on devices without virtual memory.
const SHARED_SEGMENT_BYTES: std::ops::RangeInclusive<usize> = 2 * MIB..=32 * MIB;

impl CachingAllocator {
    /// Reserves addresses for an arena; returns the base and the number of bytes.
    pub(super) fn reserve(&self, bytes: usize, least_bytes: usize) -> Result<(Address, usize)> {
        let memory = self.source.virtual_memory().expect("it has pages");
        let ask = || {
            let given = memory.reserve(bytes).map(|base| (base, bytes));
            // A process may have too few addresses: reserve as many as this request needs.
            given.or_else(|_| memory.reserve(least_bytes).map(|base| (base, least_bytes)))
        };
        self.ask_apart(ask, Part::Addresses)
    }

    /// Maps new pages and moves idle ones to a block. The areas that the pages left are given back
    /// if they are vacant and their stream is over.
    pub(super) fn map_pages(
        &self,
        plan: &NativePlan,
        mut work: PageWork,
    ) -> Result<Option<Allocated>> {
        let memory = self.source.virtual_memory().expect("it has pages");
        let outcome = work.run(memory);
        let mut inside = self.caches.enter_prepared();
        let mut state = self.lock_from(inside.as_mut());
        let AllocatorState { native, ledger, .. } = &mut *state;
        let taken = native.end_page_work(ledger, &work).map(|block| {
            native.note_stream(native.heap_of_block(block), plan.home);
            BlockSelection::other(native.finish(block, plan))
        });
        let gone = native.gone_areas_depart(ledger, work.lists.idle.iter().map(|it| it.area));
        native.keep_lists(work.lists);
        let served = taken.map(|taken| self.begin_use(state, inside.as_mut(), plan, taken));
        drop(inside); // what follows may call the device
        let served = self.unless_panicked(served, self.try_depart(gone));
        match outcome {
            Ok(Ok(())) => Ok(served),
            Ok(Err(refusal)) => none_if_short(refusal),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl AllocatorState {
    /// Completes some pending frees, and returns the request's next step.
    #[inline(always)]
    pub(super) fn native_step(&mut self, plan: &NativePlan, search: Search) -> Step {
        let is_bounded = search == Search::Bounded;
        self.complete_some_if_free(if is_bounded { LOOKS } else { LOOKS_BEFORE_GROWTH });
        self.native.next_step(&mut self.ledger, plan, search)
    }
}

impl Native {
    #[inline(always)]
    fn next_step(&mut self, ledger: &mut Ledger, plan: &NativePlan, search: Search) -> Step {
        let is_bounded = search == Search::Bounded;
        let known = self.heaps.known(plan.owner);
        if is_bounded
            && known.is_none()
            && let Some(piece) = self.take_without_heap(ledger, plan)
        {
            return Step::Take(BlockSelection::other(piece));
        }
        let heap = known.unwrap_or_else(|| self.heaps.of(plan.owner));
        let want = plan.want_of(heap);
        self.note_stream(want.heap, plan.home);
        match self.take_or_find(plan, &want, search) {
            Ok(piece) => Step::Take(BlockSelection::as_planned(piece)),
            Err(found) => self.next_step_without(ledger, plan, &want, found, search),
        }
    }

    /// Returns the next step of a request for which its own arena has no memory in place.
    #[inline(never)]
    fn next_step_without(
        &mut self,
        ledger: &mut Ledger,
        plan: &NativePlan,
        want: &BlockRequest,
        found: Option<Found>,
        search: Search,
    ) -> Step {
        if plan.class.is_none()
            && let Some(found) = self.find_elsewhere(ledger, plan, Some(want.heap), search)
        {
            return Step::Take(BlockSelection::other(self.take_elsewhere(ledger, plan, &found)));
        }
        if !self.may_move_pages(ledger) {
            return Step::AwaitPages(search);
        }
        match found {
            Some(found)
                if search != Search::Bounded
                    && let Some(piece) = self.take_of_other_arena(ledger, plan, &found, search) =>
            {
                Step::Take(BlockSelection::other(piece))
            }
            Some(found) => self.begin_page_work(ledger, &found, search),
            None if search == Search::Bounded => Step::Flush,
            None => self.begin_growth(ledger, plan, want),
        }
    }

    /// Sets the heap's stream to `home`, if the heap has `home`'s key.
    pub(super) fn note_stream(&mut self, heap: HeapId, home: Option<&Arc<StreamCore>>) {
        let heaps = &mut self.heaps;
        let Some(home) = home.filter(|home| home.key() == heaps[heap].owner.stream) else { return };
        heaps.note_stream(heap, home);
    }

    /// Takes the block of `found`, and the idle and new pages for it.
    pub(super) fn begin_page_work(
        &mut self,
        ledger: &mut Ledger,
        found: &Found,
        search: Search,
    ) -> Step {
        let Cost { pages, missing } = found.cost;
        let is_bounded = search == Search::Bounded;
        // The idle pages inside the place do not count.
        let others = self.free.idle_page_count().saturating_sub((pages - missing) as usize);
        if is_bounded && missing as usize > others {
            return Step::Flush;
        }
        let block = self.carve_with_pages(found);
        let Block { area, offset, units, .. } = self.blocks[block];
        let area = &self.areas[area];
        let pages = area.pages.as_ref().expect("memory is missing");
        let (base, page_bytes) = (area.base, pages.page_bytes);
        let mut lists = self.page_lists.take().unwrap_or_default();
        let missing = area.pages_of(offset, units).filter(|page| !pages.is_mapped(*page));
        lists.targets.extend(missing);
        let pool = self.heaps[area.heap].owner.pool;
        // Which pages can move depends on the progress of streams.
        let holds_pages = ledger.config.deterministic && search != Search::Last;
        let most = if holds_pages { 0 } else { lists.targets.len() };
        lists.idle.extend(self.movable_pages(ledger, pool).take(most));
        let fresh_count = lists.targets.len() - lists.idle.len();
        let wants_caches = is_bounded && fresh_count > 0;
        if wants_caches || !ledger.limits.take(fresh_count * page_bytes) {
            self.keep_lists(lists);
            self.release_partly(block);
            return if wants_caches { Step::Flush } else { Step::Anywhere(Search::Whole) };
        }
        self.take_pages(&lists.idle, &mut lists.moved);
        self.is_mapping = true;
        let Found { offset, units, .. } = *found;
        Step::Map(PageWork { block, offset, units, base, page_bytes, fresh_count, lists })
    }

    /// Gives up page work that has not begun.
    pub(super) fn abandon_page_work(&mut self, ledger: &mut Ledger, work: PageWork) {
        self.end_page_work(ledger, &work);
        self.keep_lists(work.lists);
    }

    fn keep_lists(&mut self, mut lists: Box<PageLists>) {
        lists.clear();
        self.page_lists = Some(lists);
    }

    /// Stores the handles of the mapped pages, and trims the block to the request's place. When a
    /// page is missing, frees the block with the pages that are in place.
    fn end_page_work(&mut self, ledger: &mut Ledger, work: &PageWork) -> Option<BlockId> {
        let PageWork { block, offset, units, page_bytes, fresh_count, .. } = *work;
        let PageLists { targets, idle, moved, handles } = &*work.lists;
        let area = self.blocks[block].area;
        let is_complete = handles.len() == targets.len();
        self.is_mapping = false;
        let class = self.areas[area].kind.class();
        let fresh_done = fresh_count.min(handles.len());
        let moved_done = handles.len() - fresh_done;
        let pages = self.areas[area].pages.as_mut().expect("an area with pages");
        let last = targets[..handles.len()].last();
        pages.grow_to(last.map_or(0, |page| page + 1)); // not for what was refused
        for (page, handle) in targets.iter().zip(handles) {
            pages.put(*page, *handle);
        }
        let (left, kept) = idle.split_at(moved_done);
        if ledger.recorder.is_on() {
            let came = |page: &usize| IdlePage { block, area, page: *page };
            let came: Vec<IdlePage> = targets.iter().map(came).collect();
            self.note_pages(ledger, MemoryAction::PagesMapped, &came[..fresh_done]);
            self.note_pages(ledger, MemoryAction::PagesMovedAway, left);
            let here = &came[fresh_count..][..moved_done];
            self.note_pages(ledger, MemoryAction::PagesMovedHere, here);
        }
        for from in left {
            let theirs = self.areas[from.area].kind.class();
            ledger.statistics.reserved_bytes.transfer(theirs, class, page_bytes);
        }
        for (from, handle) in kept.iter().zip(&moved[moved_done..]) {
            self.return_page(*from, *handle);
        }
        ledger.statistics.num_pages_stolen += moved_done as u64;
        let [asked_bytes, given_bytes] = [fresh_count, fresh_done].map(|count| count * page_bytes);
        ledger.note_answer(class, asked_bytes, given_bytes);
        self.heaps.note_room(self.areas[area].heap);
        if !is_complete {
            self.release_partly(block);
        }
        is_complete.then(|| self.trim(block, offset, units))
    }

    /// Plans more addresses, or a segment, for an arena without room.
    fn begin_growth(
        &mut self,
        ledger: &mut Ledger,
        plan: &NativePlan,
        want: &BlockRequest,
    ) -> Step {
        let arena = self.heaps[want.heap].arena(want.kind);
        let known_bytes: usize = arena.areas.iter().map(|area| self.areas[*area].bytes).sum();
        let granule_bytes = self.sizes.page_bytes;
        let enough_bytes = (want.bytes + want.align_bytes - self.sizes.granularity.block_bytes)
            .next_multiple_of(granule_bytes);
        if plan.bytes > ledger.limits.total_bytes {
            // Reserves no addresses for a request that can never succeed.
            return Step::Anywhere(Search::Whole);
        }
        if self.sizes.has_pages {
            // An area has fewer than 2^32 units.
            let doubled_bytes = known_bytes.min(self.sizes.unit_bytes(want.kind) << 30);
            let bytes = enough_bytes.max(doubled_bytes).max(LEAST_AREA_BYTES);
            let bytes = bytes.next_multiple_of(granule_bytes);
            return Step::Reserve { bytes, least_bytes: enough_bytes };
        }
        let least_bytes = want.bytes.next_multiple_of(granule_bytes);
        let shared_bytes = match want.kind {
            Kind::Large => least_bytes,
            Kind::Middle => {
                let (least, most) = self.shared_segment_bytes(ledger);
                let part_bytes = (known_bytes / 8).next_multiple_of(granule_bytes);
                least_bytes.max(part_bytes.clamp(least, most))
            }
        };
        if !plan.wants_least && ledger.limits.take(shared_bytes) {
            return Step::Segment { bytes: shared_bytes, is_least: shared_bytes == least_bytes };
        }
        if !ledger.limits.take(least_bytes) {
            return Step::Anywhere(Search::Whole);
        }
        Step::Segment { bytes: least_bytes, is_least: true }
    }

    fn shared_segment_bytes(&self, ledger: &Ledger) -> (usize, usize) {
        let (least, most) = SHARED_SEGMENT_BYTES.into_inner();
        if ledger.purpose != Purpose::Heap {
            return (least, most);
        }
        let granule_bytes = self.sizes.page_bytes;
        let least = ledger.config.pinned_segment_bytes.next_multiple_of(granule_bytes);
        (least, most.max(least))
    }

    /// Adds addresses or a segment to the arena that the request uses now.
    pub(super) fn add_area_for(&mut self, plan: &NativePlan, base: Address, bytes: usize) {
        let want = self.want(plan);
        let unit_bytes = self.sizes.unit_bytes(want.kind);
        let page_bytes = self.sizes.has_pages.then_some(self.sizes.page_bytes);
        let range = AreaRange { base, bytes, unit_bytes, page_bytes };
        self.add_area(range, want.heap, want.kind);
    }
}

impl Native {
    /// True when this thread may move pages, and take memory from the device.
    pub(crate) fn may_move_pages(&self, ledger: &Ledger) -> bool {
        !self.is_mapping && !ledger.is_turn_of_another()
    }

    /// Takes a piece with all its memory, or else returns the place that needs the fewest pages.
    #[inline(always)]
    fn take_or_find(
        &mut self,
        plan: &NativePlan,
        want: &BlockRequest,
        search: Search,
    ) -> Result<BlockRef, Option<Found>> {
        if let Some(class) = plan.class
            && let Some(slab) = self.heaps[want.heap].slabs[class.number()]
        {
            return Ok(self.take_of_slab(slab));
        }
        let block = if search == Search::Bounded {
            let fit = self.find_bounded(want)?;
            self.carve_fit(&fit, want.kind)
        } else {
            let found = self.find_anywhere(want, search)?;
            self.carve(&found, want.kind)
        };
        Ok(self.finish(block, plan))
    }

    /// As [`Self::find`]: a place with all its memory, or else the cheapest one.
    #[inline(never)]
    fn find_anywhere(&self, want: &BlockRequest, search: Search) -> Result<Found, Option<Found>> {
        let found = self.find(want, search, |_| true);
        found.filter(|found| found.cost.missing == 0).ok_or(found)
    }

    pub(super) fn heap_of_block(&self, block: BlockId) -> HeapId {
        self.areas[self.blocks[block].area].heap
    }

    /// Returns the piece for a taken block, of which it makes a slab if the request has a class.
    #[inline(always)]
    pub(super) fn finish(&mut self, block: BlockId, plan: &NativePlan) -> BlockRef {
        debug_assert_eq!(self.blocks[block].state, State::Used, "it was taken");
        match plan.class {
            None => {
                if let Some(addresses) = &self.addresses {
                    let record = &self.blocks[block];
                    let area = &self.areas[record.area];
                    let pages = area.bytes_of(record.units) / HEAP_PAGE_BYTES;
                    let spare = addresses::Owner::Spare { id: block, pages };
                    addresses.set(to_usize(area.address_of(record)), Some(spare));
                }
                BlockRef::block(block)
            }
            Some(class) => {
                let heap = self.heap_of_block(block);
                let slab = self.add_slab(block, heap, class);
                self.take_of_slab(slab)
            }
        }
    }
}
