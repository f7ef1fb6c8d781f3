//! Splits and merges blocks, and keeps the indices of free blocks up to date.
//!
//! Mapped and unmapped free blocks never merge. Unmapped blocks are whole pages, because the pages
//! at the ends of a used block are mapped. A mapped free block is *open* beside an unmapped one. A
//! bare block is listed by the units of its *gap*: itself and the free blocks beside it.
//!
//! A step first links the blocks, then [`Tiles::list_anew`] updates what is known of the free one.

use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::{Block, BlockId, Blocks, State};
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::free_blocks::{FreeBlock, FreeBlocks, FreeId, Listing};
use crate::memory::allocator::native::grid::{Grid, Parts};
use crate::memory::allocator::native::heap::Arena;
use crate::memory::allocator::native::split::Change;
use crate::memory::allocator::snapshot::PoolClass;

impl Native {
    /// Takes a place out of a free block; the rest stays listed.
    #[inline(always)]
    pub(super) fn take_free(&mut self, id: BlockId, offset: u32, units: u32) -> BlockId {
        let block = &self.blocks[id];
        let [before, behind] = [offset - block.offset, block.end() - (offset + units)];
        match (before > 0, behind > 0) {
            (false, false) => self.take_whole(id),
            (true, true) => self.take_middle(id, offset, units),
            (is_end, _) => self.take_end(id, units, is_end),
        }
    }

    #[inline(never)]
    fn take_whole(&mut self, id: BlockId) -> BlockId {
        let Block { previous, next, .. } = self.blocks[id];
        let mut tiles = self.tiles_of(id);
        tiles.delist(id);
        tiles.relist(previous);
        tiles.relist(next);
        id
    }

    /// Takes units at the beginning of a free block, or at its end if they touch more than
    /// `most_pages` idle pages at its beginning.
    #[inline(never)]
    pub(super) fn take_at_end(&mut self, entry: FreeId, units: u32, most_pages: u32) -> BlockId {
        let FreeBlock { block: id, units: free_units, parts, .. } = self.free[entry];
        if free_units == units {
            return self.take_whole(id);
        }
        let mut tiles = self.tiles_of(id);
        let at_begin = tiles.grid.touched_beyond(parts.before, units).min(parts.idle_pages);
        tiles.take_end(id, entry, units, most_pages < at_begin)
    }

    #[inline(never)]
    fn take_end(&mut self, id: BlockId, units: u32, is_end: bool) -> BlockId {
        let mut tiles = self.tiles_of(id);
        tiles.take_end(id, tiles.entry(id), units, is_end)
    }

    #[inline(never)]
    fn take_middle(&mut self, id: BlockId, offset: u32, units: u32) -> BlockId {
        let block = &self.blocks[id];
        let (state, end) = (block.state, block.end());
        let taken = self.take_end(id, end - offset, true);
        let rest = self.cut_off(taken, end - (offset + units), true);
        self.settle(rest, state);
        taken
    }

    /// Frees a block in use or of a slab, and merges it with its free neighbours. `busy_until` is
    /// the heap's count of the last task that uses it. Returns the class of its arena.
    #[inline(always)]
    pub(super) fn release_block(&mut self, id: BlockId, busy_until: u64) -> PoolClass {
        let Self { blocks, areas, heaps, free, splits, sizes, .. } = self;
        let block = &mut blocks[id];
        let area = &mut areas[block.area];
        if busy_until > 0 {
            block.set_busy_until(busy_until.max(block.busy_until()));
            let pages = area.pages_of(block.offset, block.units);
            if let Some(table) = &mut area.pages {
                table.note_use(pages, busy_until);
            }
        }
        let (id_of_heap, kind, grid) = (area.heap, area.kind, sizes.grid(area.kind));
        let heap = &mut heaps[id_of_heap];
        let (has_room, indices) = (heap.is_roomy(), heap.arena_mut(kind));
        let moved = &mut splits.moved;
        Tiles { blocks, area, indices, free, moved, grid }.settle(id, State::Free);
        splits.count_moved(kind.class());
        if !has_room {
            heaps.list_roomy(id_of_heap);
        }
        kind.class()
    }

    /// Makes an unlisted block free or bare, merges it with neighbours of that state, and lists it.
    /// Returns the merged block.
    pub(super) fn settle(&mut self, id: BlockId, state: State) -> BlockId {
        self.tiles_of(id).settle(id, state)
    }

    /// Splits `units` off a block, at its end or its beginning, and returns them as a block in use.
    pub(super) fn cut_off(&mut self, id: BlockId, units: u32, is_end: bool) -> BlockId {
        self.tiles_of(id).cut_off(id, units, is_end)
    }

    /// Takes a free block out of its index, as a block in use.
    pub(super) fn delist(&mut self, id: BlockId) {
        self.tiles_of(id).delist(id);
    }

    /// What steps on a block and its neighbours need.
    #[inline(always)]
    fn tiles_of(&mut self, id: BlockId) -> Tiles<'_> {
        let Self { blocks, areas, heaps, free, splits, sizes, .. } = self;
        let area = &mut areas[blocks[id].area];
        let indices = heaps[area.heap].arena_mut(area.kind);
        let (grid, moved) = (sizes.grid(area.kind), &mut splits.moved);
        Tiles { blocks, area, indices, free, moved, grid }
    }
}

/// The blocks of one area, and what is known of the free ones among them.
struct Tiles<'a> {
    blocks: &'a mut Blocks,
    area: &'a mut Area,
    /// That of the area.
    indices: &'a mut Arena,
    free: &'a mut FreeBlocks,
    /// The inactive splits that are not counted yet.
    moved: &'a mut Change,
    grid: Grid,
}

impl Tiles<'_> {
    /// Splits units off a free block, at one of its ends; the rest stays listed.
    #[inline(always)]
    fn take_end(&mut self, id: BlockId, entry: FreeId, units: u32, is_end: bool) -> BlockId {
        let Block { previous, next, .. } = self.blocks[id];
        let taken = self.cut_off(id, units, is_end);
        if self.is_closed(entry) {
            self.list_closed(id, entry);
        } else {
            self.list_anew(id, entry);
            self.relist(if is_end { next } else { previous });
        }
        taken
    }

    #[inline(never)]
    fn settle(&mut self, id: BlockId, state: State) -> BlockId {
        let block = &mut self.blocks[id];
        block.state = state;
        if state == State::Bare {
            block.set_busy_until(0); // a page is unmapped only when its uses are over
        }
        let block = self.blocks[id];
        let [before, behind] = self.blocks.beside(&block).map(|beside| beside.state);
        let (kept, entry, is_closed) = match (block.previous, block.next) {
            (Some(previous), Some(next)) if before == state && behind == state => {
                let [entry, gone] = [previous, next].map(|id| self.entry(id));
                let is_closed = self.is_closed(entry) && self.is_closed(gone);
                self.delist(next);
                self.blocks.join_next(previous, id);
                self.blocks.join_next(previous, next);
                (previous, entry, is_closed)
            }
            (Some(previous), _) if before == state => {
                self.blocks.join_next(previous, id);
                let entry = self.entry(previous);
                (previous, entry, self.is_closed(entry) && behind != State::Bare)
            }
            (_, Some(next)) if behind == state => {
                self.join_previous(next, id);
                let entry = self.entry(next);
                (next, entry, self.is_closed(entry) && before != State::Bare)
            }
            _ => {
                let entry = self.free.insert(id);
                self.blocks[id].set_entry(Some(entry));
                (id, entry, ![before, behind, state].contains(&State::Bare))
            }
        };
        if is_closed {
            self.list_closed(kept, entry);
        } else {
            self.list_anew(kept, entry);
        }
        kept
    }

    #[inline(always)]
    fn cut_off(&mut self, id: BlockId, units: u32, is_end: bool) -> BlockId {
        let part = self.blocks.cut_off(id, units, is_end);
        let Block { offset, previous, .. } = self.blocks[part];
        if previous.is_none() {
            self.area.first = part;
        }
        self.area.note_begin(part, offset); // the rest is one block further, or was noted
        part
    }

    /// Merges a block with the one before it, whose record is removed.
    #[inline(always)]
    fn join_previous(&mut self, id: BlockId, gone: BlockId) {
        self.blocks.join_previous(id, gone);
        if self.blocks[id].previous.is_none() {
            self.area.first = id;
        }
    }

    /// The entry of a free block.
    #[inline(always)]
    fn entry(&self, id: BlockId) -> FreeId {
        self.blocks[id].entry().expect("a free block has an entry")
    }

    /// True when no neighbour of a free block was bare.
    #[inline(always)]
    fn is_closed(&self, entry: FreeId) -> bool {
        self.free[entry].listing == Listing::Closed
    }

    /// As [`Self::list_anew`], for a block without a bare neighbour, before and after.
    #[inline(always)]
    fn list_closed(&mut self, id: BlockId, entry: FreeId) {
        let block = &self.blocks[id];
        let entries = self.free.entries.places();
        let was = entries[entry.index()].parts;
        let parts = Parts::of_free(block, self.area, self.grid);
        *self.moved += was.change_to(parts, self.area);
        self.free.idle.set_parts(entry, parts, entries);
        self.indices.place(entry, Listing::Closed, block.units, entries);
    }

    /// Updates the entry, the list and the inactive splits of a free block after a change.
    #[inline(always)]
    fn list_anew(&mut self, id: BlockId, entry: FreeId) {
        let block = &self.blocks[id];
        let beside = self.blocks.beside(block);
        let (listing, units) = block.listing(beside);
        let entries = self.free.entries.places();
        if block.state != State::Bare {
            let was = entries[entry.index()].parts;
            let parts = Parts::of_free(block, self.area, self.grid);
            *self.moved += was.change_to(parts, self.area);
            self.free.idle.set_parts(entry, parts, entries);
        }
        self.indices.place(entry, listing, units, entries);
        if listing.meets_other() {
            for beside in beside {
                if let Some(entry) = beside.entry() {
                    relist(beside, entry, self.blocks, self.indices, entries);
                }
            }
        }
    }

    /// Lists a block, if it is free, by its new neighbours.
    #[inline(always)]
    fn relist(&mut self, id: Option<BlockId>) {
        let block = self.blocks.or_blank(id);
        let Some(entry) = block.entry() else { return };
        relist(block, entry, self.blocks, self.indices, self.free.entries.places());
    }

    #[inline(never)]
    fn delist(&mut self, id: BlockId) {
        let entry = self.entry(id);
        let block = &mut self.blocks[id];
        block.set_entry(None);
        block.state = State::Used;
        let FreeBlock { parts, listing, .. } = self.free[entry];
        *self.moved += parts.change_to(Parts::default(), self.area);
        self.indices.index_mut(listing).remove(entry, self.free.entries.places());
        self.free.remove(entry);
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
