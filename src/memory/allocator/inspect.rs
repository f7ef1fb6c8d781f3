//! The native heaps as a snapshot shows them, and assertions of their invariants.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::base::size::to_usize;
use crate::memory::allocator::area::Area;
use crate::memory::allocator::block::State;
use crate::memory::allocator::block_ref::BlockRef;
use crate::memory::allocator::core::Native;
use crate::memory::allocator::free_blocks::FreeList;
use crate::memory::allocator::heap::Owner;
use crate::memory::allocator::ids::{AreaId, BlockId, Kind, SlabId};
use crate::memory::allocator::plan::Sizes;
use crate::memory::allocator::snapshot::{BlockInfo, BlockState, PoolClass, SegmentInfo};
impl Native {
    /// Asserts the invariants, which hold between two calls.
    pub(crate) fn check(&self) {
        let mut known = 0;
        for (id, area) in self.areas.iter() {
            known += self.check_tiling(id, area);
            self.check_pages(id, area);
        }
        assert_eq!(known, self.blocks.len(), "every block is of an area");
        self.check_indices();
        self.check_slabs();
        self.check_addresses();
    }

    /// Returns the base address and the bytes of each area.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, usize)> {
        self.areas.iter().map(|(_, area)| (area.base.0, area.bytes))
    }

    /// Asserts that the first, middle and last address of each block lead to it.
    fn check_addresses(&self) {
        for (_, area) in self.areas.iter() {
            for (id, block) in self.blocks.chain(area.first) {
                let begin = area.address_of(block);
                let bytes = area.bytes_of(block.units) as u64;
                for address in [begin, begin + bytes / 2, begin + bytes - 1] {
                    assert_eq!(self.block_of(address), Some(id), "{address:#x} in {block:?}");
                }
            }
        }
    }

    /// Returns the inactive stretches of a segment that cannot go back because blocks in use touch
    /// their pages, in bytes. Empty except in mapped pages of this engine.
    pub(crate) fn held_back(&self, segment: &SegmentInfo) -> Vec<usize> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        let Some(id) = self.areas.containing(segment.address) else { return Vec::new() };
        let area = &self.areas[id];
        let Some(pages) = &area.pages else { return Vec::new() };
        let page_bytes = pages.page_bytes as u64;
        let idle = self.idle_pages_of(id);
        let inactive = segment.blocks.iter().filter(|block| block.state == BlockState::Inactive);
        for block in inactive {
            let of_others = stretches.len();
            let (mut at, end) = (block.address, block.address + block.bytes as u64);
            while at < end {
                let page = (at - area.base.0) / page_bytes;
                let part = at..end.min(area.base.0 + (page + 1) * page_bytes);
                at = part.end;
                if idle.contains(&to_usize(page)) {
                    continue;
                }
                match stretches[of_others..].last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => stretches.push(part),
                }
            }
        }
        stretches.iter().map(|stretch| to_usize(stretch.end - stretch.start)).collect()
    }

    /// Returns the pool that a block counts in: by its size while active, else its segment's.
    pub(crate) fn class_of(&self, info: &SegmentInfo, block: &BlockInfo) -> PoolClass {
        let is_native = self.areas.containing(info.address).is_some();
        if is_native && block.state.is_active() { Sizes::class(block.bytes) } else { info.class }
    }

    /// Asserts law 1: no gap, no overlap, no unmerged neighbours. Returns the number of blocks.
    fn check_tiling(&self, id: AreaId, area: &Area) -> usize {
        let (mut at, mut previous, mut count) = (0, None::<BlockId>, 0);
        for (block_id, block) in self.blocks.chain(area.first) {
            assert!(block.units > 0, "{block:?}");
            assert_eq!((block.offset, block.previous), (at, previous), "{block:?}");
            assert_eq!(block.area, id, "{block:?}");
            if let Some(previous) = previous {
                let both = [self.blocks[previous].state, block.state];
                let is_free = [State::Free, State::Bare].contains(&block.state);
                assert!(!is_free || both[0] != both[1], "{block:?} is to be joined");
            }
            (at, previous) = (block.end(), Some(block_id));
            count += 1;
        }
        assert_eq!(area.bytes_of(at), area.bytes, "blocks end with their area");
        count
    }

    fn idle_pages_of(&self, area: AreaId) -> BTreeSet<usize> {
        let idle = self.idle_pages().filter(|idle| idle.area == area);
        idle.map(|idle| idle.page).collect()
    }

    /// Asserts that pages are mapped but in bare blocks, and idle where a free block covers them.
    fn check_pages(&self, id: AreaId, area: &Area) {
        let Some(pages) = &area.pages else { return };
        let mut idle = BTreeSet::new();
        let mut last = 0;
        for (_, block) in self.blocks.chain(area.first) {
            let touched = area.pages_of(block.offset, block.units);
            let covered = self.sizes.grid(area.kind).covered(&block.range());
            let covered = covered.start as usize..covered.end as usize;
            match block.state {
                State::Bare => {
                    assert_eq!(touched, covered, "{block:?} is whole pages");
                    assert!(!touched.clone().any(|page| pages.is_mapped(page)), "{block:?}");
                    continue;
                }
                State::Free => idle.extend(covered),
                State::Used | State::Slab => {}
            }
            let has_memory = touched.clone().all(|page| pages.is_mapped(page));
            assert!(has_memory || self.is_mapping, "{block:?} has memory");
            last = touched.end;
        }
        assert!(last <= pages.len(), "known pages");
        assert_eq!(self.idle_pages_of(id), idle, "what is listed as idle");
    }

    /// Asserts that the indices contain exactly the free blocks, each in the list of its size.
    fn check_indices(&self) {
        self.heaps.check_roomy();
        for (_, heap) in self.heaps.iter() {
            for kind in [Kind::Middle, Kind::Large] {
                let arena = heap.arena(kind);
                for listing in [FreeList::Mapped, FreeList::NextToGap, FreeList::Unmapped] {
                    let index = arena.index(listing);
                    let mut found: Vec<BlockId> =
                        index.all(&self.free).map(|id| self.free[id].block).collect();
                    let areas = arena.areas.iter().map(|area| &self.areas[*area]);
                    let blocks = areas.flat_map(|area| self.blocks.chain(area.first));
                    let free = blocks.filter(|(_, block)| {
                        let is_free = [State::Free, State::Bare].contains(&block.state);
                        is_free && self.blocks.listing_of(block).0 == listing
                    });
                    let mut expected = Vec::new();
                    for (id, block) in free {
                        let entry = block.entry().expect("it is listed");
                        assert_eq!(self.free[entry].listing, listing, "{block:?}");
                        index.check_place(entry, self.blocks.listing_of(block).1, &self.free);
                        expected.push(id);
                    }
                    found.sort();
                    expected.sort();
                    assert_eq!(found, expected, "the index lists each free block once");
                }
            }
        }
    }

    /// Asserts that slabs with a free block are listed once, in their class; none is unused.
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

impl Native {
    /// Returns each contiguous mapped range of an area as a segment. Slabs appear as small blocks.
    pub(crate) fn describe(&self, device_index: usize) -> Vec<SegmentInfo> {
        let describe = |(_, area): (_, &Area)| {
            let Owner { stream, pool } = self.heaps[area.heap].owner;
            let head = SegmentInfo {
                device_index,
                stream,
                class: area.kind.class(),
                pool,
                is_expandable: area.pages.is_some(),
                ..SegmentInfo::default()
            };
            SegmentInfo::parts(&head, &self.mapped_parts(area))
        };
        self.areas.iter().flat_map(describe).collect()
    }

    /// Returns the mapped blocks of an area, in order of address.
    fn mapped_parts(&self, area: &Area) -> Vec<BlockInfo> {
        let mut parts = Vec::new();
        for (id, block) in self.blocks.chain(area.first) {
            match (block.state, block.slab()) {
                (State::Bare, _) => {}
                (State::Free, _) => {
                    let (address, bytes) = (area.address_of(block), area.bytes_of(block.units));
                    parts.push(BlockInfo { address, ..inactive(bytes) });
                }
                (_, Some(slab)) => self.push_slab(slab, area.bytes_of(block.units), &mut parts),
                _ => parts.push(self.describe_piece(BlockRef::block(id))),
            }
        }
        parts
    }

    /// Adds a slab's small blocks, adjacent free ones as one.
    fn push_slab(&self, id: SlabId, bytes: usize, parts: &mut Vec<BlockInfo>) {
        let (slab, first) = (&self.slabs[id], parts.len());
        for slot in 0..slab.blocks() {
            if slab.free >> slot & 1 == 0 {
                let slot = u8::try_from(slot).expect("below 64");
                parts.push(self.describe_piece(BlockRef::small(id, slot)));
                continue;
            }
            let address = slab.address + u64::from(slot) * slab.class.bytes() as u64;
            push_joined(BlockInfo { address, ..inactive(slab.class.bytes()) }, first, parts);
        }
        let used_bytes = slab.class.slab_bytes();
        if used_bytes < bytes {
            let address = slab.address + used_bytes as u64;
            push_joined(BlockInfo { address, ..inactive(bytes - used_bytes) }, first, parts);
        }
    }

    /// Describes a piece in use, pending free or cached. A cached piece is inactive.
    fn describe_piece(&self, piece: BlockRef) -> BlockInfo {
        let extent = self.extent(piece);
        let (address, bytes) = (extent.address, extent.bytes);
        if let Some(freed) = self.awaiting.get(&piece) {
            let state = BlockState::AwaitingFree;
            let requested_bytes = freed.counted.requested_bytes;
            return BlockInfo { address, bytes, requested_bytes, state };
        }
        match self.live.mark(piece).and_then(|mark| mark.requested(bytes)) {
            Some(requested_bytes) => {
                BlockInfo { address, bytes, requested_bytes, state: BlockState::Allocated }
            }
            None => BlockInfo { address, ..inactive(bytes) },
        }
    }

    /// Describes the piece in use at an address.
    pub(crate) fn describe_at(&self, address: u64) -> Option<BlockInfo> {
        let info = self.describe_piece(self.piece_at(address)?);
        (info.state == BlockState::Allocated).then_some(info)
    }

    /// Returns the block at an address, in use or not.
    pub(super) fn block_of(&self, address: u64) -> Option<BlockId> {
        let area = &self.areas[self.areas.containing(address)?];
        Some(area.block_at(address, &self.blocks))
    }
}

fn inactive(bytes: usize) -> BlockInfo {
    BlockInfo { address: 0, bytes, requested_bytes: 0, state: BlockState::Inactive }
}

/// Adds an inactive part; extends the last one from `first` on if that is inactive and adjacent.
fn push_joined(part: BlockInfo, first: usize, parts: &mut Vec<BlockInfo>) {
    match parts[first..].last_mut() {
        Some(last) if last.state == BlockState::Inactive && last.end() == part.address => {
            last.bytes += part.bytes;
        }
        _ => parts.push(part),
    }
}
