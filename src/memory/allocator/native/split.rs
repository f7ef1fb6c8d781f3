//! Free memory that cannot go back to the device as it is: PyTorch's inactive splits.
//!
//! In a segment that is each free block but one that is the whole segment. Where pages go back one
//! by one it is the part of a free block beside the whole pages that it covers: other blocks are in
//! those at its ends. In a slab it is what is free. Parts side by side are one, as in snapshots.
//!
//! Equation: two free blocks are never neighbours, so parts meet only where a slab begins or ends.

use std::ops::{AddAssign, SubAssign};

use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::{Block, State};
use crate::memory::allocator::native::grid::{Grid, Parts};
use crate::memory::allocator::native::slab::{Slab, Slabs};
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::stats::{PooledStat, Statistics};

/// How many parts there are, and their bytes.
#[derive(Debug, Default)]
pub(in crate::memory::allocator) struct Splits {
    count: PooledStat,
    bytes: PooledStat,
    /// What is not counted yet: of one call, so that what comes back is no peak.
    pub(super) moved: Change,
}

/// How many parts more, and how many bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) count: isize,
    pub(super) bytes: isize,
}

impl Splits {
    /// Counts what has moved.
    pub(super) fn count_moved(&mut self, class: PoolClass) {
        let Change { count, bytes } = std::mem::take(&mut self.moved);
        self.count.change(class, count);
        self.bytes.change(class, bytes);
    }

    /// Adds them to what the other policy counts.
    pub(in crate::memory::allocator) fn add_to(&self, statistics: &mut Statistics) {
        statistics.inactive_split.add(&self.count);
        statistics.inactive_split_bytes.add(&self.bytes);
    }

    pub(in crate::memory::allocator) fn reset_peaks(&mut self) {
        self.count.reset_peaks();
        self.bytes.reset_peaks();
    }

    pub(in crate::memory::allocator) fn reset_accumulated(&mut self) {
        self.count.reset_accumulated();
        self.bytes.reset_accumulated();
    }
}

/// How many parts of a free block go on in a slab beside it.
#[inline(always)]
pub(super) fn count_met(parts: Parts, [previous, next]: [Option<&Block>; 2], slabs: &Slabs) -> u8 {
    let is_slab = |block: Option<&Block>| block.is_some_and(|block| block.state == State::Slab);
    if !is_slab(previous) && !is_slab(next) {
        return 0;
    }
    let slab = |block: Option<&Block>| Some(&slabs[block?.slab()?]);
    let before = parts.begin() && slab(previous).is_some_and(Slab::has_free_end);
    let behind = parts.end() && slab(next).is_some_and(Slab::has_free_begin);
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
    /// What they are, beside neighbours of which they go on in some.
    pub(super) fn change(self, met: u8, area: &Area) -> Change {
        let Self { before, behind, .. } = self;
        let count = isize::from(before > 0) + isize::from(behind > 0) - isize::from(met);
        Change { count, bytes: area.bytes_of(before + behind).cast_signed() }
    }

    pub(super) fn of_free(block: &Block, area: &Area, grid: Grid) -> Self {
        if area.pages.is_none() && block.offset == 0 && block.next.is_none() {
            return Self::default(); // a whole segment
        }
        let (idle_pages, [before, behind]) = grid.covered_and_beside(&block.range());
        Self { before, behind, idle_pages }
    }
}
