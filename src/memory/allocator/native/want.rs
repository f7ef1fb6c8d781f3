//! What a request needs of an arena, how far the search for it goes, and the place found.

use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::heap::{HeapId, Kind};

/// How much free memory a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// A bounded number of blocks: some of the list for the request's size, which may be smaller
    /// than the request, and some larger ones. Other memory may serve the request too.
    Bounded,
    /// Every free block, before the device is asked for more.
    Whole,
    /// As `Whole`, but also moves pages and takes other streams' memory under `deterministic`.
    Last,
}

impl Search {
    /// Returns how many blocks to look at in the list for the request's size, and in later lists.
    pub(super) fn looks(self) -> [usize; 2] {
        if self == Self::Bounded { [4, 6] } else { [usize::MAX; 2] }
    }

    /// Returns how many heaps of other streams to look at, of those that got free memory last.
    pub(super) fn heaps(self) -> usize {
        if self == Self::Bounded { 4 } else { usize::MAX }
    }
}

/// A block that a request needs of an arena.
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
    /// The block at the beginning of the place.
    pub(super) id: BlockId,
    pub(super) offset: u32,
    pub(super) units: u32,
    pub(super) cost: Cost,
}

/// The cost of a place: less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// The missing pages, and the idle ones that could move elsewhere unless those are no cost.
    pub(super) pages: u32,
    /// The unmapped pages.
    pub(super) missing: u32,
}
