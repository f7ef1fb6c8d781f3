//! The state of the native policy, and how the heaps hand pieces out and take them back.
//!
//! A request goes to the heap of its stream and pool. Slabs serve small requests, an arena whose
//! blocks share pages middle ones, an arena of whole pages large ones. A freed block merges with
//! its free neighbours at once. Free blocks keep their pages until another block needs them
//! (`growth`).
//!
//! Equations: the blocks of an area tile it; a block is listed in an index of its arena exactly
//! while it is free; a slab is listed in its heap exactly while it has a free small block; a page
//! is idle exactly while one free mapped block covers it. `invariants` checks them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::size::to_usize;
use crate::engine::frontier::Frontier;
use crate::memory::allocator::addresses::Addresses;
use crate::memory::allocator::allocated::{Allocated, CachedBlock, Untagged};
use crate::memory::allocator::area::Areas;
use crate::memory::allocator::block::{Blocks, State};
use crate::memory::allocator::block_ref::{BlockRef, Part};
use crate::memory::allocator::free_blocks::FreeBlocks;
use crate::memory::allocator::heap::{Heap, Heaps, Owner};
use crate::memory::allocator::ids::{BlockId, HeapId, Kind, SlabId};
use crate::memory::allocator::live_table::LiveTable;
use crate::memory::allocator::page_work::PageLists;
use crate::memory::allocator::plan::{BlockRequest, NativePlan, Sizes};
use crate::memory::allocator::pool_counters::{InactiveSplits, PoolCounters};
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::request::{KnownStream, PoolId};
use crate::memory::allocator::slab::{Granularity, SizeClass, Slab, Slabs};
use crate::memory::allocator::stats::PooledStat;
use crate::memory::allocator::thread_cache::TransferCache;
use crate::memory::allocator::thread_counters::BlockSize;
/// The native policy's state for one allocator, guarded by the allocator's lock.
#[derive(Debug)]
pub(super) struct Native {
    pub(super) sizes: Sizes,
    pub(super) blocks: Blocks,
    pub(super) areas: Areas,
    pub(super) heaps: Heaps,
    pub(super) slabs: Slabs,
    pub(super) free: FreeBlocks,
    pub(super) live: Arc<LiveTable>,
    /// The page map of the host heap; `None` for other allocators.
    pub(super) addresses: Option<Arc<Addresses>>,
    /// What threads left to other threads.
    pub(super) batches: TransferCache,
    pub(crate) awaiting: BTreeMap<BlockRef, Awaiting>,
    /// Pieces in use, cached or pending free, without requested bytes. The peaks come from here
    /// when several threads have allocated, because no thread's counters see the whole; they are
    /// too high by the cached pieces at most.
    pub(crate) out: PoolCounters<2>,
    pub(crate) awaiting_sums: PoolCounters<3>,
    /// The number of pieces that the heaps took back.
    pub(crate) frees: u64,
    pub(crate) splits: InactiveSplits,
    /// Bytes of pieces that count in another pool than their arena, by the pool they count in.
    pub(crate) lent: PooledStat,
    /// The peak of bytes and the number of threads that the bound of the caches was set for.
    pub(super) caches_bound_for: (u64, u64),
    /// The value of `frees` from which thread caches that were closed may open again.
    pub(crate) opens_from: u64,
    /// Private pools without users that still have a heap, in the order of the next looks.
    pub(super) left_pools: VecDeque<PoolId>,
    /// True while a thread maps, moves or gives back pages or areas without the lock.
    pub(crate) is_mapping: bool,
    /// The lists of the last thread that mapped pages, while none does.
    pub(super) page_lists: Option<Box<PageLists>>,
}

/// A pending free of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaiting {
    pub(super) counted: BlockSize,
    /// The last task of the heap's stream that uses the piece, as the heap counts it.
    pub(super) busy_until: u64,
}

impl Awaiting {
    pub(crate) fn bytes(&self) -> usize {
        self.counted.bytes
    }

    pub(crate) fn requested_bytes(&self) -> usize {
        self.counted.requested_bytes
    }
}

impl Native {
    /// Creates an empty state. `page_bytes` is the size of the device's pages; `None` without
    /// virtual memory. `is_heap` is true for the host heap, whose pieces are found by address.
    pub(crate) fn new(page_bytes: Option<usize>, is_heap: bool) -> Self {
        let granularity = if is_heap { Granularity::HEAP } else { Granularity::DEVICE };
        Self {
            sizes: Sizes::new(page_bytes, granularity),
            addresses: is_heap.then(|| Arc::new(Addresses::new())),
            blocks: Blocks::default(),
            areas: Areas::default(),
            heaps: Heaps::default(),
            slabs: Slabs::default(),
            free: FreeBlocks::default(),
            live: Arc::default(),
            batches: TransferCache::default(),
            awaiting: BTreeMap::new(),
            out: PoolCounters::default(),
            awaiting_sums: PoolCounters::default(),
            splits: InactiveSplits::default(),
            frees: 0,
            lent: PooledStat::default(),
            caches_bound_for: (0, 0),
            opens_from: 0,
            left_pools: VecDeque::new(),
            is_mapping: false,
            page_lists: None,
        }
    }

    /// Returns the block that `plan` needs: its own, or that of a new slab.
    pub(super) fn want(&mut self, plan: &NativePlan) -> BlockRequest {
        plan.want_of(self.heaps.of(plan.owner))
    }

    /// Takes the first free block of a slab that has one.
    pub(super) fn take_of_slab(&mut self, id: SlabId) -> BlockRef {
        let slab = &mut self.slabs[id];
        let free_before = slab.free;
        let slot = slab.take_first();
        self.splits.count(SLABS.class(), slab.change_since(free_before));
        if slab.free == 0 {
            let first = &mut self.heaps[slab.heap].slabs[slab.class.number()];
            self.slabs.unlink(id, first);
        }
        BlockRef::small(id, slot)
    }

    /// Takes at most `count` free small blocks from the heap's slabs, for a thread cache.
    pub(super) fn take_stock(
        &mut self,
        heap: HeapId,
        class: SizeClass,
        count: usize,
        mut put: impl FnMut(CachedBlock),
    ) {
        let Heap { earlier_tasks, .. } = self.heaps[heap];
        let bytes = class.bytes();
        let mut left = count;
        while left > 0
            && let Some(id) = self.heaps[heap].slabs[class.number()]
        {
            let slab = &mut self.slabs[id];
            let free_before = slab.free;
            let busy_until = slab.busy_until.saturating_sub(earlier_tasks);
            let marks = self.live.marks_of(id);
            while left > 0 && slab.free != 0 {
                let slot = slab.take_first();
                let handle = Untagged::of_mark(marks.of(slot));
                put(CachedBlock::new(handle, slab.address_of(slot), busy_until));
                left -= 1;
            }
            self.splits.count(SLABS.class(), slab.change_since(free_before));
            if slab.free == 0 {
                self.slabs.unlink(id, &mut self.heaps[heap].slabs[class.number()]);
            }
        }
        self.out.leave(Sizes::class(bytes), [count - left, (count - left) * bytes]);
    }

    /// Makes a block in use a slab, and lists the slab in `heap`.
    pub(super) fn add_slab(&mut self, block: BlockId, heap: HeapId, class: SizeClass) -> SlabId {
        let record = &self.blocks[block];
        let area = &self.areas[record.area];
        let (address, bytes) = (area.address_of(record), area.bytes_of(record.units));
        let mut slab = Slab::new(block, heap, class, address);
        slab.busy_until = record.busy_until();
        let id = self.slabs.insert(slab);
        if let Some(addresses) = &self.addresses {
            addresses.set_slab(address, bytes, Some((id, class)));
        }
        self.blocks[block].become_slab(id);
        self.live.know_slab(id.place());
        self.slabs.link(id, &mut self.heaps[heap].slabs[class.number()]);
        self.splits.count(SLABS.class(), self.slabs[id].change_since(0));
        id
    }

    /// Frees the small blocks of the mask `small`, and the whole slab when it is unused then.
    fn release_small(&mut self, id: SlabId, small: u64, busy_until: u64) {
        let slab = &mut self.slabs[id];
        let free_before = slab.free;
        slab.busy_until = slab.busy_until.max(busy_until);
        slab.free |= small;
        if slab.is_unused() {
            slab.free = free_before;
            return self.release_slab(id);
        }
        self.splits.count(SLABS.class(), slab.change_since(free_before));
        if free_before == 0 {
            let first = &mut self.heaps[slab.heap].slabs[slab.class.number()];
            self.slabs.link(id, first);
        }
    }

    /// Removes a slab without blocks in use, and frees its block.
    fn release_slab(&mut self, id: SlabId) {
        let slab = &mut self.slabs[id];
        let free = std::mem::take(&mut slab.free);
        self.splits.count(SLABS.class(), slab.change_since(free));
        if free != 0 {
            let first = &mut self.heaps[slab.heap].slabs[slab.class.number()];
            self.slabs.unlink(id, first);
        }
        let Slab { block, busy_until, address, .. } = self.slabs.remove(id);
        if let Some(addresses) = &self.addresses {
            let record = &self.blocks[block];
            addresses.set_slab(address, self.areas[record.area].bytes_of(record.units), None);
        }
        self.release_block(block, busy_until);
    }

    /// Frees a piece of `bytes` bytes; see [`Self::release_block`].
    #[inline(always)]
    pub(super) fn release(&mut self, part: Part, bytes: usize, busy_until: u64) {
        self.out.come_back(Sizes::class(bytes), [1, bytes]);
        self.frees += 1;
        match part {
            Part::Block(id) => self.release_whole(id, bytes, busy_until),
            Part::Small(slab, slot) => self.release_small(slab, 1 << slot, busy_until),
        }
    }

    #[inline(always)]
    fn release_whole(&mut self, id: BlockId, bytes: usize, busy_until: u64) {
        if self.addresses.is_some() {
            self.forget_address(id);
        }
        debug_assert_eq!(self.extent(BlockRef::block(id)).bytes, bytes);
        let class = Sizes::class(bytes);
        if self.release_block(id, busy_until) != class {
            self.lent.of_mut(class).decrease(bytes as u64);
        }
    }

    #[inline(never)]
    fn forget_address(&self, id: BlockId) {
        let block = &self.blocks[id];
        let address = self.areas[block.area].address_of(block);
        if let Some(addresses) = &self.addresses {
            addresses.set(to_usize(address), None);
        }
    }

    /// Frees a cached piece. `returns` collects small blocks of one slab until a piece of another
    /// slab comes; after the last piece the caller passes it to [`Self::end_returns`].
    pub(super) fn release_cached(&mut self, block: &Allocated, returns: &mut Returns) {
        let (part, busy_until) = self.part_of_cached(block);
        match part {
            Part::Small(slab, slot) => {
                if returns.slab != Some(slab) {
                    self.end_returns(std::mem::take(returns));
                }
                returns.slab = Some(slab);
                returns.small |= 1 << slot;
                returns.busy_until = returns.busy_until.max(busy_until);
            }
            Part::Block(_) => self.release(part, block.bytes(), busy_until),
        }
    }

    /// Frees a piece that waited for the lock.
    #[inline(never)]
    pub(super) fn release_left(&mut self, block: &Allocated) {
        let (part, busy_until) = self.part_of_cached(block);
        self.release(part, block.bytes(), busy_until);
    }

    /// The part of a piece that a thread had, and the heap's count of its last use.
    #[inline(always)]
    fn part_of_cached(&self, block: &Allocated) -> (Part, u64) {
        let piece = block.handle().mark().and_then(|mark| self.live.piece(mark));
        let part = piece.expect("a thread keeps what it had from here").part();
        let busy_until = match block.busy_until() {
            0 => 0,
            ticket => self.count_of(part, block.stream(), ticket),
        };
        (part, busy_until)
    }

    /// Frees the collected small blocks.
    pub(super) fn end_returns(&mut self, Returns { slab, small, busy_until }: Returns) {
        let Some(id) = slab else { return };
        let (count, bytes) = (small.count_ones() as usize, self.slabs[id].class.bytes());
        self.out.come_back(Sizes::class(bytes), [count, count * bytes]);
        self.frees += count as u64;
        self.release_small(id, small, busy_until);
    }

    /// Returns the heap's count for `ticket`; 0 when the heap was passed on to another stream,
    /// because then the tasks of `stream` are done.
    fn count_of(&self, part: Part, stream: u64, ticket: u64) -> u64 {
        let heap = &self.heaps[self.heap_of(part)];
        if heap.owner.stream == stream { heap.count_of(ticket) } else { 0 }
    }

    #[inline(always)]
    pub(super) fn extent(&self, piece: BlockRef) -> Extent {
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

    /// Where a piece is, and of which heap.
    pub(super) fn place_of(&self, piece: BlockRef) -> Place {
        let Extent { address, bytes, heap, .. } = self.extent(piece);
        let Owner { stream, pool } = self.heaps[heap].owner;
        Place { address, bytes, stream, pool }
    }

    #[inline]
    pub(super) fn heap_of(&self, part: Part) -> HeapId {
        match part {
            Part::Block(id) => self.heap_of_block(id),
            Part::Small(slab, _) => self.slabs[slab].heap,
        }
    }

    /// Returns the piece at the address: a block that is not free, or any small block, free or not.
    pub(super) fn piece_at(&self, address: u64) -> Option<BlockRef> {
        let area = &self.areas[self.areas.containing(address)?];
        let id = area.block_at(address, &self.blocks);
        let block = &self.blocks[id];
        match (block.state, block.slab()) {
            (State::Free | State::Bare, _) => None,
            (_, Some(slab)) => Some(BlockRef::small(slab, self.slabs[slab].slot_at(address)?)),
            _ => Some(BlockRef::block(id)),
        }
    }

    /// True for an address in an area, in use or not.
    #[cfg(not(loom))]
    pub(super) fn has_memory_at(&self, address: u64) -> bool {
        self.areas.containing(address).is_some()
    }

    /// Returns the stream with a key, if it still exists and a heap knows it.
    pub(super) fn known_stream(&self, key: u64) -> Option<&KnownStream> {
        self.heaps.known_stream(key)
    }

    /// The pages that the kept lists have room for.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn kept_page_room(&self) -> usize {
        self.page_lists.as_ref().map_or(0, |lists| lists.targets.capacity())
    }

    /// Returns the number of heaps, and of areas.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn count_heaps_and_areas(&self) -> (usize, usize) {
        (self.heaps.iter().count(), self.areas.iter().count())
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn count_told_ends(&self) -> usize {
        self.heaps.count_told_ends()
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn count_owners(&self) -> usize {
        self.heaps.count_owners()
    }

    /// True when memory that the heap's stream uses up to `count` may serve a stream whose frontier
    /// is `before`: the task is done, or ordered before that stream's next task.
    pub(super) fn is_ready(&self, heap: HeapId, count: u64, before: Option<&Frontier>) -> bool {
        let is_ordered = || {
            let point = self.heaps[heap].point(count);
            before.zip(point).is_some_and(|(before, point)| before.dominates(&point))
        };
        !self.heaps[heap].is_using(count) || is_ordered()
    }
}

/// Cached small blocks of one slab, to be freed in one step.
#[derive(Debug, Default)]
#[must_use = "they are not back yet"]
pub(super) struct Returns {
    slab: Option<SlabId>,
    small: u64,
    busy_until: u64,
}

/// A piece's place, and the last use of its earlier lives, as the heap counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) heap: HeapId,
    pub(super) kind: Kind,
    pub(super) busy_until: u64,
}

/// The kind of arena that contains all slabs.
const SLABS: Kind = Kind::Middle;

/// Converts bytes, a multiple of the unit, into units.
pub(super) fn units_of(bytes: usize, unit_bytes: usize) -> u32 {
    debug_assert!(bytes.is_multiple_of(unit_bytes), "{bytes} in units of {unit_bytes}");
    // Units are powers of two.
    u32::try_from(bytes >> unit_bytes.trailing_zeros()).expect("checked when it was planned")
}
