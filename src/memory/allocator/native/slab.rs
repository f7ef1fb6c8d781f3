//! Slabs: blocks of an arena that are cut into small blocks of one size.

use crate::base::table::{Id, Table};
use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::heap::HeapId;
use crate::memory::allocator::native::size_class::SizeClass;

/// A slab's place in the table.
pub(in crate::memory::allocator) type SlabId = Id<Slab>;

/// At most 64 small blocks of one size, side by side.
///
/// A small block is free when its bit in `free` is set. Else a program has it, or a thread's cache,
/// or streams that have not passed their last use.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    /// What it was cut from.
    pub(super) block: BlockId,
    pub(super) heap: HeapId,
    pub(super) class: SizeClass,
    pub(super) address: u64,
    pub(super) free: u64,
    /// All bits that it has.
    every: u64,
    /// The task of its heap's stream after which nothing uses what was freed here.
    pub(super) busy_until: u64,
    /// Its neighbours in the list of slabs that have a free block.
    listed_before: Option<SlabId>,
    listed_behind: Option<SlabId>,
}

impl Slab {
    pub(super) fn new(block: BlockId, heap: HeapId, class: SizeClass, address: u64) -> Self {
        let every = u64::MAX >> (u64::BITS - class.slab_blocks());
        Self {
            block,
            heap,
            class,
            address,
            free: every,
            every,
            busy_until: 0,
            listed_before: None,
            listed_behind: None,
        }
    }

    /// How many small blocks it has.
    pub(super) fn blocks(&self) -> u32 {
        self.every.trailing_ones()
    }

    /// True when none of it is in use.
    pub(super) fn is_unused(&self) -> bool {
        self.free == self.every
    }

    /// The bit of its last block.
    pub(super) fn last_bit(&self) -> u64 {
        self.every & !(self.every >> 1)
    }

    pub(super) fn has_free_begin(&self) -> bool {
        self.free & 1 != 0
    }

    pub(super) fn has_free_end(&self) -> bool {
        self.free & self.last_bit() != 0
    }

    /// Takes the first of its free blocks, of which there is one.
    pub(super) fn take_first(&mut self) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "below 64")]
        let slot = self.free.trailing_zeros() as u8;
        self.free &= self.free - 1;
        slot
    }

    pub(super) fn address_of(&self, slot: u8) -> u64 {
        self.address + (self.class.bytes() * slot as usize) as u64
    }

    /// The small block that an address is in, unless it is behind the last.
    pub(super) fn slot_at(&self, address: u64) -> Option<u8> {
        let slot = (address - self.address) / self.class.bytes() as u64;
        u8::try_from(slot).ok().filter(|slot| u32::from(*slot) < self.blocks())
    }
}

/// All slabs of an allocator.
pub(super) type Slabs = Table<Slab>;

impl Slabs {
    /// Puts a slab in front of a list.
    pub(super) fn link(&mut self, id: SlabId, first: &mut Option<SlabId>) {
        let behind = first.replace(id);
        let slab = &mut self[id];
        (slab.listed_before, slab.listed_behind) = (None, behind);
        if let Some(behind) = behind {
            self[behind].listed_before = Some(id);
        }
    }

    /// Takes a slab out of its list.
    pub(super) fn unlink(&mut self, id: SlabId, first: &mut Option<SlabId>) {
        let slab = &self[id];
        let (before, behind) = (slab.listed_before, slab.listed_behind);
        if let Some(behind) = behind {
            self[behind].listed_before = before;
        }
        match before {
            Some(before) => self[before].listed_behind = behind,
            None => *first = behind,
        }
    }

    /// The slabs of a list.
    pub(super) fn list(&self, first: Option<SlabId>) -> impl Iterator<Item = SlabId> {
        std::iter::successors(first, |id| self[*id].listed_behind)
    }
}
