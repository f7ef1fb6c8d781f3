//! Which sizes share a slab, and which requests go where.

use crate::base::size::{KIB, MIB};

/// Sizes and addresses of blocks are multiples of this.
pub(super) const UNIT_BYTES: usize = 512;
/// The largest request that is served from a slab.
pub(super) const MOST_SMALL_BYTES: usize = 32 * KIB;
/// Up to 4 KiB each multiple of a unit, then eight steps between powers of two.
pub(super) const CLASS_COUNT: usize = 32;

/// A size of small blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeClass(u8);

impl SizeClass {
    /// The class of a request of at most [`MOST_SMALL_BYTES`] and at least a byte.
    #[inline]
    pub(super) fn of(bytes: usize) -> Self {
        debug_assert!(bytes > 0 && bytes <= MOST_SMALL_BYTES, "{bytes}");
        let last = (bytes - 1) / UNIT_BYTES; // of units, from 0
        let doublings = (last | 8).ilog2() - 3; // none below eight units
        let number = 8 * doublings as usize + (last >> doublings);
        #[expect(clippy::cast_possible_truncation, reason = "below 32")]
        let number = number as u8;
        Self(number)
    }

    /// Up to this each multiple of a unit is the size of a class.
    pub(super) const UNIT_STEPS_BYTES: usize = 16 * UNIT_BYTES;

    /// The size of the class of a larger request, less one, has the bits of the last byte's offset,
    /// and these; by the highest bit of the former.
    #[inline]
    pub(super) const fn step_mask(highest_bit: u32) -> usize {
        (1 << (highest_bit - 3)) - 1 // eight steps from one power of two to the next
    }

    pub(super) fn number(self) -> usize {
        self.0 as usize
    }

    /// The size of its blocks.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        let number = self.0 as usize;
        let (octave, step) = (number / 8, number % 8);
        if octave == 0 {
            (step + 1) * UNIT_BYTES
        } else {
            ((step + 9) * UNIT_BYTES) << (octave - 1)
        }
    }

    /// Blocks of one slab: of 64 KiB where that is at least eight and at most as many as a word has
    /// bits.
    pub(super) fn slab_blocks(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let count = (64 * KIB / self.bytes()).clamp(8, 64) as u32;
        count
    }

    pub(super) fn slab_bytes(self) -> usize {
        self.bytes() * self.slab_blocks() as usize
    }
}

/// Requests above this have pages of their own.
pub(super) fn most_middle_bytes(page_bytes: usize) -> usize {
    (8 * page_bytes).max(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_serve_and_waste_an_eighth_at_most() {
        let mut before = None;
        for bytes in 1..=MOST_SMALL_BYTES {
            let class = SizeClass::of(bytes);
            let size = class.bytes();
            assert!(size >= bytes && size.is_multiple_of(UNIT_BYTES), "{bytes} in {size}");
            let last = bytes - 1;
            let is_unit = bytes <= SizeClass::UNIT_STEPS_BYTES;
            let mask = if is_unit { UNIT_BYTES - 1 } else { SizeClass::step_mask(last.ilog2()) };
            assert_eq!(size, (last | mask) + 1, "{bytes}");
            assert!(bytes <= 4 * KIB || (size - bytes) * 8 <= bytes, "{bytes} in {size}");
            assert!(bytes > 4 * KIB || size - bytes < UNIT_BYTES, "{bytes} in {size}");
            assert!(before.is_none_or(|before| class.number() - before <= 1), "{bytes}");
            before = Some(class.number());
        }
        assert_eq!(before, Some(CLASS_COUNT - 1));
    }

    #[test]
    fn slabs_have_at_most_64_blocks_and_at_least_8() {
        assert_eq!((SizeClass(0).slab_blocks(), SizeClass(0).slab_bytes()), (64, 32 * KIB));
        assert_eq!(SizeClass::of(MOST_SMALL_BYTES).slab_bytes(), 256 * KIB);
    }
}
