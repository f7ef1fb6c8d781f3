//! Idle pages, and free memory that goes back to the device: pages and vacant areas.

use std::panic::resume_unwind;
use std::thread;

use crate::backend::contract::PhysicalHandle;
use crate::engine::log::record::MemoryAction;
use crate::memory::allocator::area::Area;
use crate::memory::allocator::block::State;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::core::Native;
use crate::memory::allocator::heap::{Heap, Owner};
use crate::memory::allocator::ids::{AreaId, BlockId, HeapId};
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::page_work::IdlePage;
use crate::memory::allocator::pending::WaitTarget;
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::request::PoolId;
use crate::memory::allocator::source::{Part, ReleaseBatch};
use crate::memory::allocator::state::AllocatorState;
/// How many pools without users are examined for each new pool: more than are listed meanwhile, so
/// that the list holds hardly more than those with memory in use.
const LEFT_POOL_LOOKS: usize = 4;

impl CachingAllocator {
    /// Gives back the free memory of the wanted pools that no stream uses.
    pub(super) fn shrink_native(&self, is_wanted: impl Fn(&Ledger, PoolId) -> bool) {
        self.shrink_by(|native, ledger| native.begin_departure(ledger, is_wanted));
    }

    /// Gives back the vacant areas of more than `most_bytes` bytes.
    pub(super) fn shrink_segments_above(&self, most_bytes: usize) {
        self.shrink_by(|native, ledger| {
            let areas = native.areas.iter();
            let above = areas.filter(|(_, area)| area.bytes > most_bytes && native.is_vacant(area));
            let ids: Vec<AreaId> = above.map(|(id, _)| id).collect();
            native.areas_depart(ledger, &ids, Vec::new())
        });
    }

    fn shrink_by(&self, choose: impl FnOnce(&mut Native, &mut Ledger) -> Vec<ReleaseBatch>) {
        let parts = {
            let AllocatorState { native, ledger, .. } =
                &mut *self.lock_when(|state| !state.native.is_mapping);
            choose(native, ledger)
        };
        self.try_depart(parts).unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Gives parts back to the device, and wakes the threads that wait to move pages. Returns a
    /// panic of the device.
    pub(super) fn try_depart(&self, parts: Vec<ReleaseBatch>) -> thread::Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let outcome = self.try_give_back(parts);
        self.with_native(|native, ledger| {
            native.is_mapping = false;
            ledger.sleepers.wake();
        });
        outcome
    }
}

impl Native {
    /// Takes the idle pages and vacant areas of the wanted pools out.
    fn begin_departure(
        &mut self,
        ledger: &mut Ledger,
        is_wanted: impl Fn(&Ledger, PoolId) -> bool,
    ) -> Vec<ReleaseBatch> {
        let pages = self.idle_pages_depart(ledger, &is_wanted);
        let wanted = self.areas.iter().filter(|(_, area)| {
            is_wanted(ledger, self.heaps[area.heap].owner.pool) && self.is_vacant(area)
        });
        let empty: Vec<AreaId> = wanted.map(|(id, _)| id).collect();
        self.areas_depart(ledger, &empty, Vec::from_iter(pages))
    }

    /// Takes those of the areas out that are vacant and whose stream is over.
    pub(super) fn gone_areas_depart(
        &mut self,
        ledger: &mut Ledger,
        areas: impl Iterator<Item = AreaId>,
    ) -> Vec<ReleaseBatch> {
        let is_gone = |id: &AreaId| {
            let area = self.areas.get(*id);
            area.is_some_and(|area| self.heaps[area.heap].is_over() && self.is_vacant(area))
        };
        let gone: Vec<AreaId> = areas.filter(is_gone).collect();
        self.areas_depart(ledger, &gone, Vec::new())
    }

    fn areas_depart(
        &mut self,
        ledger: &mut Ledger,
        ids: &[AreaId],
        mut parts: Vec<ReleaseBatch>,
    ) -> Vec<ReleaseBatch> {
        for id in ids {
            if self.areas.get(*id).is_some() {
                parts.push(self.area_departs(ledger, *id)); // `ids` may name an area twice
            }
        }
        self.is_mapping |= !parts.is_empty();
        parts
    }

    fn idle_pages_depart(
        &mut self,
        ledger: &mut Ledger,
        is_wanted: &impl Fn(&Ledger, PoolId) -> bool,
    ) -> Option<ReleaseBatch> {
        let is_ready = |idle: &IdlePage| {
            let pool = self.heaps[self.areas[idle.area].heap].owner.pool;
            is_wanted(ledger, pool) && !self.is_page_used(idle)
        };
        let ready: Vec<IdlePage> = self.idle_pages().filter(is_ready).collect();
        let page_bytes = self.sizes.page_bytes;
        let class = |idle: &IdlePage| (self.areas[idle.area].kind.class(), page_bytes);
        let classes: Vec<_> = ready.iter().map(class).collect();
        self.note_pages(ledger, MemoryAction::PagesUnmapped, &ready);
        let mut handles = Vec::with_capacity(ready.len());
        self.take_pages(&ready, &mut handles);
        (!classes.is_empty()).then(|| ledger.leave(Part::Pages(handles), &classes))
    }

    /// Lists a private pool without users if it still has a heap; called again after each look.
    pub(super) fn note_left_pool(&mut self, pool: PoolId) {
        if self.heaps.iter().any(|(_, heap)| heap.owner.pool == pool) {
            self.left_pools.push_back(pool);
        }
    }

    /// Returns the next pools to examine. The caller lists each again after the look.
    pub(super) fn take_left_pools(&mut self) -> Vec<PoolId> {
        let count = LEFT_POOL_LOOKS.min(self.left_pools.len());
        self.left_pools.drain(..count).collect()
    }

    /// True when one free block fills the area, no stream uses it, and no page is mapped.
    fn is_vacant(&self, area: &Area) -> bool {
        let block = &self.blocks[area.first];
        let vacant = if area.pages.is_some() { State::Bare } else { State::Free };
        let is_whole = block.state == vacant && block.next.is_none();
        is_whole && !self.heaps[area.heap].is_using(block.busy_until())
    }

    fn area_departs(&mut self, ledger: &mut Ledger, id: AreaId) -> ReleaseBatch {
        self.forget_block(self.areas[id].first);
        let Owner { stream, pool } = self.heaps[self.areas[id].heap].owner;
        let Area { base, bytes, heap, kind, pages, .. } = self.areas.remove(id);
        self.heaps[heap].arena_mut(kind).areas.retain(|area| *area != id);
        if self.heaps[heap].is_empty() {
            self.heaps.remove(heap);
        }
        if pages.is_some() {
            return ledger.leave(Part::Addresses(base, bytes), &[]);
        }
        let place = Place { address: base.0, bytes, stream, pool };
        ledger.recorder.note_moved(MemoryAction::SegmentFreed, &place);
        ledger.leave(Part::Segment(base, bytes), &[(kind.class(), bytes)])
    }

    /// Reports the free memory that its own stream still uses: stream, ticket and bytes.
    pub(super) fn note_busy(&self, wanted: WaitTarget, note: &mut impl FnMut(u64, u64, usize)) {
        let mut note = |heap: HeapId, count: u64, bytes: usize| {
            let heap = &self.heaps[heap];
            if heap.is_using(count) {
                note(heap.owner.stream, heap.ticket_of(count), bytes);
            }
        };
        for idle in self.idle_pages() {
            let area = &self.areas[idle.area];
            let pages = area.pages.as_ref().expect("an idle page");
            note(area.heap, pages.busy_until(idle.page), pages.page_bytes);
        }
        for (_, area) in self.areas.iter() {
            // The idle pages are reported above; blocks in use touch the rest of a free block.
            let is_segment = area.pages.is_none();
            if !is_segment && wanted == WaitTarget::Back {
                continue;
            }
            for (_, block) in self.blocks.chain(area.first) {
                if block.state == State::Free {
                    let bytes = if is_segment { area.bytes_of(block.units) } else { 0 };
                    note(area.heap, block.busy_until(), bytes);
                }
            }
        }
        for (_, slab) in self.slabs.iter().filter(|_| wanted == WaitTarget::Served) {
            let bytes = slab.free.count_ones() as usize * slab.class.bytes();
            note(slab.heap, slab.busy_until, bytes);
        }
    }
}

impl Native {
    /// Returns all idle pages, longest idle first.
    pub(super) fn idle_pages(&self) -> impl Iterator<Item = IdlePage> {
        self.free.idle().flat_map(|id| self.idle_pages_in(id))
    }

    /// Returns the idle pages that `pool` may take and no stream uses, longest idle first.
    pub(super) fn movable_pages(
        &self,
        ledger: &Ledger,
        pool: PoolId,
    ) -> impl Iterator<Item = IdlePage> {
        self.idle_blocks_for(ledger, pool).flat_map(move |(id, area, heap)| {
            let table = area.pages.as_ref().expect("idle pages are mapped one by one");
            let is_used = |idle: &IdlePage| heap.is_using(table.busy_until(idle.page));
            self.idle_pages_in(id).filter(move |idle| !is_used(idle))
        })
    }

    /// Returns the idle pages that `pool` may take, used by streams or not, longest idle first.
    pub(super) fn idle_pages_for(
        &self,
        ledger: &Ledger,
        pool: PoolId,
    ) -> impl Iterator<Item = IdlePage> {
        self.idle_blocks_for(ledger, pool).flat_map(|(id, _, _)| self.idle_pages_in(id))
    }

    fn idle_blocks_for(
        &self,
        ledger: &Ledger,
        pool: PoolId,
    ) -> impl Iterator<Item = (BlockId, &Area, &Heap)> {
        self.free.idle().filter_map(move |id| {
            let area = &self.areas[self.blocks[id].area];
            let heap = &self.heaps[area.heap];
            let is_shared = heap.owner.pool == pool || !ledger.pools.is_reserved(heap.owner.pool);
            is_shared.then_some((id, area, heap))
        })
    }

    fn idle_pages_in(&self, id: BlockId) -> impl Iterator<Item = IdlePage> + use<> {
        let block = &self.blocks[id];
        let area = block.area;
        let pages = self.sizes.grid(self.areas[area].kind).covered(&block.range());
        pages.map(move |page| IdlePage { block: id, area, page: page as usize })
    }

    pub(super) fn is_page_used(&self, idle: &IdlePage) -> bool {
        let area = &self.areas[idle.area];
        let ticket = area.pages.as_ref().map_or(0, |pages| pages.busy_until(idle.page));
        self.heaps[area.heap].is_using(ticket)
    }

    /// Records what happened to pages.
    pub(super) fn note_pages(&self, ledger: &mut Ledger, action: MemoryAction, pages: &[IdlePage]) {
        for run in pages.chunk_by(IdlePage::is_before) {
            let area = &self.areas[run[0].area];
            let page_bytes = self.sizes.page_bytes;
            let Owner { stream, pool } = self.heaps[area.heap].owner;
            let address = area.base.offset(run[0].page * page_bytes).0;
            let place = Place { address, bytes: run.len() * page_bytes, stream, pool };
            ledger.recorder.note_moved(action, &place);
        }
    }

    /// Takes the memory of idle pages, which become bare, behind that in `taken`.
    pub(super) fn take_pages(&mut self, idle: &[IdlePage], taken: &mut Vec<PhysicalHandle>) {
        let mut before = None;
        for run in idle.chunk_by(IdlePage::is_before) {
            let IdlePage { block, area, page } = run[0];
            // The run before it may have split the block.
            let is_first = before.replace(block) != Some(block);
            let block = if is_first { block } else { self.block_with(area, page) };
            self.turn(block, &(page..page + run.len()), State::Bare);
            let pages = self.areas[area].pages.as_mut().expect("an idle page");
            taken.extend(run.iter().map(|idle| pages.take(idle.page)));
        }
    }

    /// Undoes what [`Self::take_pages`] did to a page.
    pub(super) fn return_page(
        &mut self,
        IdlePage { area, page, .. }: IdlePage,
        handle: PhysicalHandle,
    ) {
        let pages = self.areas[area].pages.as_mut().expect("it was an idle page");
        pages.put(page, handle);
        self.turn(self.block_with(area, page), &(page..page + 1), State::Free);
    }

    /// Returns the block that covers a page.
    fn block_with(&self, area: AreaId, page: usize) -> BlockId {
        let area = &self.areas[area];
        let unit = self.sizes.grid(area.kind).first_unit(page);
        area.block_at(area.base.offset(area.bytes_of(unit)).0, &self.blocks)
    }
}
