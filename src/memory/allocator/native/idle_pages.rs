//! Idle pages: mapped, and covered by one free block. They move where memory is missing.

use crate::backend::contract::PhysicalHandle;
use crate::engine::log::record::MemoryAction;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::native::area::{Area, AreaId};
use crate::memory::allocator::native::block::{BlockId, State};
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::heap::{Heap, Owner};
use crate::memory::allocator::native::page_work::IdlePage;
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::recorder::Place;

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
