//! The laws of the native policy, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::base::size::to_usize;
use crate::memory::allocator::books::Books;
use crate::memory::allocator::native::area::{Area, AreaId};
use crate::memory::allocator::native::block::{BlockId, State};
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::heap::Kind;
use crate::memory::allocator::native::piece::Piece;
use crate::memory::allocator::native::plan::Sizes;
use crate::memory::allocator::native::slab::SlabId;
use crate::memory::allocator::snapshot::{BlockInfo, BlockState, PoolClass, SegmentInfo};

impl Books {
    /// Checks what is true of the native policy between two calls.
    pub(in crate::memory::allocator) fn check_native(&self) {
        let native = &self.native;
        let mut known = 0;
        for (id, area) in native.areas.iter() {
            known += native.check_tiling(id, area);
            native.check_pages(id, area);
        }
        assert_eq!(known, native.blocks.len(), "every block is of an area");
        native.check_areas_apart();
        native.check_indices();
        native.check_slabs();
        self.check_addresses();
        self.check_awaiting();
    }

    /// Every address leads to its block, from a block's inside too.
    fn check_addresses(&self) {
        for (_, area) in self.native.areas.iter() {
            for (id, block) in self.native.blocks.chain(area.first) {
                let begin = area.address_of(block);
                let bytes = area.bytes_of(block.units) as u64;
                for address in [begin, begin + bytes / 2, begin + bytes - 1] {
                    assert_eq!(self.block_of(address), Some(id), "{address:#x} in {block:?}");
                }
            }
        }
    }

    /// What of the inactive blocks of a segment cannot go back because it is in pages that blocks
    /// in use touch: the sizes of the stretches. Nothing in pages of PyTorch's policy, which counts
    /// none there.
    pub(in crate::memory::allocator) fn held_back(&self, segment: &SegmentInfo) -> Vec<usize> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        let Some(id) = self.native.areas.containing(segment.address) else { return Vec::new() };
        let area = &self.native.areas[id];
        let Some(pages) = &area.pages else { return Vec::new() };
        let page_bytes = pages.page_bytes as u64;
        let inactive = segment.blocks.iter().filter(|block| block.state == BlockState::Inactive);
        for block in inactive {
            let (mut at, end) = (block.address, block.address + block.bytes as u64);
            while at < end {
                let page = (at - area.base.0) / page_bytes;
                let part = at..end.min(area.base.0 + (page + 1) * page_bytes);
                at = part.end;
                if pages.idle_since(to_usize(page)) > 0 {
                    continue;
                }
                match stretches.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => stretches.push(part),
                }
            }
        }
        stretches.iter().map(|stretch| to_usize(stretch.end - stretch.start)).collect()
    }

    /// As what a block of a snapshot counts: by its size while it is in use, else as its segment.
    pub(in crate::memory::allocator) fn class_of(
        &self,
        info: &SegmentInfo,
        block: &BlockInfo,
    ) -> PoolClass {
        let is_native = self.native.areas.containing(info.address).is_some();
        if is_native && block.state.is_active() { Sizes::class(block.bytes) } else { info.class }
    }

    fn check_awaiting(&self) {
        let waiting = self.users.waiting_pieces();
        let found: BTreeMap<Piece, u32> =
            self.native.awaiting.iter().map(|(piece, freed)| (*piece, freed.points)).collect();
        assert_eq!(found, waiting, "pieces await their free exactly while streams are to pass");
    }
}

impl Native {
    /// Law 1: no gap, no overlap, no two free neighbours. How many blocks there are.
    fn check_tiling(&self, id: AreaId, area: &Area) -> usize {
        let (mut at, mut previous, mut count) = (0, None::<BlockId>, 0);
        for (block_id, block) in self.blocks.chain(area.first) {
            assert!(block.units > 0, "{block:?}");
            assert_eq!((block.offset, block.previous), (at, previous), "{block:?}");
            assert_eq!(block.area, id, "{block:?}");
            if let Some(previous) = previous {
                let both = [self.blocks[previous].state, block.state];
                assert_ne!(both, [State::Free; 2], "{block:?} is to be joined");
            }
            (at, previous) = (block.end(), Some(block_id));
            count += 1;
        }
        assert_eq!(area.bytes_of(at), area.bytes, "blocks end with their area");
        count
    }

    /// Pages have memory where blocks are in use, are idle where they have memory and none is, and
    /// know how many of their blocks begin and end in them.
    fn check_pages(&self, id: AreaId, area: &Area) {
        let Some(pages) = &area.pages else { return };
        let mut edges: BTreeMap<usize, u32> = BTreeMap::new();
        let mut in_use = BTreeSet::new();
        let used = self.blocks.chain(area.first).filter(|(_, block)| block.state != State::Free);
        for (_, block) in used {
            let range = area.pages_of(block.offset, block.units);
            *edges.entry(range.start).or_default() += 1;
            *edges.entry(range.end - 1).or_default() += 1;
            in_use.extend(range);
        }
        let idle: BTreeSet<usize> = self
            .idle
            .iter(&self.areas)
            .filter(|idle| idle.area == id)
            .map(|idle| idle.page)
            .collect();
        for page in 0..pages.len() {
            let expected = edges.get(&page).copied().unwrap_or(0);
            assert_eq!(pages.count_edges(page), expected, "edges in page {page}");
            let is_used = in_use.contains(&page);
            assert!(!is_used || pages.is_mapped(page) || self.is_mapping, "page {page}");
            let is_idle = pages.is_mapped(page) && !is_used;
            assert_eq!(pages.idle_since(page) > 0, is_idle, "page {page} is idle");
            assert_eq!(idle.contains(&page), is_idle, "page {page} is listed as idle");
        }
        assert!(in_use.last().is_none_or(|last| *last < pages.len()), "known pages");
    }

    fn check_areas_apart(&self) {
        let areas: Vec<&Area> = self.areas.iter().map(|(_, area)| area).collect();
        for pair in areas.windows(2) {
            let end = pair[0].base.0 + pair[0].bytes as u64;
            assert!(end <= pair[1].base.0, "areas overlap at {end:#x}");
        }
    }

    /// The indices hold what is free, each in the list of its size.
    fn check_indices(&self) {
        self.heaps.check_roomy();
        for (_, heap) in self.heaps.iter() {
            for kind in [Kind::Middle, Kind::Large] {
                let arena = heap.arena(kind);
                let listed: Vec<BlockId> = arena.index.all(&self.blocks).collect();
                let found: BTreeSet<BlockId> = listed.iter().copied().collect();
                assert_eq!(found.len(), listed.len(), "a block stands there twice");
                arena.index.check_places(&self.blocks);
                let expected: BTreeSet<BlockId> = arena
                    .areas
                    .iter()
                    .flat_map(|area| self.blocks.chain(self.areas[*area].first))
                    .filter(|(_, block)| block.state == State::Free)
                    .map(|(id, _)| id)
                    .collect();
                assert_eq!(found, expected, "the index holds what is free");
            }
        }
    }

    /// Slabs with a free block are listed once, in their class; none is unused.
    fn check_slabs(&self) {
        let mut listed = BTreeSet::new();
        for (id, heap) in self.heaps.iter() {
            for (number, first) in heap.slabs.iter().enumerate() {
                for slab in self.slabs.list(*first) {
                    let found = (self.slabs[slab].heap, self.slabs[slab].class.number());
                    assert_eq!(found, (id, number), "{slab:?}");
                    assert!(listed.insert(slab), "{slab:?} is listed twice");
                }
            }
        }
        let expected: BTreeSet<SlabId> =
            self.slabs.iter().filter(|(_, slab)| slab.free != 0).map(|(id, _)| id).collect();
        assert_eq!(listed, expected, "slabs with a free block");
        for (id, slab) in self.slabs.iter() {
            assert!(!slab.is_unused(), "{slab:?} goes back to its arena");
            let block = &self.blocks[slab.block];
            assert_eq!(block.slab(), Some(id), "{block:?}");
            let area = &self.areas[block.area];
            assert_eq!((area.address_of(block), area.heap), (slab.address, slab.heap));
        }
    }
}
