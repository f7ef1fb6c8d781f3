//! Splits and merges blocks, and keeps the indices of free blocks up to date.
//!
//! Mapped and unmapped free blocks never merge. Unmapped blocks are whole pages, because the pages
//! at the ends of a used block are mapped. A mapped free block is *open* beside an unmapped one. A
//! bare block is listed by the units of its *gap*: itself and the free blocks beside it.
//!
//! A step first links the blocks, then [`Native::list_anew`] updates what is known of the free one.
//! Both are kept apart, and short, because a processor has few registers.

use crate::memory::allocator::native::block::{Block, BlockId, Blocks, State};
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::free_blocks::{FreeBlock, FreeId};
use crate::memory::allocator::native::grid::Parts;
use crate::memory::allocator::native::heap::Arena;

impl Native {
    /// Takes a place out of a free block; the rest stays listed.
    #[inline(always)]
    pub(super) fn take_free(&mut self, id: BlockId, offset: u32, units: u32) -> BlockId {
        let block = &self.blocks[id];
        let [before, behind] = [offset - block.offset, block.end() - (offset + units)];
        match (before > 0, behind > 0) {
            (false, false) => self.take_whole(id),
            (true, true) => self.take_middle(id, offset, units),
            (is_end, _) => {
                let near = if is_end { block.next } else { block.previous };
                let taken = self.cut_off(id, units, is_end);
                self.list_anew(id);
                self.relist(near);
                taken
            }
        }
    }

    #[inline(never)]
    fn take_whole(&mut self, id: BlockId) -> BlockId {
        self.delist(id);
        let Block { previous, next, .. } = self.blocks[id];
        self.relist(previous);
        self.relist(next);
        id
    }

    #[inline(never)]
    fn take_middle(&mut self, id: BlockId, offset: u32, units: u32) -> BlockId {
        let block = &self.blocks[id];
        let (state, next, end) = (block.state, block.next, block.end());
        let taken = self.cut_off(id, end - offset, true);
        self.list_anew(id);
        self.relist(next);
        let rest = self.cut_off(taken, end - (offset + units), true);
        self.settle(rest, state);
        taken
    }

    /// Makes an unlisted block free or bare, merges it with neighbours of that state, and lists it.
    /// Returns the merged block.
    pub(super) fn settle(&mut self, id: BlockId, state: State) -> BlockId {
        let block = &mut self.blocks[id];
        block.state = state;
        if state == State::Bare {
            block.set_busy_until(0); // a page is unmapped only when its uses are over
        }
        let Block { previous, next, .. } = *block;
        let is_same = |id: &BlockId| self.blocks[*id].state == state;
        let [previous, next] = [previous, next].map(|beside| beside.filter(is_same));
        let Some(kept) = previous.or(next) else {
            let entry = self.free.insert(id);
            self.blocks[id].set_entry(Some(entry));
            self.list_anew(id);
            return id;
        };
        let last = next.filter(|_| previous.is_some());
        if let Some(last) = last {
            self.delist(last);
        }
        self.join(kept, id);
        if let Some(last) = last {
            self.join(kept, last);
        }
        self.list_anew(kept);
        kept
    }

    /// Splits `units` off a block, at its end or its beginning, and returns them as a block in use.
    #[inline(always)]
    pub(super) fn cut_off(&mut self, id: BlockId, units: u32, is_end: bool) -> BlockId {
        let part = self.blocks.cut_off(id, units, is_end);
        let Block { offset, previous, area, .. } = self.blocks[part];
        let area = &mut self.areas[area];
        if previous.is_none() {
            area.first = part;
        }
        area.note_begin(part, offset); // the rest is one block further, or was noted
        part
    }

    /// Merges a block with an unlisted neighbour, whose record is removed.
    #[inline(always)]
    pub(super) fn join(&mut self, id: BlockId, gone: BlockId) {
        self.blocks.join(id, gone);
        let Block { offset, previous, area, .. } = self.blocks[id];
        let area = &mut self.areas[area];
        if previous.is_none() {
            area.first = id;
        }
        area.note_begin(id, offset);
    }

    /// Updates the entry, the list and the inactive splits of a free block after a change.
    #[inline(never)]
    fn list_anew(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let entry = block.entry().expect("a free block has an entry");
        let beside = self.blocks.beside(block);
        let (listing, units) = block.listing(beside);
        let area = &self.areas[block.area];
        let indices = self.heaps[area.heap].arena_mut(area.kind);
        let entries = self.free.entries.places();
        if block.state != State::Bare {
            let was = entries[entry.index()].parts;
            let parts = Parts::of_free(block, area, self.sizes.grid(area.kind));
            self.splits.moved += was.change_to(parts, area);
            self.free.idle.set_parts(entry, parts, entries);
        }
        indices.place(entry, listing, units, entries);
        if listing.meets_other() {
            for beside in beside {
                if let Some(entry) = beside.entry() {
                    relist(beside, entry, &self.blocks, indices, entries);
                }
            }
        }
    }

    /// Lists a block, if it is free, by its new neighbours.
    #[inline(always)]
    fn relist(&mut self, id: Option<BlockId>) {
        let Some(block) = id.map(|id| &self.blocks[id]) else { return };
        let Some(entry) = block.entry() else { return };
        let area = &self.areas[block.area];
        let indices = self.heaps[area.heap].arena_mut(area.kind);
        relist(block, entry, &self.blocks, indices, self.free.entries.places());
    }

    /// Takes a free block out of its index, as a block in use.
    #[inline(never)]
    pub(super) fn delist(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let entry = block.entry().expect("a free block has an entry");
        let FreeBlock { parts, listing, .. } = self.free[entry];
        let area = &self.areas[block.area];
        self.splits.moved += parts.change_to(Parts::default(), area);
        let indices = self.heaps[area.heap].arena_mut(area.kind);
        indices.index_mut(listing).remove(entry, self.free.entries.places());
        self.free.remove(entry);
        let block = &mut self.blocks[id];
        block.set_entry(None);
        block.state = State::Used;
    }
}

/// Lists a free block by its new neighbours.
#[inline(never)]
fn relist(
    block: &Block,
    entry: FreeId,
    blocks: &Blocks,
    indices: &mut Arena,
    entries: &mut [FreeBlock],
) {
    let (listing, units) = blocks.listing_of(block);
    indices.place(entry, listing, units, entries);
}
