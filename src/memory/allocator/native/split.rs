//! Free memory that cannot go back to the device as it is: PyTorch's inactive splits.
//!
//! In a segment that is each free block but one that is the whole segment. Where pages go back one
//! by one it is the part of a free block beside the whole pages that it covers: other blocks are in
//! those at its ends. In a slab it is what is free. Parts side by side are one, as in snapshots.
//!
//! Equation: two free blocks are never neighbours, so parts meet only where a slab begins or ends.

use std::ops::{AddAssign, SubAssign};

use crate::memory::allocator::native::area::{Area, Areas};
use crate::memory::allocator::native::block::{Block, BlockId, Blocks, State};
use crate::memory::allocator::native::grid::Grid;
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
    count: isize,
    bytes: isize,
}

/// The parts of a free block.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    sum: Change,
    /// One of them begins with the block.
    begin: bool,
    /// One of them ends with it.
    end: bool,
}

impl Splits {
    /// Counts what has moved.
    #[inline]
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

impl Change {
    /// What a free block with memory adds while it is one, beside the neighbours that it has.
    #[inline]
    pub(super) fn of_free(
        block: &Block,
        area: &Area,
        blocks: &Blocks,
        slabs: &Slabs,
        grid: Grid,
    ) -> Self {
        let Parts { mut sum, begin, end } = Parts::of_free(block, area, grid);
        let slab = |neighbour: Option<BlockId>| Some(&slabs[blocks[neighbour?].slab()?]);
        let meets_before = begin && slab(block.previous).is_some_and(Slab::ends_free);
        let meets_behind = end && slab(block.next).is_some_and(Slab::begins_free);
        sum.count -= isize::from(meets_before) + isize::from(meets_behind);
        sum
    }

    /// What small blocks of a slab, by their bits, add while they are free beside the others that
    /// are.
    pub(super) fn of_small(
        slab: &Slab,
        small: u64,
        areas: &Areas,
        blocks: &Blocks,
        slabs: &Slabs,
        grid: Grid,
    ) -> Self {
        let (with, without) = (slab.free | small, slab.free & !small);
        // Each begins a part, or goes on with one; what is behind it began one without it.
        let begin = (small & !(with << 1)).count_ones();
        let joined = (small << 1 & without).count_ones();
        let mut count = begin.cast_signed() - joined.cast_signed();
        let [first, last] = [small & 1 != 0, small & slab.last_bit() != 0];
        if first || last {
            let block = &blocks[slab.block];
            let parts = |neighbour: Option<BlockId>| {
                let neighbour = neighbour.map(|neighbour| &blocks[neighbour]);
                neighbour.map_or(Parts::default(), |block| match block.state {
                    State::Free => Parts::of_free(block, &areas[block.area], grid),
                    _ => block.slab().map_or(Parts::default(), |slab| Parts::of_slab(&slabs[slab])),
                })
            };
            count -= i32::from(first && parts(block.previous).end);
            count -= i32::from(last && parts(block.next).begin);
        }
        let bytes = small.count_ones() as usize * slab.class.bytes();
        Self { count: count as isize, bytes: bytes.cast_signed() }
    }
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
    #[inline]
    fn of_free(block: &Block, area: &Area, grid: Grid) -> Self {
        if area.pages.is_none() && block.offset == 0 && block.next.is_none() {
            return Self::default(); // a whole segment
        }
        let [before, behind] = grid.beside_covered(&block.range());
        let count = isize::from(before > 0) + isize::from(behind > 0);
        let sum = Change { count, bytes: area.bytes_of(before + behind).cast_signed() };
        let is_all = before == block.units;
        Self { sum, begin: before > 0, end: behind > 0 || is_all }
    }

    fn of_slab(slab: &Slab) -> Self {
        let sum = Change::default(); // is not asked for
        Self { sum, begin: slab.begins_free(), end: slab.ends_free() }
    }
}
