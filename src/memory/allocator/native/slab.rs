//! Slabs: blocks of an arena that are cut into small blocks of one size.

use std::num::NonZeroU32;

use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::heap::HeapId;
use crate::memory::allocator::native::size_class::SizeClass;

/// A slab's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::memory::allocator) struct SlabId(NonZeroU32);

impl SlabId {
    fn of_place(place: usize) -> Self {
        let number = u32::try_from(place + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("fewer than 2^32 slabs"))
    }

    /// Its number, from 0.
    pub(super) fn place(self) -> usize {
        self.0.get() as usize - 1
    }

    pub(super) fn number(self) -> u32 {
        self.0.get()
    }

    /// What [`SlabId::number`] was taken from.
    pub(super) fn from_number(number: u32) -> Self {
        Self(NonZeroU32::new(number).expect("a number of a slab"))
    }
}

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
    /// The task of its heap's stream after which nothing uses what was freed here.
    pub(super) busy_until: u64,
    /// Its neighbours in the list of slabs that have a free block.
    listed_before: Option<SlabId>,
    listed_behind: Option<SlabId>,
}

impl Slab {
    pub(super) fn new(block: BlockId, heap: HeapId, class: SizeClass, address: u64) -> Self {
        Self {
            block,
            heap,
            class,
            address,
            free: every_block(class),
            busy_until: 0,
            listed_before: None,
            listed_behind: None,
        }
    }

    /// True when nobody has any of it.
    pub(super) fn is_unused(&self) -> bool {
        self.free == every_block(self.class)
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
        u8::try_from(slot).ok().filter(|slot| u32::from(*slot) < self.class.slab_blocks())
    }
}

fn every_block(class: SizeClass) -> u64 {
    u64::MAX >> (u64::BITS - class.slab_blocks())
}

/// All slabs of an allocator. Places of slabs that are gone are used again.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    places: Vec<Option<Slab>>,
    vacant: Vec<SlabId>,
}

impl Slabs {
    pub(super) fn insert(&mut self, slab: Slab) -> SlabId {
        if let Some(id) = self.vacant.pop() {
            self.places[id.place()] = Some(slab);
            return id;
        }
        self.places.push(Some(slab));
        SlabId::of_place(self.places.len() - 1)
    }

    pub(super) fn remove(&mut self, id: SlabId) -> Slab {
        let slab = self.places[id.place()].take().expect("a slab that is there");
        self.vacant.push(id);
        slab
    }

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

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlabId, &Slab)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(place, slab)| Some((SlabId::of_place(place), slab.as_ref()?)))
    }
}

impl std::ops::Index<SlabId> for Slabs {
    type Output = Slab;

    fn index(&self, id: SlabId) -> &Slab {
        self.places[id.place()].as_ref().expect("a slab that is there")
    }
}

impl std::ops::IndexMut<SlabId> for Slabs {
    fn index_mut(&mut self, id: SlabId) -> &mut Slab {
        self.places[id.place()].as_mut().expect("a slab that is there")
    }
}
