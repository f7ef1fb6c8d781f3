//! How blocks tile their area: taking, freeing, splitting and merging blocks, mapping pages.

use std::ops::Range;

use crate::memory::allocator::native::area::{Area, AreaRange};
use crate::memory::allocator::native::block::{Block, BlockId, State};
use crate::memory::allocator::native::core::{Native, units_of};
use crate::memory::allocator::native::heap::{HeapId, Kind};
use crate::memory::allocator::native::plan::Found;
use crate::memory::allocator::native::search::Fit;

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
            Fit::Inside(found) => self.carve(found, kind),
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
