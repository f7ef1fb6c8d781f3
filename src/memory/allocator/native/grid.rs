//! Where pages begin and end among the units of an arena.

use std::ops::Range;

/// The pages of an arena's areas, in units. Areas begin with a page; both are powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Where memory is not mapped page by page there are so many units in a page that no block
    /// covers one.
    shift: u32,
}

impl Grid {
    pub(super) const fn new(page_units: Option<usize>) -> Self {
        match page_units {
            Some(units) => Self { shift: units.ilog2() },
            None => Self { shift: u32::BITS - 1 },
        }
    }

    /// How many of some pages are touched by units from an offset on.
    pub(super) fn count_touched(self, offset: u32, units: u32, pages: &Range<u32>) -> u32 {
        let (first, last) = (offset >> self.shift, (offset + units - 1) >> self.shift);
        pages.end.min(last + 1).saturating_sub(pages.start.max(first))
    }

    /// The pages that some units cover.
    pub(super) fn covered(self, units: &Range<u32>) -> Range<u32> {
        let first = (units.start + ((1 << self.shift) - 1)) >> self.shift;
        first..(units.end >> self.shift).max(first)
    }

    /// The fewest pages that so many units cover, wherever they begin.
    pub(super) fn least_covered(self, units: u32) -> u32 {
        ((units + 1) >> self.shift).saturating_sub(1)
    }

    /// The first unit of a page.
    pub(super) fn first_unit(self, page: usize) -> u32 {
        u32::try_from(page << self.shift).expect("a page of an area")
    }

    /// How many pages some units cover, and of the units those before and behind these; all of
    /// them are before when they cover none.
    pub(super) fn covered_and_beside(self, units: &Range<u32>) -> (u32, [u32; 2]) {
        let pages = self.covered(units);
        if pages.is_empty() {
            return (0, [units.end - units.start, 0]);
        }
        let mask = (1 << self.shift) - 1;
        (pages.end - pages.start, [units.start.wrapping_neg() & mask, units.end & mask])
    }
}

/// The parts of a free block with memory, in units: the one before the pages that it covers, which
/// is all of it when it covers none, and the one behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    pub(super) before: u32,
    pub(super) behind: u32,
    pub(super) idle_pages: u32,
}

impl Parts {
    /// True when one begins with the block.
    pub(super) fn begin(&self) -> bool {
        self.before > 0
    }

    /// True when one ends with it.
    pub(super) fn end(&self) -> bool {
        self.behind > 0 || self.before > 0 && self.idle_pages == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_touched_covered_and_left_beside() {
        let grid = Grid::new(Some(4));
        for (units, touched, covered, beside) in [
            (0..4, 0..1, 0..1, [0, 0]),
            (1..4, 0..1, 1..1, [3, 0]),
            (3..8, 0..2, 1..2, [1, 0]),
            (3..5, 0..2, 1..1, [2, 0]),
            (2..15, 0..4, 1..3, [2, 3]),
        ] {
            for pages in [0..9, 1..3, 2..2, 7..9] {
                let both = touched.clone().filter(|page| pages.contains(page));
                let count = grid.count_touched(units.start, units.end - units.start, &pages);
                assert_eq!(count as usize, both.count(), "{units:?} of {pages:?}");
            }
            assert_eq!(grid.covered(&units), covered, "{units:?}");
            let (count, parts) = grid.covered_and_beside(&units);
            assert_eq!((count as usize, parts), (covered.len(), beside), "{units:?}");
        }
    }

    #[test]
    fn no_place_covers_fewer_pages_than_the_least() {
        let grid = Grid::new(Some(8));
        for units in 1..100 {
            let covered = (0..8).map(|begin| grid.covered(&(begin..begin + units)).len());
            assert_eq!(covered.min(), Some(grid.least_covered(units) as usize), "{units} units");
        }
    }

    #[test]
    fn without_pages_nothing_is_covered() {
        let grid = Grid::new(None);
        assert_eq!(grid.covered(&(0..100)), 0..0);
        assert_eq!(grid.covered_and_beside(&(5..100)), (0, [95, 0]));
    }
}
