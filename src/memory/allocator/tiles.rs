//! Splits and merges blocks, and keeps the indices of free blocks up to date.
//!
//! Mapped and unmapped free blocks never merge. Unmapped blocks are whole pages, because the pages
//! at the ends of a used block are mapped. A mapped free block is *open* beside an unmapped one. A
//! bare block is listed by the units of its *gap*: itself and the free blocks beside it.
//!
//! A step first links the blocks, then [`Tiles::list_anew`] updates what is known of the free one.

use std::ops::Range;

use crate::memory::allocator::area::{Area, AreaRange};
use crate::memory::allocator::block::{Block, Blocks, State};
use crate::memory::allocator::core::{Native, units_of};
use crate::memory::allocator::free_blocks::{FreeBlock, FreeBlocks, FreeList};
use crate::memory::allocator::heap::Arena;
use crate::memory::allocator::ids::{BlockId, FreeId, HeapId, Kind};
use crate::memory::allocator::pages::{Grid, Parts};
use crate::memory::allocator::plan::Found;
use crate::memory::allocator::pool_counters::Change;
use crate::memory::allocator::search::Fit;
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
        self.free[entry].listing == FreeList::Mapped
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
        self.indices.place(entry, FreeList::Mapped, block.units, entries);
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

impl Native {
    /// Adds an area to a heap as one free block; mapped if it is a segment.
    pub(super) fn add_area(&mut self, range: AreaRange, heap: HeapId, kind: Kind) {
        let units = units_of(range.bytes, range.unit_bytes);
        let state = if range.page_bytes.is_some() { State::Bare } else { State::Free };
        let id = self.areas.next_id();
        let first = self.blocks.insert(Block::new(id, 0, units, state));
        self.areas.insert(Area::new(range, heap, kind, first));
        self.heaps[heap].arena_mut(kind).areas.push(id);
        self.settle(first, state);
        self.splits.count_moved(kind.class());
        self.heaps.note_room(heap);
    }

    /// Takes a place with all its memory out of a free block of an arena of a kind.
    #[inline(always)]
    pub(super) fn carve(&mut self, found: &Found, kind: Kind) -> BlockId {
        let id = self.take_free(found.id, found.offset, found.units);
        self.splits.count_moved(kind.class());
        id
    }

    /// As [`Self::carve`], out of the free block that fits.
    #[inline(always)]
    pub(super) fn carve_fit(&mut self, fit: &Fit, kind: Kind) -> BlockId {
        match fit {
            Fit::AtEnd { entry, units, most_pages } => {
                let id = self.take_at_end(*entry, *units, *most_pages);
                self.splits.count_moved(kind.class());
                id
            }
            Fit::OwnerGuard(found) => self.carve(found, kind),
        }
    }

    /// Takes a place with missing pages as one block, which includes the whole of each such page.
    pub(super) fn carve_with_pages(&mut self, found: &Found) -> BlockId {
        let place = self.with_whole_bare_pages(found);
        let end = place.end.min(self.blocks[found.id].end());
        let id = self.take_free(found.id, place.start, end - place.start);
        while self.blocks[id].end() < place.end {
            let next = self.blocks[id].next.expect("the place ends in this area");
            let (begin, end) = (self.blocks[next].offset, self.blocks[next].end());
            let next = self.take_free(next, begin, place.end.min(end) - begin);
            self.blocks.join_next(id, next);
        }
        self.count_splits(id);
        id
    }

    /// Extends a place to the whole of each unmapped page that it touches.
    fn with_whole_bare_pages(&self, found: &Found) -> Range<u32> {
        let Found { id, offset, units, .. } = *found;
        let area = &self.areas[self.blocks[id].area];
        let grid = self.sizes.grid(area.kind);
        let is_bare = |block: &Block| block.state == State::Bare;
        let pages = area.pages_of(offset, units);
        let mut blocks = self.blocks.chain(id);
        let (_, last) = blocks.find(|(_, block)| block.end() >= offset + units).expect("in a gap");
        let start = if is_bare(&self.blocks[id]) { grid.first_unit(pages.start) } else { offset };
        let end = if is_bare(last) { grid.first_unit(pages.end) } else { offset + units };
        start..end
    }

    /// Frees the units of a block outside of a place, after all its pages were mapped.
    pub(super) fn trim(&mut self, mut id: BlockId, offset: u32, units: u32) -> BlockId {
        if offset > self.blocks[id].offset {
            let before = id;
            id = self.cut_off(before, self.blocks[before].end() - offset, true);
            self.settle(before, State::Free);
        }
        if self.blocks[id].units > units {
            let rest = self.cut_off(id, self.blocks[id].units - units, true);
            self.settle(rest, State::Free);
        }
        self.count_splits(id);
        id
    }

    /// Frees a block whose pages were not all mapped: as free and bare blocks.
    pub(super) fn release_partly(&mut self, mut id: BlockId) {
        let area = self.blocks[id].area;
        loop {
            let Block { offset, units, .. } = self.blocks[id];
            let area = &self.areas[area];
            let table = area.pages.as_ref().expect("an area with pages");
            let mut pages = area.pages_of(offset, units);
            let has_memory = table.is_mapped(pages.start);
            let border = pages.find(|page| table.is_mapped(*page) != has_memory);
            let border = border.map(|page| self.sizes.grid(area.kind).first_unit(page));
            let rest = border.map(|border| self.cut_off(id, offset + units - border, true));
            self.settle(id, if has_memory { State::Free } else { State::Bare });
            let Some(rest) = rest else { break };
            id = rest;
        }
        let Area { heap, kind, .. } = self.areas[area];
        self.splits.count_moved(kind.class());
        self.heaps.note_room(heap);
    }

    /// Changes pages that a free or bare block covers to `state`.
    pub(super) fn turn(&mut self, id: BlockId, pages: &Range<usize>, state: State) {
        let grid = self.sizes.grid(self.areas[self.blocks[id].area].kind);
        let [begin, end] = [pages.start, pages.end].map(|page| grid.first_unit(page));
        let id = self.take_free(id, begin, end - begin);
        let id = self.settle(id, state);
        self.count_splits(id);
    }

    /// Removes the block of a vacant area.
    pub(super) fn forget_block(&mut self, id: BlockId) {
        self.delist(id);
        self.count_splits(id);
        self.blocks.forget(id);
    }

    /// Counts what moved in the arena of a block since the last count.
    #[inline(always)]
    fn count_splits(&mut self, id: BlockId) {
        let kind = self.areas[self.blocks[id].area].kind;
        self.splits.count_moved(kind.class());
    }
}
