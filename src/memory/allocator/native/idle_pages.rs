//! Idle pages: mapped, and covered by one free block. They move where memory is missing.

use crate::backend::contract::PhysicalHandle;
use crate::engine::log::record::MemoryAction;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::native::area::{Area, AreaId};
use crate::memory::allocator::native::block::{Block, State};
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::heap::{Heap, Owner};
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::recorder::Place;

/// A mapped page that a free block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdlePage {
    pub(super) area: AreaId,
    pub(super) page: usize,
}

impl IdlePage {
    /// True when `next` is the page behind this one.
    fn is_before(&self, next: &Self) -> bool {
        (self.area, self.page + 1) == (next.area, next.page)
    }
}

impl Native {
    /// Returns all idle pages, longest idle first.
    pub(super) fn idle_pages(&self) -> impl Iterator<Item = IdlePage> {
        self.free.idle().flat_map(|id| self.idle_pages_in(&self.blocks[id]))
    }

    /// Returns the idle pages that `pool` may take and no stream uses, longest idle first.
    pub(super) fn movable_pages(
        &self,
        ledger: &Ledger,
        pool: PoolId,
    ) -> impl Iterator<Item = IdlePage> {
        self.idle_blocks_for(ledger, pool).flat_map(move |(block, area, heap)| {
            let table = area.pages.as_ref().expect("idle pages are mapped one by one");
            let is_used = |idle: &IdlePage| heap.is_using(table.busy_until(idle.page));
            self.idle_pages_in(block).filter(move |idle| !is_used(idle))
        })
    }

    /// Returns the idle pages that `pool` may take, used by streams or not, longest idle first.
    pub(super) fn idle_pages_for(
        &self,
        ledger: &Ledger,
        pool: PoolId,
    ) -> impl Iterator<Item = IdlePage> {
        self.idle_blocks_for(ledger, pool).flat_map(|(block, _, _)| self.idle_pages_in(block))
    }

    fn idle_blocks_for(
        &self,
        ledger: &Ledger,
        pool: PoolId,
    ) -> impl Iterator<Item = (&Block, &Area, &Heap)> {
        self.free.idle().filter_map(move |id| {
            let block = &self.blocks[id];
            let area = &self.areas[block.area];
            let heap = &self.heaps[area.heap];
            let is_shared = heap.owner.pool == pool || !ledger.pools.is_reserved(heap.owner.pool);
            is_shared.then_some((block, area, heap))
        })
    }

    fn idle_pages_in(&self, block: &Block) -> impl Iterator<Item = IdlePage> + use<> {
        let area = block.area;
        let pages = self.sizes.grid(self.areas[area].kind).covered(&block.range());
        pages.map(move |page| IdlePage { area, page: page as usize })
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

    /// Takes the memory of idle pages, which become bare.
    pub(super) fn take_pages(&mut self, idle: &[IdlePage]) -> Vec<(IdlePage, PhysicalHandle)> {
        let mut taken = Vec::with_capacity(idle.len());
        for run in idle.chunk_by(IdlePage::is_before) {
            let IdlePage { area, page } = run[0];
            self.turn(area, &(page..page + run.len()), State::Bare);
            let pages = self.areas[area].pages.as_mut().expect("an idle page");
            taken.extend(run.iter().map(|idle| (*idle, pages.take(idle.page))));
        }
        taken
    }

    /// Undoes what [`Self::take_pages`] did to a page.
    pub(super) fn return_page(
        &mut self,
        IdlePage { area, page }: IdlePage,
        handle: PhysicalHandle,
    ) {
        let pages = self.areas[area].pages.as_mut().expect("it was an idle page");
        pages.put(page, handle);
        self.turn(area, &(page..page + 1), State::Free);
    }
}
