//! Splits and merges blocks of one area, and keeps the indices of free blocks up to date.
//!
//! Mapped and unmapped free blocks never merge. Unmapped blocks are whole pages, because the pages
//! at the ends of a used block are mapped. A mapped free block is *open* beside an unmapped one. A
//! bare block is listed by the units of its *gap*: itself and the free blocks beside it.

use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::{Block, BlockId, Blocks, State};
use crate::memory::allocator::native::free_blocks::{FreeBlock, FreeBlocks, FreeId, Listing};
use crate::memory::allocator::native::grid::{Grid, Parts};
use crate::memory::allocator::native::heap::Arena;
use crate::memory::allocator::native::index::list_of;
use crate::memory::allocator::native::slab::Slabs;
use crate::memory::allocator::native::split::{Splits, count_met};

/// The parts of the allocator's state that change with the blocks of one area.
pub(super) struct Tiles<'a> {
    pub(super) blocks: &'a mut Blocks,
    pub(super) area: &'a mut Area,
    pub(super) indices: &'a mut Arena,
    pub(super) free: &'a mut FreeBlocks,
    pub(super) slabs: &'a Slabs,
    pub(super) splits: &'a mut Splits,
    pub(super) grid: Grid,
}

impl Tiles<'_> {
    /// Takes a place out of a free block; the rest stays listed.
    #[inline(always)]
    pub(super) fn take_free(&mut self, id: BlockId, offset: u32, units: u32) -> BlockId {
        let block = &self.blocks[id];
        let state = block.state;
        let [before, behind] = [offset - block.offset, block.end() - (offset + units)];
        if before == 0 && behind == 0 {
            let listing = self.delist(id);
            if listing != Listing::Closed {
                self.relist_beside(id);
            }
            return id;
        }
        let was = self.listed(id);
        let (off, is_end) = if before == 0 { (units, false) } else { (units + behind, true) };
        let taken = self.cut_off(id, off, is_end);
        self.update(id, was);
        if was.listing != Listing::Closed {
            self.relist_beside(taken);
        }
        if before > 0 && behind > 0 {
            let rest = self.cut_off(taken, behind, true);
            self.settle(rest, state);
        }
        taken
    }

    /// Makes an unlisted block free or bare, merges it with neighbours of that state, and lists it.
    #[inline(always)]
    pub(super) fn settle(&mut self, id: BlockId, state: State) {
        let block = &mut self.blocks[id];
        if state == State::Bare {
            block.set_busy_until(0); // a page is unmapped only when its uses are over
        }
        let Block { previous, next, .. } = *block;
        let is_same = |id: &BlockId| self.blocks[*id].state == state;
        let [previous, next] = [previous, next].map(|beside| beside.filter(is_same));
        let Some(listed) = previous.or(next) else {
            self.blocks[id].state = state;
            return self.enlist(id);
        };
        let last = next.filter(|_| previous.is_some());
        if let Some(last) = last {
            self.delist(last);
        }
        let was = self.listed(listed);
        self.join(listed, id);
        if let Some(last) = last {
            self.join(listed, last);
        }
        self.update(listed, was);
    }

    /// Splits `units` off a block, at its end or its beginning, and returns them as a block in use.
    #[inline(always)]
    pub(super) fn cut_off(&mut self, id: BlockId, units: u32, is_end: bool) -> BlockId {
        let part = self.blocks.cut_off(id, units, is_end);
        let Block { offset, previous, .. } = self.blocks[part];
        if is_end {
            self.area.note_begin(part, offset);
            return part;
        }
        if previous.is_none() {
            self.area.first = part;
        }
        self.area.note_begin(part, offset);
        self.area.note_begin(id, offset + units);
        part
    }

    /// Merges a block with an unlisted neighbour, whose record is removed.
    #[inline(always)]
    pub(super) fn join(&mut self, id: BlockId, gone: BlockId) {
        self.blocks.join(id, gone);
        let Block { offset, previous, .. } = self.blocks[id];
        if previous.is_none() {
            self.area.first = id;
        }
        self.area.note_begin(id, offset);
    }

    /// Lists a free block.
    pub(super) fn enlist(&mut self, id: BlockId) {
        let (listing, units) = self.blocks.listing_of(&self.blocks[id]);
        let entry = self.free.insert(id, listing);
        self.indices.index_mut(listing).insert(entry, list_of(units), self.free);
        self.blocks[id].set_entry(Some(entry));
        self.update(id, Listed { entry, listing, parts: Parts::default(), met: 0 });
    }

    /// Returns how a free block is listed, for [`Self::update`] after a change.
    #[inline(always)]
    fn listed(&self, id: BlockId) -> Listed {
        let block = &self.blocks[id];
        let entry = block.entry().expect("a free block is listed");
        let FreeBlock { listing, parts, .. } = self.free[entry];
        let met = count_met(parts, self.blocks.beside(block), self.slabs);
        Listed { entry, listing, parts, met }
    }

    /// Updates the entry and the inactive splits of a free block after a change.
    #[inline(always)]
    fn update(&mut self, id: BlockId, was: Listed) {
        let Listed { entry, .. } = was;
        let block = &self.blocks[id];
        let beside = self.blocks.beside(block);
        self.free[entry].units = block.units;
        if block.state == State::Free {
            let parts = Parts::of_free(block, self.area, self.grid);
            let moved = &mut self.splits.moved;
            *moved += parts.change(count_met(parts, beside, self.slabs), self.area);
            *moved -= was.parts.change(was.met, self.area);
            self.free.set_parts(entry, parts);
        }
        let (listing, units) = block.listing(beside);
        self.indices.place(entry, listing, units, self.free);
        if was.listing != Listing::Closed || listing != Listing::Closed {
            self.relist_beside(id);
        }
    }

    /// Takes a free block out of its index, as a block in use. Returns the index it was in.
    pub(super) fn delist(&mut self, id: BlockId) -> Listing {
        let Listed { entry, listing, parts, met } = self.listed(id);
        let block = &mut self.blocks[id];
        block.set_entry(None);
        block.state = State::Used;
        self.splits.moved -= parts.change(met, self.area);
        self.indices.index_mut(listing).remove(entry, self.free);
        self.free.remove(entry);
        listing
    }

    /// Lists the free blocks beside a block by their new neighbours.
    fn relist_beside(&mut self, id: BlockId) {
        for beside in self.blocks.beside(&self.blocks[id]).into_iter().flatten() {
            self.indices.relist(beside, self.blocks, self.free);
        }
    }

    #[inline(always)]
    pub(super) fn count_splits(&mut self) {
        self.splits.count_moved(self.area.kind.class());
    }
}

/// How a free block is listed.
#[derive(Clone, Copy)]
struct Listed {
    entry: FreeId,
    listing: Listing,
    parts: Parts,
    /// The number of parts that continue in a slab beside the block.
    met: u8,
}
