//! Free memory that cannot go back to the device as it is: PyTorch's inactive splits.
//!
//! In a segment, each free block is a part, except one that is the whole segment. Where pages are
//! mapped one by one, the units of a free block outside of its idle pages are parts, because other
//! blocks touch the pages there. In a slab, the free small blocks are parts. Adjacent parts count
//! as one, as in snapshots.
//!
//! Equation: free blocks are never neighbours, so parts meet only in slabs and at their ends.

use std::ops::{AddAssign, SubAssign};

use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::{Block, State};
use crate::memory::allocator::native::grid::{Grid, Parts};
use crate::memory::allocator::native::slab::{Slab, Slabs};
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::stats::{PooledStat, Statistics};

/// The number of parts, and their bytes.
#[derive(Debug, Default)]
pub(in crate::memory::allocator) struct Splits {
    count: PooledStat,
    bytes: PooledStat,
    /// Changes that are not counted yet: counted together, sums in between raise no peak.
    pub(super) moved: Change,
}

/// A change of the number of parts, and of their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) count: isize,
    pub(super) bytes: isize,
}

impl Splits {
    #[inline(always)]
    pub(super) fn count_moved(&mut self, class: PoolClass) {
        let Change { count, bytes } = std::mem::take(&mut self.moved);
        if count != 0 {
            self.count.change(class, count);
        }
        self.bytes.change(class, bytes);
    }

    /// Adds the sums to those of the other engine.
    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        statistics.inactive_split.add(&self.count);
        statistics.inactive_split_bytes.add(&self.bytes);
    }

    pub(crate) fn reset_peaks(&mut self) {
        self.count.reset_peaks();
        self.bytes.reset_peaks();
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.count.reset_accumulated();
        self.bytes.reset_accumulated();
    }
}

/// Counts the parts of a free block, at some of its ends, that continue in a slab there.
pub(super) fn count_met(
    [at_begin, at_end]: [bool; 2],
    parts: Parts,
    [previous, next]: [Option<&Block>; 2],
    slabs: &Slabs,
) -> u8 {
    let is_slab = |block: Option<&Block>| block.is_some_and(|block| block.state == State::Slab);
    if !is_slab(previous) && !is_slab(next) {
        return 0;
    }
    let slab = |block: Option<&Block>| Some(&slabs[block?.slab()?]);
    let before = at_begin && parts.begin() && slab(previous).is_some_and(Slab::has_free_end);
    let behind = at_end && parts.end() && slab(next).is_some_and(Slab::has_free_begin);
    u8::from(before) + u8::from(behind)
}

impl AddAssign for Change {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Change {
    fn sub_assign(&mut self, other: Self) {
        self.count -= other.count;
        self.bytes -= other.bytes;
    }
}

impl Parts {
    /// Returns the change from these parts to others, as long as none continues in a slab.
    #[inline(always)]
    pub(super) fn change_to(self, parts: Self, area: &Area) -> Change {
        let count = |it: Self| isize::from(it.before > 0) + isize::from(it.behind > 0);
        let bytes = |it: Self| area.bytes_of(it.before + it.behind).cast_signed();
        Change { count: count(parts) - count(self), bytes: bytes(parts) - bytes(self) }
    }

    pub(super) fn of_free(block: &Block, area: &Area, grid: Grid) -> Self {
        if area.pages.is_none() && block.offset == 0 && block.next.is_none() {
            return Self::default(); // a whole segment
        }
        let (idle_pages, [before, behind]) = grid.covered_and_beside(&block.range());
        Self { before, behind, idle_pages }
    }
}
