//! What the native policy knows, and how pieces change hands. All of it under the allocator's lock.
//!
//! A request goes to the heap of its stream and pool. Small ones are served from slabs, middle ones
//! from an arena whose blocks share pages, large ones from an arena of whole pages. A free piece
//! joins its neighbours at once. Pages stay behind free blocks until others need them (`growth`).
//!
//! Equations: the blocks of an area tile it; a block is listed in the index of its arena exactly
//! while it is free; a slab is listed in its heap exactly while it has a free small block; a page
//! is idle exactly while it has memory and no block in use touches it. `invariants` checks them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::steps::step;
use crate::engine::frontier::Frontier;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::native::area::{Area, AreaRange, Areas, Cost};
use crate::memory::allocator::native::block::{Block, BlockId, Blocks, State};
use crate::memory::allocator::native::cell::Counted;
use crate::memory::allocator::native::handle::Handle;
use crate::memory::allocator::native::heap::{Heap, HeapId, Heaps, Kind};
use crate::memory::allocator::native::idle::IdlePages;
use crate::memory::allocator::native::left_pools::LeftPools;
use crate::memory::allocator::native::live::Live;
use crate::memory::allocator::native::out::Amounts;
use crate::memory::allocator::native::piece::{Part, Piece};
use crate::memory::allocator::native::plan::{NativePlan, Sizes};
use crate::memory::allocator::native::size_class::SizeClass;
use crate::memory::allocator::native::slab::{Slab, SlabId, Slabs};
use crate::memory::allocator::native::split::{Change, Splits};
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::stats::Stat;

/// How much of what is free a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// A bounded number of steps, for a request that other memory may serve as well: blocks of the
    /// list of its own size, some of which may be smaller, larger ones, and runs of pages in each.
    Bounded,
    /// Every free block that is the request's own, before the device is asked for more. How long
    /// that takes does not grow with the streams that are known.
    Whole,
    /// The same by pages, also where sizes alone choose as long as there is a choice.
    Last,
}

impl Search {
    /// Looks at blocks of a request's own list, at larger ones, and at runs inside each.
    fn looks(self) -> [usize; 3] {
        if self == Self::Bounded { [8, 16, 4] } else { [usize::MAX; 3] }
    }

    /// Heaps of other streams, of those that got free memory last.
    pub(super) fn heaps(self) -> usize {
        if self == Self::Bounded { 4 } else { 16 }
    }
}

/// What the native policy of one allocator knows. See the head of this file.
#[derive(Debug)]
pub(in crate::memory::allocator) struct Native {
    pub(super) sizes: Sizes,
    pub(super) blocks: Blocks,
    pub(super) areas: Areas,
    pub(super) heaps: Heaps,
    pub(super) slabs: Slabs,
    pub(super) idle: IdlePages,
    pub(super) live: Arc<Live>,
    pub(in crate::memory::allocator) awaiting: BTreeMap<Piece, Awaiting>,
    /// What is with programs, in threads' caches, or awaits its free. What programs have is never
    /// more, and less at most by what caches keep: from here come the peaks when several threads
    /// have allocated, none of which sees the whole. What was asked for is not counted here.
    pub(in crate::memory::allocator) out: Amounts,
    pub(in crate::memory::allocator) awaiting_sums: Amounts,
    /// How often a piece became free.
    pub(in crate::memory::allocator) frees: u64,
    pub(in crate::memory::allocator) splits: Splits,
    /// Bytes that are out of arenas of blocks that share pages and count as of the large pool.
    pub(in crate::memory::allocator) large_in_shared: Stat,
    /// The peak of bytes, and the threads, for which it is set what caches may keep.
    pub(super) caches_bound_for: (u64, u64),
    /// True when a block is chosen by its size alone: which pages have memory depends on how far
    /// streams were when others needed some.
    pub(in crate::memory::allocator) ignores_pages: bool,
    /// Private pools without users that had something when the last of those went.
    pub(super) left_pools: LeftPools,
    /// True while a thread maps, moves or gives back pages, without the lock.
    pub(in crate::memory::allocator) is_mapping: bool,
}

/// A piece that was freed, while streams have not passed their last use of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory::allocator) struct Awaiting {
    pub(super) points: u32,
    pub(super) counted: Counted,
    /// The task, as its heap counts it, after which the heap's stream does not use it.
    pub(super) busy_until: u64,
}

impl Awaiting {
    pub(in crate::memory::allocator) fn bytes(&self) -> usize {
        self.counted.bytes
    }
}

/// A block that is wanted of an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) heap: HeapId,
    pub(super) kind: Kind,
    pub(super) bytes: usize,
    pub(super) align_bytes: usize,
}

/// A place for a block inside a free one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    id: BlockId,
    offset: u32,
    units: u32,
    pub(super) cost: Cost,
}

impl Native {
    /// Knows nothing yet. `page_bytes` is the size of pages that are mapped one by one.
    pub(in crate::memory::allocator) fn new(page_bytes: Option<usize>) -> Self {
        Self {
            sizes: Sizes::new(page_bytes),
            blocks: Blocks::default(),
            areas: Areas::default(),
            heaps: Heaps::default(),
            slabs: Slabs::default(),
            idle: IdlePages::default(),
            live: Arc::default(),
            awaiting: BTreeMap::new(),
            out: Amounts::default(),
            awaiting_sums: Amounts::default(),
            splits: Splits::default(),
            frees: 0,
            large_in_shared: Stat::default(),
            caches_bound_for: (0, 0),
            ignores_pages: false,
            left_pools: LeftPools::default(),
            is_mapping: false,
        }
    }

    /// The block that a plan wants: its own, or that of a new slab.
    pub(super) fn want(&mut self, plan: &NativePlan) -> Want {
        plan.want_of(self.heaps.of(plan.owner))
    }

    /// A place in a free block that is ready: of those that were looked at the one that costs the
    /// least. Of several it is the first by size. Before the device is asked for more it is the
    /// largest: what needs new pages anyhow leaves holes to what fits them.
    pub(super) fn find(
        &self,
        want: &Want,
        search: Search,
        is_ready: impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let Want { heap, kind, bytes, align_bytes } = *want;
        let units = units_of(bytes, self.sizes.unit_bytes(kind));
        let Heap { stream, earlier_tasks, .. } = &self.heaps[heap];
        let index = &self.heaps[heap].arena(kind).index;
        let done = stream.as_ref().map_or(u64::MAX, |stream| earlier_tasks + stream.done());
        let is_by_size = self.ignores_pages && search != Search::Last;
        let [mut own_looks, mut larger_looks, runs] = search.looks();
        let runs = if is_by_size { 0 } else { runs };
        let counts_idle = search != Search::Bounded || self.spares_idle_pages(kind, bytes);
        let mut largest = 0;
        let mut best: Option<Found> = None;
        for (is_own, first) in index.lists_from(units) {
            let looks = if is_own { &mut own_looks } else { &mut larger_looks };
            let mut next = Some(first);
            while *looks > 0
                && let Some(id) = next
            {
                *looks -= 1;
                step();
                let block = &self.blocks[id];
                next = block.listed_behind;
                let area = &self.areas[block.area];
                let cost = |offset: u32| {
                    if counts_idle {
                        area.cost_in_pages(offset, units, done)
                    } else {
                        area.cost_in_missing(offset, units)
                    }
                };
                let place = area.place(block, units, align_bytes, runs, cost);
                let Some((offset, cost)) = place.filter(|_| is_ready(block)) else { continue };
                let found = Found { id, offset, units, cost };
                if cost.is_none() || is_by_size {
                    return Some(found); // none is better
                }
                let is_better = |best: Found| {
                    let is_larger = search != Search::Bounded && block.units > largest;
                    cost < best.cost || cost == best.cost && is_larger
                };
                if best.is_none_or(is_better) {
                    (best, largest) = (Some(found), block.units);
                }
            }
            if larger_looks == 0 {
                break;
            }
        }
        best
    }

    /// True when also a bounded search counts the idle pages that a place takes, and so looks at
    /// more blocks. A request of some pages that shares the ones at its ends with others leaves
    /// more of them; a smaller one takes what is next in size.
    fn spares_idle_pages(&self, kind: Kind, bytes: usize) -> bool {
        kind == Kind::Middle && bytes >= 2 * self.sizes.page_bytes
    }

    /// The heap that a place is of.
    pub(super) fn heap_of_found(&self, found: &Found) -> HeapId {
        self.areas[self.blocks[found.id].area].heap
    }

    /// Takes a place out of its free block.
    pub(super) fn carve(&mut self, found: &Found) -> BlockId {
        let Found { mut id, offset, units, .. } = *found;
        let area_id = self.blocks[id].area;
        let area = &mut self.areas[area_id];
        let index = &mut self.heaps[area.heap].arena_mut(area.kind).index;
        let mut change = Change::default();
        change -= Change::of_free(id, area, &self.blocks, &self.slabs);
        index.remove(id, &mut self.blocks);
        if offset > self.blocks[id].offset {
            let before = id;
            id = self.blocks.split(before, offset - self.blocks[before].offset);
            index.insert(before, &mut self.blocks);
            change += Change::of_free(before, area, &self.blocks, &self.slabs);
            area.note_begin(id, &self.blocks);
        }
        if self.blocks[id].units > units {
            let rest = self.blocks.split(id, units);
            index.insert(rest, &mut self.blocks);
            change += Change::of_free(rest, area, &self.blocks, &self.slabs);
            area.note_begin(rest, &self.blocks);
        }
        self.splits.change(area.kind.class(), change);
        self.blocks[id].state = State::Used;
        let range = area.pages_of(offset, units);
        if let Some(pages) = &mut area.pages {
            pages.enter(&range);
        }
        self.live.know_block(id.place());
        id
    }

    /// A block that nobody has any more, and that its heap's stream does not use after the task
    /// that the heap counts as `busy_until`, joins its neighbours and can be had again.
    pub(super) fn release_block(&mut self, mut id: BlockId, busy_until: u64) {
        let Block { area: area_id, offset, units, previous, next, .. } = self.blocks[id];
        let area = &mut self.areas[area_id];
        let range = area.pages_of(offset, units);
        if let Some(pages) = &mut area.pages {
            let idle = pages.leave(&range, busy_until);
            self.idle.rest(area_id, idle, &mut self.areas);
        }
        let area = &mut self.areas[area_id];
        let index = &mut self.heaps[area.heap].arena_mut(area.kind).index;
        let block = &mut self.blocks[id];
        block.state = State::Free;
        block.set_busy_until(busy_until.max(block.busy_until()));
        let mut change = Change::default();
        let is_free = |id: &BlockId, blocks: &Blocks| blocks[*id].state == State::Free;
        if let Some(next) = next.filter(|next| is_free(next, &self.blocks)) {
            change -= Change::of_free(next, area, &self.blocks, &self.slabs);
            index.remove(next, &mut self.blocks);
            area.note_end(next, &self.blocks);
            self.blocks.join(id, next);
        }
        if let Some(previous) = previous.filter(|previous| is_free(previous, &self.blocks)) {
            change -= Change::of_free(previous, area, &self.blocks, &self.slabs);
            index.remove(previous, &mut self.blocks);
            area.note_end(id, &self.blocks);
            self.blocks.join(previous, id);
            id = previous;
        }
        index.insert(id, &mut self.blocks);
        change += Change::of_free(id, area, &self.blocks, &self.slabs);
        self.splits.change(area.kind.class(), change);
        self.heaps.note_room(self.areas[area_id].heap);
    }

    /// Notes addresses for a heap, all of them free; those of a segment have memory.
    pub(super) fn add_area(&mut self, range: AreaRange, heap: HeapId, kind: Kind) {
        let units = units_of(range.bytes, range.unit_bytes);
        let id = self.areas.next_id();
        let first = self.blocks.insert(Block::new(id, 0, units, State::Free));
        self.areas.insert(Area::new(range, heap, kind, first));
        let arena = self.heaps[heap].arena_mut(kind);
        arena.areas.push(id);
        arena.index.insert(first, &mut self.blocks);
        self.heaps.note_room(heap);
    }

    /// A free small block of a heap's slabs, taken.
    pub(super) fn take_small(&mut self, heap: HeapId, class: SizeClass) -> Option<Piece> {
        let id = self.heaps[heap].slabs[class.number()]?;
        Some(self.take_of_slab(id))
    }

    /// The first free block of a slab that has one, taken.
    pub(super) fn take_of_slab(&mut self, id: SlabId) -> Piece {
        let slab = &mut self.slabs[id];
        let free_before = slab.free;
        let slot = slab.take_first();
        if slab.free == 0 {
            let first = &mut self.heaps[slab.heap].slabs[slab.class.number()];
            self.slabs.unlink(id, first);
        }
        self.count_slab(id, free_before);
        Piece::small(id, slot)
    }

    /// Other small blocks of a slab are free than before.
    fn count_slab(&mut self, id: SlabId, free_before: u64) {
        let area = &self.areas[self.blocks[self.slabs[id].block].area];
        let change = Change::of_slab(id, free_before, area, &self.blocks, &self.slabs);
        self.splits.change(SLABS.class(), change);
    }

    /// Small blocks for a thread's cache: as many as there are in slabs, `count` at most.
    pub(super) fn take_stock(
        &mut self,
        heap: HeapId,
        class: SizeClass,
        count: usize,
        mut put: impl FnMut(Allocated),
    ) {
        let Heap { owner, earlier_tasks, .. } = &self.heaps[heap];
        let (stream, earlier_tasks, bytes) = (owner.stream, *earlier_tasks, class.bytes());
        let mut left = count;
        while left > 0
            && let Some(id) = self.heaps[heap].slabs[class.number()]
        {
            let slab = &mut self.slabs[id];
            let free_before = slab.free;
            let busy_until = slab.busy_until.saturating_sub(earlier_tasks);
            while left > 0 && slab.free != 0 {
                let slot = slab.take_first();
                let address = slab.address_of(slot);
                let mark = self.live.mark(Piece::small(id, slot)).expect("of a known slab");
                let handle = Handle::of_mark(mark, self.live.tag());
                put(Allocated::of_piece(handle, address, bytes, busy_until, stream));
                left -= 1;
            }
            if slab.free == 0 {
                self.slabs.unlink(id, &mut self.heaps[heap].slabs[class.number()]);
            }
            self.count_slab(id, free_before);
        }
        self.out.leave_several(Sizes::class(bytes), count - left, bytes);
    }

    /// Makes a slab of a block.
    pub(super) fn add_slab(&mut self, block: BlockId, heap: HeapId, class: SizeClass) -> SlabId {
        let record = &self.blocks[block];
        let mut slab = Slab::new(block, heap, class, self.areas[record.area].address_of(record));
        slab.busy_until = record.busy_until();
        let id = self.slabs.insert(slab);
        self.blocks[block].become_slab(id);
        self.live.know_slab(id.place());
        self.slabs.link(id, &mut self.heaps[heap].slabs[class.number()]);
        self.count_slab(id, 0);
        id
    }

    fn release_small(&mut self, id: SlabId, slot: u8, busy_until: u64) {
        let slab = &mut self.slabs[id];
        let first = &mut self.heaps[slab.heap].slabs[slab.class.number()];
        let free_before = slab.free;
        let was_full = free_before == 0;
        slab.free |= 1 << slot;
        slab.busy_until = slab.busy_until.max(busy_until);
        if !slab.is_unused() {
            if was_full {
                self.slabs.link(id, first);
            }
            self.count_slab(id, free_before);
            return;
        }
        slab.free = 0; // from here on its block is what is free
        if !was_full {
            self.slabs.unlink(id, first);
        }
        self.count_slab(id, free_before);
        let Slab { block, busy_until, .. } = self.slabs.remove(id);
        self.release_block(block, busy_until);
    }

    /// A piece of a size that nobody has any more; see [`Self::release_block`].
    pub(super) fn release(&mut self, piece: Piece, bytes: usize, busy_until: u64) {
        debug_assert_eq!(self.extent(piece).bytes, bytes, "{piece:?}");
        let class = Sizes::class(bytes);
        self.out.come_back(class, bytes, 0);
        if class == PoolClass::Large && self.kind_of(piece) == Kind::Middle {
            self.large_in_shared.decrease(bytes as u64);
        }
        self.frees += 1;
        match piece.part() {
            Part::Block(id) => self.release_block(id, busy_until),
            Part::Small(slab, slot) => self.release_small(slab, slot, busy_until),
        }
    }

    /// A piece that a thread has kept.
    pub(super) fn release_kept(&mut self, block: &Allocated) {
        let piece = block.handle().mark().and_then(|mark| self.live.piece(mark));
        let piece = piece.expect("a thread keeps what it had from here");
        let heap = &self.heaps[self.heap_of(piece)];
        // A heap goes on to another stream when the tasks of the one before are done.
        let is_its_own = heap.owner.stream == block.stream();
        let busy_until = if is_its_own { heap.count_of(block.busy_until()) } else { 0 };
        self.release(piece, block.bytes(), busy_until);
    }

    /// Where a piece is, and the task, as its heap counts it, after which nothing from its earlier
    /// life uses it.
    #[inline]
    pub(super) fn extent(&self, piece: Piece) -> Extent {
        match piece.part() {
            Part::Block(id) => {
                let block = &self.blocks[id];
                let area = &self.areas[block.area];
                let (address, bytes) = (area.address_of(block), area.bytes_of(block.units));
                let (heap, kind, busy_until) = (area.heap, area.kind, block.busy_until());
                Extent { address, bytes, heap, kind, busy_until }
            }
            Part::Small(slab, slot) => {
                let slab = &self.slabs[slab];
                let (address, bytes) = (slab.address_of(slot), slab.class.bytes());
                let (heap, kind, busy_until) = (slab.heap, SLABS, slab.busy_until);
                Extent { address, bytes, heap, kind, busy_until }
            }
        }
    }

    /// The kind of the arena that a piece is of, which is not always the one for its size.
    fn kind_of(&self, piece: Piece) -> Kind {
        match piece.part() {
            Part::Block(id) => self.areas[self.blocks[id].area].kind,
            Part::Small(..) => SLABS,
        }
    }

    /// A piece leaves its heap.
    pub(super) fn count_out(&mut self, extent: &Extent) {
        let class = Sizes::class(extent.bytes);
        self.out.leave(class, extent.bytes, 0);
        if class == PoolClass::Large && extent.kind == Kind::Middle {
            self.large_in_shared.increase(extent.bytes as u64);
        }
    }

    /// The heap that a piece is of.
    pub(super) fn heap_of(&self, piece: Piece) -> HeapId {
        match piece.part() {
            Part::Block(id) => self.heap_of_block(id),
            Part::Small(slab, _) => self.slabs[slab].heap,
        }
    }

    /// The piece that an address is in, whoever has it.
    pub(super) fn piece_at(&self, address: u64) -> Option<Piece> {
        let area = &self.areas[self.areas.containing(address)?];
        let id = area.block_at(address, &self.blocks);
        let block = &self.blocks[id];
        match (block.state, block.slab()) {
            (State::Free, _) => None,
            (_, Some(slab)) => Some(Piece::small(slab, self.slabs[slab].slot_at(address)?)),
            _ => Some(Piece::block(id)),
        }
    }

    /// The stream with a key, if a heap is known to be of it.
    pub(in crate::memory::allocator) fn stream(&self, key: u64) -> Option<Arc<StreamCore>> {
        self.heaps.stream(key)
    }

    /// How many heaps there are, and areas in them.
    #[cfg(all(test, not(loom)))]
    pub(in crate::memory::allocator) fn count_heaps_and_areas(&self) -> (usize, usize) {
        (self.heaps.iter().count(), self.areas.iter().count())
    }

    /// By how many owners heaps are found.
    #[cfg(all(test, not(loom)))]
    pub(in crate::memory::allocator) fn count_owners(&self) -> usize {
        self.heaps.count_owners()
    }

    /// True when memory of a heap, which its stream uses up to a task as the heap counts it, serves
    /// a stream that has `before` behind it: that task is done, or ordered before what the stream
    /// does next.
    pub(super) fn is_ready(&self, heap: HeapId, count: u64, before: Option<&Frontier>) -> bool {
        let is_ordered = || {
            let point = self.heaps[heap].point(count);
            before.zip(point).is_some_and(|(before, point)| before.dominates(&point))
        };
        !self.is_using(heap, count) || is_ordered()
    }

    /// True when the stream that a heap is of has not passed a task, as the heap counts it.
    pub(super) fn is_using(&self, heap: HeapId, count: u64) -> bool {
        self.heaps[heap].is_using(count)
    }
}

/// Where a piece is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) heap: HeapId,
    pub(super) kind: Kind,
    pub(super) busy_until: u64,
}

/// The kind of arena that all slabs are of.
const SLABS: Kind = Kind::Middle;

/// How many units bytes are, of which they are a multiple.
pub(super) fn units_of(bytes: usize, unit_bytes: usize) -> u32 {
    debug_assert!(bytes.is_multiple_of(unit_bytes), "{bytes} in units of {unit_bytes}");
    // Units are powers of two.
    u32::try_from(bytes >> unit_bytes.trailing_zeros()).expect("checked when it was planned")
}
