//! Slabs: blocks that are split into small blocks of one size, and the size classes.

use crate::base::size::KIB;
use crate::base::table::Table;
use crate::memory::allocator::ids::{BlockId, HeapId, SlabId, SlabKey};
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

pub(super) type Slabs = Table<Slab, SlabKey>;

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

/// The units of sizes and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granularity {
    /// The unit of small blocks, which share slabs.
    pub(super) small_bytes: usize,
    /// The unit of all other blocks, and of slabs.
    pub(super) block_bytes: usize,
}

impl Granularity {
    pub(super) const DEVICE: Self = Self { small_bytes: 512, block_bytes: 512 };
    /// The host heap's: cache lines, and the pages of its address table.
    pub(super) const HEAP: Self = Self { small_bytes: 64, block_bytes: HEAP_PAGE_BYTES };

    /// The size up to which each multiple of the small unit is a class.
    #[inline(always)]
    pub(super) const fn even_steps_bytes(self) -> usize {
        16 * self.small_bytes
    }
}

const HEAP_SHIFT: u8 = 6;
/// See [`Granularity::HEAP`].
pub(super) const HEAP_PAGE_BYTES: usize = 4 * KIB;
/// The largest request that a slab serves.
pub(super) const MOST_SMALL_BYTES: usize = 32 * KIB;
/// The number of classes at the smallest unit: its first sixteen multiples, then eight steps per
/// power of two.
pub(super) const CLASS_COUNT: usize = 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeClass {
    number: u8,
    /// The exponent of the small unit.
    shift: u8,
}

impl SizeClass {
    /// The class of a request of 1 to [`MOST_SMALL_BYTES`] bytes.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a number below 56, an exponent")]
    pub(super) fn of(bytes: usize, granularity: Granularity) -> Self {
        debug_assert!(bytes > 0 && bytes <= MOST_SMALL_BYTES, "{bytes}");
        let shift = granularity.small_bytes.trailing_zeros();
        let last = (bytes - 1) >> shift; // of steps, from 0
        let doublings = (last | 8).ilog2() - 3; // none below eight steps
        let number = 8 * doublings as usize + (last >> doublings);
        Self { number: number as u8, shift: shift as u8 }
    }

    /// The host heap's class with a number.
    #[inline]
    pub(super) fn of_heap(number: u8) -> Self {
        Self { number, shift: HEAP_SHIFT }
    }

    /// The mask that rounds up a larger request's last offset to its class, by the offset's highest
    /// bit.
    #[inline]
    pub(super) const fn step_mask(highest_bit: u32) -> usize {
        (1 << (highest_bit - 3)) - 1 // eight steps from one power of two to the next
    }

    pub(super) fn number(self) -> usize {
        self.number as usize
    }

    /// The size of its blocks.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        let (octave, step) = (self.number / 8, self.number as usize % 8);
        if octave == 0 { (step + 1) << self.shift } else { (step + 9) << (self.shift + octave - 1) }
    }

    /// The number of blocks of a slab: about 64 KiB of them, at least 8, at most 64, and whole
    /// units together.
    pub(super) fn slab_blocks(self) -> u32 {
        let count = (64 * KIB / self.bytes()).clamp(8, 64);
        let block_bytes = if self.shift == HEAP_SHIFT { HEAP_PAGE_BYTES } else { 1 };
        let parts = block_bytes >> self.bytes().trailing_zeros().min(block_bytes.trailing_zeros());
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let count = count.next_multiple_of(parts) as u32;
        count
    }

    pub(super) fn slab_bytes(self) -> usize {
        self.bytes() * self.slab_blocks() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_serve_and_waste_an_eighth_at_most() {
        for (granularity, count) in [(Granularity::DEVICE, 32), (Granularity::HEAP, CLASS_COUNT)] {
            let step_bytes = granularity.small_bytes;
            let mut before = None;
            for bytes in 1..=MOST_SMALL_BYTES {
                let class = SizeClass::of(bytes, granularity);
                let size = class.bytes();
                assert!(size >= bytes && size.is_multiple_of(step_bytes), "{bytes} in {size}");
                let last = bytes - 1;
                let is_even = bytes <= granularity.even_steps_bytes();
                let mask =
                    if is_even { step_bytes - 1 } else { SizeClass::step_mask(last.ilog2()) };
                assert_eq!(size, (last | mask) + 1, "{bytes}");
                let is_fine = bytes <= 8 * step_bytes;
                assert!(is_fine || (size - bytes) * 8 <= bytes, "{bytes} in {size}");
                assert!(!is_fine || size - bytes < step_bytes, "{bytes} in {size}");
                assert!(before.is_none_or(|before| class.number() - before <= 1), "{bytes}");
                before = Some(class.number());
            }
            assert_eq!(before, Some(count - 1));
        }
        let class = SizeClass::of(5000, Granularity::HEAP);
        assert_eq!(SizeClass::of_heap(class.number), class);
    }

    #[test]
    fn slabs_have_at_most_64_blocks_and_at_least_8() {
        let least = SizeClass::of(1, Granularity::DEVICE);
        assert_eq!((least.slab_blocks(), least.slab_bytes()), (64, 32 * KIB));
        for number in 0..u8::try_from(CLASS_COUNT).unwrap() {
            let class = SizeClass::of_heap(number);
            assert!((8..=64).contains(&class.slab_blocks()), "{number}");
            assert!(class.slab_bytes().is_multiple_of(HEAP_PAGE_BYTES), "{number}");
        }
        let most = SizeClass::of(MOST_SMALL_BYTES, Granularity::DEVICE);
        assert_eq!(most.slab_bytes(), 256 * KIB);
    }
}
