//! Sizes of small objects: steps of 64 bytes up to a kibibyte, then four between powers of two.

use crate::base::size::{KIB, MIB};

/// What every object's size and address is a multiple of: a cache line.
pub(super) const ALIGN_BYTES: usize = 64;
/// What slabs and large blocks are a multiple of, and owners are known by.
pub(super) const PAGE_BYTES: usize = 4 * KIB;
/// The largest object that shares a slab.
pub(super) const MOST_SMALL_BYTES: usize = 32 * KIB;
/// How many sizes there are.
pub(super) const CLASS_COUNT: usize = FINE_COUNT + 20;

/// The classes that are one step of 64 bytes apart.
const FINE_COUNT: usize = 16;
const MOST_FINE_BYTES: usize = FINE_COUNT * ALIGN_BYTES;
/// What a slab has at least.
const LEAST_SLAB_BYTES: usize = 64 * KIB;
/// How many objects a slab has at least.
const LEAST_SLAB_COUNT: usize = 8;
/// What one thread keeps of a class at most, unless two objects are more.
const MOST_KEPT_BYTES: usize = 32 * KIB;
/// How many objects of a class it keeps at most.
pub(super) const MOST_KEPT_COUNT: usize = 64;

/// The largest block of its own that a thread keeps, and how many bytes of such it keeps at most.
pub(super) const MOST_SPARE_BYTES: usize = 8 * MIB;
pub(super) const ALL_SPARES_BYTES: usize = 16 * MIB;

/// The class of a size up to [`MOST_SMALL_BYTES`]; no bytes get the least object.
#[inline]
pub(super) fn class_of(bytes: usize) -> usize {
    let last = bytes.saturating_sub(1);
    if bytes <= MOST_FINE_BYTES {
        return last / ALIGN_BYTES;
    }
    let power = last.ilog2() as usize;
    let quarter = (last >> (power - 2)) & 3;
    FINE_COUNT + (power - 10) * 4 + quarter
}

/// The size of the objects of a class.
#[inline]
pub(super) fn object_bytes(class: usize) -> usize {
    if class < FINE_COUNT {
        return (class + 1) * ALIGN_BYTES;
    }
    let (power, quarter) = (10 + (class - FINE_COUNT) / 4, (class - FINE_COUNT) % 4);
    (1 << power) + ((quarter + 1) << (power - 2))
}

/// The size of a slab of a class.
pub(super) fn slab_bytes(class: usize) -> usize {
    (object_bytes(class) * LEAST_SLAB_COUNT).max(LEAST_SLAB_BYTES).next_multiple_of(PAGE_BYTES)
}

/// How many objects of a class one thread keeps at most.
#[inline]
pub(super) fn most_kept(class: usize) -> usize {
    (MOST_KEPT_BYTES / object_bytes(class)).clamp(2, MOST_KEPT_COUNT)
}

#[cfg(test)]
mod tests {
    //! Goal: every size has the smallest class that holds it. Method: all sizes.

    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        assert_eq!(class_of(0), 0);
        for bytes in 1..=MOST_SMALL_BYTES {
            let class = class_of(bytes);
            assert!(object_bytes(class) >= bytes, "{bytes}");
            assert!(class == 0 || object_bytes(class - 1) < bytes, "{bytes}");
            assert_eq!(object_bytes(class) % ALIGN_BYTES, 0, "{bytes}");
        }
        assert_eq!(class_of(MOST_SMALL_BYTES), CLASS_COUNT - 1);
    }

    #[test]
    fn slabs_are_whole_pages_and_their_objects_have_numbers_of_16_bits() {
        for class in 0..CLASS_COUNT {
            let count = slab_bytes(class) / object_bytes(class);
            assert!((LEAST_SLAB_COUNT..=1024).contains(&count), "{class}");
            assert!(slab_bytes(class).is_multiple_of(PAGE_BYTES));
            assert!(most_kept(class) >= 2);
        }
    }
}
