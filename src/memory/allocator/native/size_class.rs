//! Size classes: the sizes of small blocks, and the limit up to which slabs serve requests.

use crate::base::size::KIB;

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
