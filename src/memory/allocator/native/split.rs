//! Free memory that cannot go back to the device as it is: PyTorch's inactive splits.
//!
//! In a segment, each free block is a part, except one that is the whole segment. Where pages are
//! mapped one by one, the units of a free block outside of its idle pages are parts, because other
//! blocks touch the pages there. In a slab, the free small blocks are parts. Adjacent parts count
//! as one, as in snapshots.
//!
//! They are counted where statistics are read, not where blocks change: peaks and sums are those of
//! what such looks saw.

use crate::base::size::to_usize;
use crate::memory::allocator::native::area::Area;
use crate::memory::allocator::native::block::Block;
use crate::memory::allocator::native::grid::{Grid, Parts};
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::stats::{PooledStat, Statistics};

/// The number of parts, and their bytes, as of the last look.
#[derive(Debug, Default)]
pub(in crate::memory::allocator) struct Splits([PooledStat; 2]);

impl Splits {
    /// Takes what was found: numbers and bytes, by class.
    pub(super) fn set(&mut self, found: [[usize; 2]; 2]) {
        let classes = [PoolClass::Small, PoolClass::Large];
        for (quantity, stat) in self.0.iter_mut().enumerate() {
            let current = |stat: &PooledStat, class| to_usize(stat.of(class).current);
            // What falls comes first, so that no sum in between raises a peak.
            for class in classes {
                let now = found[class as usize][quantity];
                stat.decrease(class, current(stat, class).saturating_sub(now));
            }
            for class in classes {
                let now = found[class as usize][quantity];
                stat.increase(class, now.saturating_sub(current(stat, class)));
            }
        }
    }

    /// Adds the sums to those of the other engine.
    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        let Self([count, bytes]) = self;
        statistics.inactive_split.add(count);
        statistics.inactive_split_bytes.add(bytes);
    }

    pub(crate) fn reset_peaks(&mut self) {
        self.0.iter_mut().for_each(PooledStat::reset_peaks);
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.0.iter_mut().for_each(PooledStat::reset_accumulated);
    }
}

impl Parts {
    pub(super) fn of_free(block: &Block, area: &Area, grid: Grid) -> Self {
        if area.pages.is_none() && block.offset == 0 && block.next.is_none() {
            return Self::default(); // a whole segment
        }
        let (idle_pages, [before, behind]) = grid.covered_and_beside(&block.range());
        Self { before, behind, idle_pages }
    }
}
