//! Blocks of one area, cut and joined, with what finds the free ones.
//!
//! A free block with memory and one without are never joined. The latter are whole pages, because
//! the pages at the ends of a used block have memory. A free block with memory is *open* beside one
//! without. A bare block is found by the units of its *gap*: its own, and those of the free blocks
//! beside it.

use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::{Block, BlockId, Blocks, State};
use crate::memory::allocator::native::free_blocks::{FreeBlock, FreeBlocks, FreeId, Listing};
use crate::memory::allocator::native::grid::{Grid, Parts};
use crate::memory::allocator::native::heap::Arena;
use crate::memory::allocator::native::index::list_of;
use crate::memory::allocator::native::slab::Slabs;
use crate::memory::allocator::native::split::{Splits, count_met};

/// The blocks of an area, while some of them change.
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
    /// Takes a place out of a free block, which stays listed with what is left of it.
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

    /// A block that is not listed is free from now on, with memory or without, and joins its
    /// neighbours that are so too.
    #[inline(always)]
    pub(super) fn settle(&mut self, id: BlockId, state: State) {
        let block = &mut self.blocks[id];
        if state == State::Bare {
            block.set_busy_until(0); // memory leaves when nothing uses it any more
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

    /// Cuts units off a block, at its end or at its beginning: what has them, in use.
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
        self.area.note_end(id, offset, [Some(part), None], self.blocks);
        self.area.note_begin(id, offset + units);
        part
    }

    /// Joins a block with one beside it that is not listed, and gone then.
    #[inline(always)]
    pub(super) fn join(&mut self, id: BlockId, gone: BlockId) {
        let [begin, begin_of_gone] = [id, gone].map(|id| self.blocks[id].offset);
        self.blocks.join(id, gone);
        let Block { offset, previous, next, .. } = self.blocks[id];
        self.area.note_end(gone, begin_of_gone, [Some(id), next], self.blocks);
        if offset < begin {
            if previous.is_none() {
                self.area.first = id;
            }
            self.area.note_end(id, begin, [Some(id), next], self.blocks);
        }
    }

    /// A free block can be found from now on.
    pub(super) fn enlist(&mut self, id: BlockId) {
        let (listing, units) = self.blocks.listing_of(&self.blocks[id]);
        let entry = self.free.insert(id, listing);
        self.indices.index_mut(listing).insert(entry, list_of(units), self.free);
        self.blocks[id].set_entry(Some(entry));
        self.update(id, Listed { entry, listing, parts: Parts::default(), met: 0 });
    }

    /// What is listed of a free block, which is about to change.
    #[inline(always)]
    fn listed(&self, id: BlockId) -> Listed {
        let block = &self.blocks[id];
        let entry = block.entry().expect("a free block is listed");
        let FreeBlock { listing, parts, .. } = self.free[entry];
        let met = count_met(parts, self.blocks.beside(block), self.slabs);
        Listed { entry, listing, parts, met }
    }

    /// A free block is larger or smaller than it was: it is found by what it is now.
    #[inline(always)]
    fn update(&mut self, id: BlockId, was: Listed) {
        let Listed { entry, .. } = was;
        let block = &self.blocks[id];
        let beside = self.blocks.beside(block);
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

    /// A free block cannot be found any more, and is in use: where it was.
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

    /// What is beside a block has changed: what of that is listed is found by it from now on.
    fn relist_beside(&mut self, id: BlockId) {
        for beside in self.blocks.beside(&self.blocks[id]).into_iter().flatten() {
            self.indices.relist(beside, self.blocks, self.free);
        }
    }

    /// Counts what has moved.
    #[inline(always)]
    pub(super) fn count_splits(&mut self) {
        self.splits.count_moved(self.area.kind.class());
    }
}

/// What is listed of a free block.
#[derive(Clone, Copy)]
struct Listed {
    entry: FreeId,
    listing: Listing,
    parts: Parts,
    /// How many of these go on in a slab beside it.
    met: u8,
}
