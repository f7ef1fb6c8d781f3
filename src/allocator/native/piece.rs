//! What is handed out: a block of its own, or a small block of a slab.

use crate::allocator::native::block::BlockId;
use crate::allocator::native::slab::SlabId;

/// The name of what was handed out, in one word: it goes through caches and back without being
/// looked into. Never zero, and bit 62 is left to whoever keeps names of other things beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::allocator) struct Piece(u64);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Block(BlockId),
    Small(SlabId, u8),
}

/// Set in the names of small blocks.
const SMALL: u64 = 1 << 63;

impl Piece {
    pub(super) fn block(id: BlockId) -> Self {
        Self(u64::from(id.number()))
    }

    pub(super) fn small(slab: SlabId, slot: u8) -> Self {
        Self(SMALL | u64::from(slab.number()) << 8 | u64::from(slot))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "32 bits, and 8 below them")]
    pub(super) fn part(self) -> Part {
        let Self(bits) = self;
        if bits & SMALL == 0 {
            Part::Block(BlockId::from_number(bits as u32))
        } else {
            Part::Small(SlabId::from_number((bits >> 8) as u32), bits as u8)
        }
    }

    #[inline]
    pub(in crate::allocator) fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`Piece::to_bits`] gave.
    #[inline]
    pub(in crate::allocator) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}
