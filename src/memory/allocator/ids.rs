//! Ids of the heaps' records, which name each other, and the two kinds of arenas.

use crate::base::table::Id;
use crate::memory::allocator::snapshot::PoolClass;
/// Stand for the records in their ids.
#[derive(Debug)]
pub(super) enum AreaKey {}
#[derive(Debug)]
pub(super) enum BlockKey {}
#[derive(Debug)]
pub(super) enum FreeKey {}
#[derive(Debug)]
pub(super) enum HeapKey {}
#[derive(Debug)]
pub(super) enum SlabKey {}

pub(super) type BlockId = Id<BlockKey>;
pub(super) type FreeId = Id<FreeKey>;
pub(super) type HeapId = Id<HeapKey>;
pub(super) type SlabId = Id<SlabKey>;

/// An area's place in the table, in three bytes, so that a block's record stays small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AreaId([u8; 3]);

impl AreaId {
    pub(super) fn of(id: Id<AreaKey>) -> Self {
        assert!(id.place() < 1 << 24, "fewer than 2^24 areas");
        let [a, b, c, ..] = id.place().to_le_bytes();
        Self([a, b, c])
    }

    pub(super) fn id(self) -> Id<AreaKey> {
        let Self([a, b, c]) = self;
        Id::<AreaKey>::of_place(usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16)
    }
}

/// One of a heap's two arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Blocks of any number of units, which share pages; includes slabs.
    Middle,
    /// Blocks of whole pages.
    Large,
}

impl Kind {
    #[inline]
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Middle => Self::Large,
            Self::Large => Self::Middle,
        }
    }

    /// Returns the pool that statistics and snapshots count the arena in.
    #[inline]
    pub(super) const fn class(self) -> PoolClass {
        match self {
            Self::Middle => PoolClass::Small,
            Self::Large => PoolClass::Large,
        }
    }
}
