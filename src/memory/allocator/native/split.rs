//! Free memory that cannot go back to the device as it is: PyTorch's inactive splits.
//!
//! In a segment that is each free block but one that is the whole segment. Where pages go back one
//! by one it is the part of a free block beside the whole pages that it covers: other blocks are in
//! those at its ends. In a slab it is what is free. Parts side by side are one, as in snapshots.
//!
//! Equation: two free blocks are never neighbours, so parts meet only where a slab begins or ends.

use std::ops::{AddAssign, SubAssign};

use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::{Block, BlockId, State};
use crate::memory::allocator::native::core::Native;
use crate::memory::allocator::native::grid::Grid;
use crate::memory::allocator::native::slab::{Slab, SlabId, Slabs};
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

/// The parts of a free block with memory, in units: the one before the pages that it covers, which
/// is all of it when it covers none, and the one behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    before: u32,
    behind: u32,
    pub(super) idle_pages: u32,
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
    let before = parts.begin() && slab(previous).is_some_and(Slab::ends_free);
    let behind = parts.end() && slab(next).is_some_and(Slab::begins_free);
    u8::from(before) + u8::from(behind)
}

impl Native {
    /// What small blocks of a slab, by their bits, add while they are free beside the others that
    /// are.
    pub(super) fn change_of_small(&self, id: SlabId, small: u64) -> Change {
        let slab = &self.slabs[id];
        let (with, without) = (slab.free | small, slab.free & !small);
        // Each begins a part, or goes on with one; what is behind it began one without it.
        let begin = (small & !(with << 1)).count_ones();
        let joined = (small << 1 & without).count_ones();
        let mut count = begin.cast_signed() - joined.cast_signed();
        let [first, last] = [small & 1 != 0, small & slab.last_bit() != 0];
        if first || last {
            let block = &self.blocks[slab.block];
            count -= i32::from(first && self.parts(block.previous).end());
            count -= i32::from(last && self.parts(block.next).begin());
        }
        let bytes = small.count_ones() as usize * slab.class.bytes();
        Change { count: count as isize, bytes: bytes.cast_signed() }
    }

    /// The parts of a block, if it is there; of a slab those at its ends alone.
    fn parts(&self, id: Option<BlockId>) -> Parts {
        let Some(block) = id.map(|id| &self.blocks[id]) else { return Parts::default() };
        if let Some(slab) = block.slab() {
            let slab = &self.slabs[slab];
            let [before, behind] = [slab.begins_free(), slab.ends_free()].map(u32::from);
            return Parts { before, behind, idle_pages: 1 }; // one of them is not the other
        }
        let area = &self.areas[block.area];
        let is_free = block.state == State::Free;
        if !is_free {
            return Parts::default();
        }
        Parts::of_free(block, area, self.sizes.grid(area.kind))
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

    /// True when one begins with the block.
    fn begin(&self) -> bool {
        self.before > 0
    }

    /// True when one ends with it.
    fn end(&self) -> bool {
        self.behind > 0 || self.before > 0 && self.idle_pages == 0
    }
}
