//! What the native policy knows, and how pieces change hands. All of it under the allocator's lock.
//!
//! A request goes to the heap of its stream and pool. Small ones are served from slabs, middle ones
//! from an arena whose blocks share pages, large ones from an arena of whole pages. A free piece
//! joins its neighbours at once. Pages stay behind free blocks until others need them (`growth`).
//!
//! Equations: the blocks of an area tile it; a block is listed in an index of its arena exactly
//! while it is free; a slab is listed in its heap exactly while it has a free small block; a page
//! is idle exactly while one free block with memory covers it. `invariants` checks them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::size::to_usize;
use crate::engine::frontier::Frontier;
use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::native::addresses::Addresses;
use crate::memory::allocator::native::amounts::Amounts;
use crate::memory::allocator::native::area::Areas;
use crate::memory::allocator::native::block::{BlockId, Blocks, State};
use crate::memory::allocator::native::cell::Counted;
use crate::memory::allocator::native::free_blocks::FreeBlocks;
use crate::memory::allocator::native::handle::Handle;
use crate::memory::allocator::native::heap::{Heap, HeapId, Heaps, Kind};
use crate::memory::allocator::native::marks::Marks;
use crate::memory::allocator::native::piece::{Part, Piece};
use crate::memory::allocator::native::plan::{NativePlan, Sizes};
use crate::memory::allocator::native::size_class::{Granularity, SizeClass};
use crate::memory::allocator::native::slab::{Slab, SlabId, Slabs};
use crate::memory::allocator::native::split::Splits;
use crate::memory::allocator::native::want::{Found, Want};
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::stats::PooledStat;

/// What the native policy of one allocator knows. See the head of this file.
#[derive(Debug)]
pub(in crate::memory::allocator) struct Native {
    pub(super) sizes: Sizes,
    pub(super) blocks: Blocks,
    pub(super) areas: Areas,
    pub(super) heaps: Heaps,
    pub(super) slabs: Slabs,
    pub(super) free: FreeBlocks,
    pub(super) live: Arc<Marks>,
    /// What is at which address, of a heap.
    pub(super) addresses: Option<Arc<Addresses>>,
    pub(in crate::memory::allocator) awaiting: BTreeMap<Piece, Awaiting>,
    /// What is with programs, in threads' caches, or awaits its free. What programs have is never
    /// more, and less at most by what caches keep: from here come the peaks when several threads
    /// have allocated, none of which sees the whole. What was asked for is not counted here.
    pub(in crate::memory::allocator) out: Amounts,
    pub(in crate::memory::allocator) awaiting_sums: Amounts,
    /// How often a piece became free.
    pub(in crate::memory::allocator) frees: u64,
    pub(in crate::memory::allocator) splits: Splits,
    /// Bytes that are out and count as of the other pool than their arena, by the former.
    pub(in crate::memory::allocator) lent: PooledStat,
    /// The peak of bytes, and the threads, for which it is set what caches may keep.
    pub(super) caches_bound_for: (u64, u64),
    /// How many frees there are when threads may keep things again, after memory was short.
    pub(in crate::memory::allocator) opens_from: u64,
    /// Private pools whose last user went before their last block: no request names them any more.
    /// In the order in which they are looked at next.
    pub(super) left_pools: VecDeque<PoolId>,
    /// True while a thread maps, moves or gives back pages, without the lock.
    pub(in crate::memory::allocator) is_mapping: bool,
}

/// A piece that was freed, while streams have not passed their last use of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory::allocator) struct Awaiting {
    pub(super) counted: Counted,
    /// The task, as its heap counts it, after which the heap's stream does not use it.
    pub(super) busy_until: u64,
}

impl Awaiting {
    pub(in crate::memory::allocator) fn bytes(&self) -> usize {
        self.counted.bytes
    }
}

impl Native {
    /// Knows nothing yet. `page_bytes` is the size of pages that are mapped one by one. A heap's
    /// pieces are found by their addresses alone.
    pub(in crate::memory::allocator) fn new(page_bytes: Option<usize>, is_heap: bool) -> Self {
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
            awaiting: BTreeMap::new(),
            out: Amounts::default(),
            awaiting_sums: Amounts::default(),
            splits: Splits::default(),
            frees: 0,
            lent: PooledStat::default(),
            caches_bound_for: (0, 0),
            opens_from: 0,
            left_pools: VecDeque::new(),
            is_mapping: false,
        }
    }

    /// The block that a plan wants: its own, or that of a new slab.
    pub(super) fn want(&mut self, plan: &NativePlan) -> Want {
        plan.want_of(self.heaps.of(plan.owner))
    }

    /// The heap that a place is of.
    pub(super) fn heap_of_found(&self, found: &Found) -> HeapId {
        self.areas[self.blocks[found.id].area].heap
    }

    /// A free small block of a heap's slabs, taken.
    pub(super) fn take_small(&mut self, heap: HeapId, class: SizeClass) -> Option<Piece> {
        let id = self.heaps[heap].slabs[class.number()]?;
        Some(self.take_of_slab(id))
    }

    /// The first free block of a slab that has one, taken.
    pub(super) fn take_of_slab(&mut self, id: SlabId) -> Piece {
        let slab = &mut self.slabs[id];
        let slot = slab.take_first();
        if slab.free == 0 {
            let first = &mut self.heaps[slab.heap].slabs[slab.class.number()];
            self.slabs.unlink(id, first);
        }
        self.splits.moved -= self.change_of_small(id, 1 << slot);
        self.splits.count_moved(SLABS.class());
        Piece::small(id, slot)
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
            let taken = free_before & !slab.free;
            if slab.free == 0 {
                self.slabs.unlink(id, &mut self.heaps[heap].slabs[class.number()]);
            }
            self.splits.moved -= self.change_of_small(id, taken);
            self.splits.count_moved(SLABS.class());
        }
        self.out.leave_several(Sizes::class(bytes), count - left, bytes);
    }

    /// Makes a slab of a block.
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
        self.splits.moved += self.change_of_small(id, self.slabs[id].free);
        self.splits.count_moved(SLABS.class());
        id
    }

    fn release_small(&mut self, id: SlabId, slot: u8, busy_until: u64) {
        let slab = &mut self.slabs[id];
        let first = &mut self.heaps[slab.heap].slabs[slab.class.number()];
        let free_before = slab.free;
        slab.free |= 1 << slot;
        slab.busy_until = slab.busy_until.max(busy_until);
        if !slab.is_unused() {
            if free_before == 0 {
                self.slabs.link(id, first);
            }
            self.splits.moved += self.change_of_small(id, 1 << slot);
            self.splits.count_moved(SLABS.class());
            return;
        }
        slab.free = 0; // from here on its block is what is free
        if free_before != 0 {
            self.slabs.unlink(id, first);
        }
        self.splits.moved -= self.change_of_small(id, free_before);
        self.splits.count_moved(SLABS.class());
        let Slab { block, busy_until, address, .. } = self.slabs.remove(id);
        if let Some(addresses) = &self.addresses {
            let record = &self.blocks[block];
            addresses.set_slab(address, self.areas[record.area].bytes_of(record.units), None);
        }
        self.release_block(block, busy_until);
    }

    /// A piece of a size that is in use no more; see [`Self::release_block`].
    pub(super) fn release(&mut self, part: Part, bytes: usize, busy_until: u64) {
        let class = Sizes::class(bytes);
        self.out.come_back(class, bytes, 0);
        self.frees += 1;
        match part {
            Part::Block(id) => {
                let block = &self.blocks[id];
                let area = &self.areas[block.area];
                debug_assert_eq!(area.bytes_of(block.units), bytes);
                if class != area.kind.class() {
                    self.lent.decrease(class, bytes);
                }
                if let Some(addresses) = &self.addresses {
                    addresses.set(to_usize(area.address_of(block)), None);
                }
                self.release_block(id, busy_until);
            }
            Part::Small(slab, slot) => self.release_small(slab, slot, busy_until),
        }
    }

    /// A piece that a thread has kept.
    pub(super) fn release_cached(&mut self, block: &Allocated) {
        let piece = block.handle().mark().and_then(|mark| self.live.piece(mark));
        let piece = piece.expect("a thread keeps what it had from here");
        let part = piece.part();
        let heap = &self.heaps[self.heap_of(part)];
        // A heap goes on to another stream when the tasks of the one before are done.
        let is_its_own = heap.owner.stream == block.stream();
        let busy_until = if is_its_own { heap.count_of(block.busy_until()) } else { 0 };
        self.release(part, block.bytes(), busy_until);
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

    /// The heap that a piece is of.
    #[inline]
    pub(super) fn heap_of(&self, part: Part) -> HeapId {
        match part {
            Part::Block(id) => self.heap_of_block(id),
            Part::Small(slab, _) => self.slabs[slab].heap,
        }
    }

    /// The piece that an address is in, in use or cached.
    pub(super) fn piece_at(&self, address: u64) -> Option<Piece> {
        let area = &self.areas[self.areas.containing(address)?];
        let id = area.block_at(address, &self.blocks);
        let block = &self.blocks[id];
        match (block.state, block.slab()) {
            (State::Free | State::Bare, _) => None,
            (_, Some(slab)) => Some(Piece::small(slab, self.slabs[slab].slot_at(address)?)),
            _ => Some(Piece::block(id)),
        }
    }

    /// True for an address in memory that it has, in use or not.
    #[cfg(not(loom))]
    pub(super) fn has_memory_at(&self, address: u64) -> bool {
        self.areas.containing(address).is_some()
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

    /// Of how many heaps it was told, and not heard yet, that their stream is gone.
    #[cfg(all(test, not(loom)))]
    pub(in crate::memory::allocator) fn count_told_ends(&self) -> usize {
        self.heaps.count_told_ends()
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
