//! Free memory that cannot go back to the device as it is: PyTorch's inactive splits.
//!
//! In a segment, each free block is a part, except one that is the whole segment. Where pages are
//! mapped one by one, the units of a free block outside of its idle pages are parts, because other
//! blocks touch the pages there. In a slab, the free small blocks are parts; adjacent ones count as
//! one, as in snapshots. A slab's parts count apart from those beside it, so that no change has to
//! look at its neighbours.

use std::ops::AddAssign;

use crate::memory::allocator::native::amounts::Amounts;
use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::Block;
use crate::memory::allocator::native::grid::{Grid, Parts};
use crate::memory::allocator::native::slab::Slab;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::stats::{PooledStat, Stat, Statistics};

/// The number of parts, and their bytes, and their history. What was given up follows: it is what
/// was gained and is not there any more.
#[derive(Debug, Default)]
pub(in crate::memory::allocator) struct Splits {
    now: Amounts<2>,
    /// Of each class, as the next field.
    gained: [[u64; 2]; 2],
    /// What was there when the sums were reset.
    at_reset: [[u64; 2]; 2],
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
    /// Counts what moved in an arena of a class.
    #[inline(always)]
    pub(super) fn count_moved(&mut self, class: PoolClass) {
        let moved = std::mem::take(&mut self.moved);
        self.count(class, moved);
    }

    /// Counts a change. No branch on its sign, which is not foreseen.
    #[inline(always)]
    pub(super) fn count(&mut self, class: PoolClass, Change { count, bytes }: Change) {
        let amounts = [count as i64, bytes as i64];
        for (gained, amount) in self.gained[class as usize].iter_mut().zip(amounts) {
            *gained += amount.max(0).cast_unsigned();
        }
        self.now.change(class, amounts);
    }

    /// Adds the sums to those of the other engine.
    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        statistics.inactive_split.add(&self.stat(0));
        statistics.inactive_split_bytes.add(&self.stat(1));
    }

    fn stat(&self, of: usize) -> PooledStat {
        let class = |class: PoolClass| {
            let (now, gained) = (self.now.of(class), self.gained[class as usize][of]);
            let current = now.current()[of];
            let freed = gained + self.at_reset[class as usize][of] - current;
            Stat { current, peak: now.peaks()[of], allocated: gained, freed }
        };
        let [small_pool, large_pool] = [PoolClass::Small, PoolClass::Large].map(class);
        let mut all = small_pool;
        all.add(&large_pool);
        all.peak = self.now.all().peaks()[of];
        PooledStat { all, small_pool, large_pool }
    }

    pub(crate) fn reset_peaks(&mut self) {
        self.now.reset_peaks();
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.gained = Default::default();
        self.at_reset =
            [PoolClass::Small, PoolClass::Large].map(|class| self.now.of(class).current());
    }
}

impl AddAssign for Change {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl Parts {
    /// Returns the change from these parts to others.
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

impl Slab {
    /// Returns the change of the inactive splits when the free blocks were those of `before`.
    /// Adjacent ones are one part.
    #[inline(always)]
    pub(super) fn change_since(&self, before: u64) -> Change {
        let grown = |now: u64, then: u64| {
            now.count_ones().cast_signed() as isize - then.count_ones().cast_signed() as isize
        };
        let begins = |free: u64| free & !(free << 1);
        let bytes = grown(self.free, before) * self.class.bytes().cast_signed();
        Change { count: grown(begins(self.free), begins(before)), bytes }
    }
}
