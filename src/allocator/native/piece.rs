//! What is handed out: a block of its own, or a small block of a slab.

use crate::allocator::native::block::BlockId;
use crate::allocator::native::slab::SlabId;

/// The name of what was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::allocator) enum Piece {
    Block(BlockId),
    Small(SlabId, u8),
}

/// Set in the numbers of small blocks.
const SMALL: u64 = 1 << 63;

impl Piece {
    /// Its name in 64 bits, for caches; never zero.
    #[inline]
    pub(super) fn to_bits(self) -> u64 {
        match self {
            Self::Block(id) => u64::from(id.number()),
            Self::Small(slab, slot) => SMALL | u64::from(slab.number()) << 8 | u64::from(slot),
        }
    }

    /// The piece of a name.
    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "32 bits, and 8 below them")]
        if bits & SMALL == 0 {
            Self::Block(BlockId::from_number(bits as u32))
        } else {
            Self::Small(SlabId::from_number((bits >> 8) as u32), bits as u8)
        }
    }
}
