//! Slabs: blocks of an arena that are split into small blocks of one size.

use crate::base::table::{Id, Table};
use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::heap::HeapId;
use crate::memory::allocator::native::size_class::SizeClass;

pub(in crate::memory::allocator) type SlabId = Id<Slab>;

/// At most 64 adjacent small blocks of one size. A set bit in `free` stands for a free one, a clear
/// bit for one in use, cached or pending free.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    /// The block that the slab divides.
    pub(super) block: BlockId,
    pub(super) heap: HeapId,
    pub(super) class: SizeClass,
    pub(super) address: u64,
    pub(super) free: u64,
    /// The bits of all small blocks.
    every: u64,
    /// The heap's count of the last task that uses memory freed in the slab.
    pub(super) busy_until: u64,
    /// The neighbours in the list of slabs with a free block.
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

    /// Returns the number of small blocks, free or not.
    pub(super) fn blocks(&self) -> u32 {
        self.every.trailing_ones()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.free == self.every
    }

    /// Takes the first free block. The slab must have one.
    pub(super) fn take_first(&mut self) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "below 64")]
        let slot = self.free.trailing_zeros() as u8;
        self.free &= self.free - 1;
        slot
    }

    pub(super) fn address_of(&self, slot: u8) -> u64 {
        self.address + (self.class.bytes() * slot as usize) as u64
    }

    /// Returns the slot at an address; `None` behind the last small block.
    pub(super) fn slot_at(&self, address: u64) -> Option<u8> {
        let slot = (address - self.address) / self.class.bytes() as u64;
        u8::try_from(slot).ok().filter(|slot| u32::from(*slot) < self.blocks())
    }
}

pub(super) type Slabs = Table<Slab>;

impl Slabs {
    /// Inserts a slab at the head of a list.
    pub(super) fn link(&mut self, id: SlabId, first: &mut Option<SlabId>) {
        let behind = first.replace(id);
        let slab = &mut self[id];
        (slab.listed_before, slab.listed_behind) = (None, behind);
        if let Some(behind) = behind {
            self[behind].listed_before = Some(id);
        }
    }

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

    pub(super) fn list(&self, first: Option<SlabId>) -> impl Iterator<Item = SlabId> {
        std::iter::successors(first, |id| self[*id].listed_behind)
    }
}
