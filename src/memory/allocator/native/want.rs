//! What is wanted of an arena, how hard it is searched for, and what is found.

use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::heap::{HeapId, Kind};

/// How much of what is free a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// A bounded number of steps, for a request that other memory may serve as well: blocks of the
    /// list of its own size, some of which may be smaller, and larger ones.
    Bounded,
    /// Every free block that is the request's own, before the device is asked for more. How long
    /// that takes does not grow with the streams that are known.
    Whole,
    /// The same by pages, also where sizes alone choose as long as there is a choice.
    Last,
}

impl Search {
    /// Looks at blocks of a request's own list, and at larger ones.
    pub(super) fn looks(self) -> [usize; 2] {
        if self == Self::Bounded { [4, 6] } else { [usize::MAX; 2] }
    }

    /// Heaps of other streams, of those that are listed because they got free memory last.
    pub(super) fn heaps(self) -> usize {
        if self == Self::Bounded { 4 } else { usize::MAX }
    }
}

/// A block that is wanted of an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) heap: HeapId,
    pub(super) kind: Kind,
    pub(super) bytes: usize,
    pub(super) align_bytes: usize,
}

/// A place for a block in free units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The block in which it begins.
    pub(super) id: BlockId,
    pub(super) offset: u32,
    pub(super) units: u32,
    pub(super) cost: Cost,
}

/// What a place costs: the less, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Pages without memory, and those with memory that could move elsewhere; the former alone
    /// where a few are enough.
    pub(super) pages: u32,
    /// Pages that have no memory.
    pub(super) missing: u32,
}
