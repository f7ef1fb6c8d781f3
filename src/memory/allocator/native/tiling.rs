//! How blocks tile their area: what is cut out of free blocks, what joins, what gets memory.
//!
//! A free block with memory and one without are never joined. The latter are whole pages, because
//! the pages at the ends of a used block have memory. A free block with memory is *open* beside one
//! without. A bare block is found by the units of its *gap*: its own, and those of the free blocks
//! beside it.

use std::ops::Range;

use crate::memory::allocator::native::area::{Area, AreaId, AreaRange};
use crate::memory::allocator::native::block::{Block, BlockId, State};
use crate::memory::allocator::native::core::{Native, units_of};
use crate::memory::allocator::native::free_blocks::{FreeBlock, Listing};
use crate::memory::allocator::native::heap::{HeapId, Kind};
use crate::memory::allocator::native::search::Found;
use crate::memory::allocator::native::split::Parts;

impl Native {
    /// Notes addresses for a heap, all of them free; those of a segment have memory.
    pub(super) fn add_area(&mut self, range: AreaRange, heap: HeapId, kind: Kind) {
        let units = units_of(range.bytes, range.unit_bytes);
        let state = if range.page_bytes.is_some() { State::Bare } else { State::Free };
        let id = self.areas.next_id();
        let first = self.blocks.insert(Block::new(id, 0, units, state));
        self.areas.insert(Area::new(range, heap, kind, first));
        self.heaps[heap].arena_mut(kind).areas.push(id);
        self.enlist(first);
        self.splits.count_moved(kind.class());
        self.heaps.note_room(heap);
    }

    /// Takes a place out of the free block that has all its memory.
    pub(super) fn carve(&mut self, found: &Found) -> BlockId {
        self.delist(found.id);
        let id = self.cut_out(found.id, found.offset, found.units);
        self.count_splits_of(id);
        id
    }

    /// Takes a place some of whose pages lack memory, and those pages as a whole: the block.
    pub(super) fn carve_with_pages(&mut self, found: &Found) -> BlockId {
        let place = self.with_whole_bare_pages(found);
        self.delist(found.id);
        let end = place.end.min(self.blocks[found.id].end());
        let id = self.cut_out(found.id, place.start, end - place.start);
        while self.blocks[id].end() < place.end {
            let next = self.blocks[id].next.expect("the place ends in this area");
            self.delist(next);
            let (begin, end) = (self.blocks[next].offset, self.blocks[next].end());
            self.cut_out(next, begin, place.end.min(end) - begin);
            self.join_next(id);
        }
        self.count_splits_of(id);
        id
    }

    /// A place, with all of each page that lacks memory.
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

    /// A block that was taken with whole pages, all of which have memory now, becomes the place
    /// that was wanted; the rest of it is free.
    pub(super) fn trim(&mut self, mut id: BlockId, offset: u32, units: u32) -> BlockId {
        if offset > self.blocks[id].offset {
            let before = id;
            id = self.split(before, offset - self.blocks[before].offset);
            self.settle(before, State::Free);
        }
        if self.blocks[id].units > units {
            let rest = self.split(id, units);
            self.settle(rest, State::Free);
        }
        self.count_splits_of(id);
        id
    }

    /// A block that nobody has any more, and that its heap's stream does not use after the task
    /// that the heap counts as `busy_until`, joins its neighbours and can be had again.
    pub(super) fn release_block(&mut self, id: BlockId, busy_until: u64) {
        let block = &mut self.blocks[id];
        block.state = State::Used; // a slab is none any more
        if busy_until > 0 {
            block.set_busy_until(busy_until.max(block.busy_until()));
            let area = &mut self.areas[block.area];
            let pages = area.pages_of(block.offset, block.units);
            if let Some(table) = &mut area.pages {
                table.note_use(pages, busy_until);
            }
        }
        let area = &self.areas[block.area];
        let (heap, class) = (area.heap, area.kind.class());
        self.settle(id, State::Free);
        self.splits.count_moved(class);
        self.heaps.note_room(heap);
    }

    /// A block whose pages were to be found is free again, where it has memory and where not.
    pub(super) fn release_partly(&mut self, mut id: BlockId) {
        let area = &self.areas[self.blocks[id].area];
        let (heap, class) = (area.heap, area.kind.class());
        loop {
            let Block { area, offset, units, .. } = self.blocks[id];
            let area = &self.areas[area];
            let grid = self.sizes.grid(area.kind);
            let table = area.pages.as_ref().expect("an area with pages");
            let mut pages = area.pages_of(offset, units);
            let has_memory = table.is_mapped(pages.start);
            let border = pages.find(|page| table.is_mapped(*page) != has_memory);
            let border = border.map(|page| grid.first_unit(page));
            let rest = border.map(|border| self.split(id, border - offset));
            self.settle(id, if has_memory { State::Free } else { State::Bare });
            let Some(rest) = rest else { break };
            id = rest;
        }
        self.splits.count_moved(class);
        self.heaps.note_room(heap);
    }

    /// Some pages, which one free block covers, have memory from now on or have none.
    pub(super) fn turn(&mut self, area: AreaId, pages: &Range<usize>, state: State) {
        let area = &self.areas[area];
        let grid = self.sizes.grid(area.kind);
        let [begin, end] = [pages.start, pages.end].map(|page| grid.first_unit(page));
        let address = area.base.offset(area.bytes_of(begin)).0;
        let id = area.block_at(address, &self.blocks);
        let class = area.kind.class();
        self.delist(id);
        let id = self.cut_out(id, begin, end - begin);
        self.settle(id, state);
        self.splits.count_moved(class);
    }

    /// Cuts a place out of a block that is not listed, and uses it; what is left is free as it was.
    fn cut_out(&mut self, mut id: BlockId, offset: u32, units: u32) -> BlockId {
        let before = (offset > self.blocks[id].offset).then_some(id);
        if let Some(before) = before {
            id = self.split(before, offset - self.blocks[before].offset);
        }
        let rest = (self.blocks[id].units > units).then(|| self.split(id, units));
        self.blocks[id].state = State::Used;
        for (rest, beside) in [(before, self.blocks[id].previous), (rest, self.blocks[id].next)] {
            match (rest, beside) {
                (Some(rest), _) => self.enlist(rest),
                (None, Some(beside)) => self.relist(beside),
                (None, None) => {}
            }
        }
        id
    }

    /// A block that is not listed is free from now on, with memory or without, and joins its
    /// neighbours that are so too.
    fn settle(&mut self, mut id: BlockId, state: State) {
        let Block { previous, next, .. } = self.blocks[id];
        let is_same = |id: &BlockId, native: &Self| native.blocks[*id].state == state;
        if let Some(next) = next.filter(|next| is_same(next, self)) {
            self.delist(next);
            self.join_next(id);
        }
        if let Some(previous) = previous.filter(|previous| is_same(previous, self)) {
            self.delist(previous);
            self.join_next(previous);
            id = previous;
        }
        let block = &mut self.blocks[id];
        block.state = state;
        if state == State::Bare {
            block.set_busy_until(0); // memory leaves when nothing uses it any more
        }
        self.enlist(id);
    }

    /// Cuts a block in two behind `units`: the second part.
    fn split(&mut self, id: BlockId, units: u32) -> BlockId {
        let rest = self.blocks.split(id, units);
        self.areas[self.blocks[rest].area].note_begin(rest, &self.blocks);
        rest
    }

    /// Joins a block with the one behind it, which is not listed and gone then.
    fn join_next(&mut self, id: BlockId) {
        let gone = self.blocks[id].next.expect("a block behind it");
        self.areas[self.blocks[gone].area].note_end(gone, &self.blocks);
        self.blocks.join(id, gone);
    }

    /// A free block can be found from now on.
    fn enlist(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let Block { state, previous, next, .. } = *block;
        let area = &self.areas[block.area];
        let mut parts = Parts::default();
        if state == State::Free {
            parts = Parts::of_free(block, area, self.sizes.grid(area.kind));
            self.splits.moved += self.change_of_free(block, area, parts);
        }
        let (listing, units) = self.blocks.listing_of(block);
        let entry = self.free.insert(id, listing, parts);
        let indices = self.heaps[area.heap].arena_mut(area.kind);
        indices.index_mut(listing).insert(entry, units, &mut self.free);
        self.blocks[id].set_entry(Some(entry));
        if listing != Listing::Closed {
            for beside in [previous, next].into_iter().flatten() {
                indices.relist(&self.blocks[beside], &self.blocks, &mut self.free);
            }
        }
    }

    /// A free block cannot be found any more.
    fn delist(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let entry = block.entry().expect("a free block is listed");
        let area = &self.areas[block.area];
        let FreeBlock { listing, parts, .. } = self.free[entry];
        if block.state == State::Free {
            self.splits.moved -= self.change_of_free(block, area, parts);
        }
        let indices = self.heaps[area.heap].arena_mut(area.kind);
        indices.index_mut(listing).remove(entry, &mut self.free);
        self.free.remove(entry);
        self.blocks[id].set_entry(None);
    }

    /// What is beside a block has changed: if it is listed, it is found by that from now on.
    fn relist(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let area = &self.areas[block.area];
        let indices = self.heaps[area.heap].arena_mut(area.kind);
        indices.relist(block, &self.blocks, &mut self.free);
    }

    fn count_splits_of(&mut self, id: BlockId) {
        let class = self.areas[self.blocks[id].area].kind.class();
        self.splits.count_moved(class);
    }

    /// A block that is the whole of an area goes with it.
    pub(super) fn forget_block(&mut self, id: BlockId) {
        self.delist(id);
        self.count_splits_of(id);
        self.blocks.remove(id);
    }
}
