//! Pieces: what engine `native` hands out, a block or a small block of a slab.

use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::chunks::{GROUP, Place};
use crate::memory::allocator::native::slab::SlabId;

/// A piece's number in one word. The marks of adjacent pieces are at least 64 places apart, and so
/// are those of equal slots in adjacent slabs, so that marks that two threads write are on
/// different cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::memory::allocator) struct Piece(u64);

/// The block of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Block(BlockId),
    Small(SlabId, u8),
}

/// A piece that was taken for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) piece: Piece,
    /// True when it is of the request's heap, and of the planned arena and size there.
    pub(super) is_as_planned: bool,
}

/// Set for small blocks.
const SMALL: u64 = 1 << 63;
/// The distance between equal slots of adjacent slabs, in steps of 64 places: the first slots,
/// which are used most, share no cache line within several slabs.
const SLAB_STRIDE: u64 = 39;

/// Spreads numbers: adjacent ones, and those 64 apart (equal slots of two slabs), are at least 64
/// places apart.
fn spread(number: u64) -> u64 {
    let (slot, slab) = (number & 0x3F, (number >> 6) & 0x3F);
    number & !0xFFF | ((slot + SLAB_STRIDE * slab) & 0x3F) << 6 | slab
}

/// The inverse of [`spread`].
fn unspread(place: u64) -> u64 {
    let (line, slab) = ((place >> 6) & 0x3F, place & 0x3F);
    place & !0xFFF | slab << 6 | line.wrapping_sub(SLAB_STRIDE * slab) & 0x3F
}

impl Piece {
    pub(super) fn block(id: BlockId) -> Self {
        Self(u64::from(id.number()))
    }

    pub(super) fn small(slab: SlabId, slot: u8) -> Self {
        debug_assert!(slot < 64, "a slab has 64 blocks at most: {slot}");
        Self(SMALL | u64::from(slab.number()) << 6 | u64::from(slot))
    }

    /// The first index of the group that contains the marks of a slab's small blocks.
    #[inline]
    pub(super) fn first_of_group(slab: SlabId) -> u64 {
        (u64::from(slab.number()) << 6) & !(GROUP as u64 - 1)
    }

    /// The position of a small block's mark in that group.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "below the length of a group")]
    pub(super) fn place_in_group(slab: SlabId, slot: u8) -> usize {
        spread(u64::from(slab.number()) << 6 | u64::from(slot)) as usize % GROUP
    }

    #[expect(clippy::cast_possible_truncation, reason = "32 bits, and six below them")]
    pub(super) fn part(self) -> Part {
        if self.is_small() {
            Part::Small(SlabId::from_number((self.0 >> 6) as u32), self.0 as u8 & 0x3F)
        } else {
            Part::Block(BlockId::from_number(self.0 as u32))
        }
    }

    #[inline]
    pub(super) fn is_small(self) -> bool {
        self.0 & SMALL != 0
    }

    /// The place of the mark in the table of small blocks, or of blocks.
    #[inline]
    pub(super) fn place(self) -> Place {
        Place::of(spread(self.0 & !SMALL))
    }

    #[inline]
    pub(super) fn at(place: Place, is_small: bool) -> Self {
        Self(unspread(place.index()) | if is_small { SMALL } else { 0 })
    }
}

impl Taken {
    pub(super) fn as_planned(piece: Piece) -> Self {
        Self { piece, is_as_planned: true }
    }

    pub(super) fn other(piece: Piece) -> Self {
        Self { piece, is_as_planned: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stand_for_what_they_were_made_of_and_neighbours_are_apart() {
        let again = |piece: Piece| Piece::at(piece.place(), piece.is_small());
        for number in (1..10_000).chain([1 << 26, (1 << 27) - 65]) {
            let (block, slab) = (BlockId::from_number(number), SlabId::from_number(number));
            assert_eq!(Piece::block(block).part(), Part::Block(block));
            assert_eq!(again(Piece::block(block)), Piece::block(block));
            for slot in 0..64 {
                assert_eq!(Piece::small(slab, slot).part(), Part::Small(slab, slot));
                assert_eq!(again(Piece::small(slab, slot)), Piece::small(slab, slot));
            }
        }
        let last = BlockId::from_number(u32::MAX);
        assert_eq!(Piece::block(last).part(), Part::Block(last));
        let at = |slab: u32, slot| Piece::small(SlabId::from_number(slab), slot).place().index();
        for slab in 1..100 {
            assert!(at(slab, 4).abs_diff(at(slab, 5)) >= 64, "slots of {slab}");
            for other in 1..5 {
                assert!(at(slab, 4).abs_diff(at(slab + other, 4)) >= 64, "{slab} and {other} on");
            }
        }
    }
}
