//! The mapped pages of an area, their last uses, and the grid of pages over its units.

use std::hint;
use std::ops::Range;

use crate::backend::contract::PhysicalHandle;
/// The pages of one area, up to the last that was ever mapped.
///
/// Equation: a page is mapped exactly while no bare block covers it, except in a block whose pages
/// a thread is mapping. It is idle while one free block covers it.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) page_bytes: usize,
    table: Vec<Page>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    handle: Option<PhysicalHandle>,
    /// The heap's count of the last task that uses memory freed in it.
    busy_until: u64,
}

/// The room of the first pages.
const FIRST_ROOM: usize = 64;

impl Pages {
    pub(super) fn new(page_bytes: usize) -> Self {
        Self { page_bytes, table: Vec::new() }
    }

    pub(super) fn is_mapped(&self, page: usize) -> bool {
        self.table.get(page).is_some_and(|page| page.handle.is_some())
    }

    /// Raises the last use of the pages in a range to `busy_until`.
    #[inline]
    pub(super) fn note_use(&mut self, range: Range<usize>, busy_until: u64) {
        for page in &mut self.table[range] {
            page.busy_until = busy_until.max(page.busy_until);
        }
    }

    pub(super) fn busy_until(&self, page: usize) -> u64 {
        self.table[page].busy_until
    }

    /// Makes room for the pages before `end`.
    pub(super) fn grow_to(&mut self, end: usize) {
        if self.table.len() < end {
            self.table.reserve((end - self.table.len()).max(FIRST_ROOM));
            self.table.resize(end, Page::default());
        }
    }

    /// Stores the handle of a page that was mapped or moved here, for which there is room.
    #[inline(always)]
    pub(super) fn put(&mut self, page: usize, handle: PhysicalHandle) {
        let there = &mut self.table[page];
        debug_assert!(there.handle.is_none(), "page {page} has memory");
        *there = Page { handle: Some(handle), busy_until: 0 };
    }

    /// Takes the handle of an idle page.
    pub(super) fn take(&mut self, page: usize) -> PhysicalHandle {
        self.table[page].handle.take().expect("an idle page has memory")
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

/// The pages of an arena, in units. Areas begin at a page; pages and units are powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// The exponent of the units in a page. Without virtual memory no block has so many units.
    shift: u32,
}

impl Grid {
    pub(super) const fn new(page_units: Option<usize>) -> Self {
        match page_units {
            Some(units) => Self { shift: units.ilog2() },
            None => Self { shift: u32::BITS - 1 },
        }
    }

    /// Counts the pages of a range that a place touches.
    pub(super) fn count_touched(self, offset: u32, units: u32, pages: &Range<u32>) -> u32 {
        let (first, last) = (offset >> self.shift, (offset + units - 1) >> self.shift);
        pages.end.min(last + 1).saturating_sub(pages.start.max(first))
    }

    /// Returns the pages that the units cover as a whole.
    pub(super) fn covered(self, units: &Range<u32>) -> Range<u32> {
        let first = (units.start + ((1 << self.shift) - 1)) >> self.shift;
        first..(units.end >> self.shift).max(first)
    }

    /// Returns the fewest pages that `units` can cover at any offset.
    pub(super) fn least_covered(self, units: u32) -> u32 {
        ((units + 1) >> self.shift).saturating_sub(1)
    }

    /// Returns the fewest idle pages of a free block that a place at one of its ends touches.
    #[inline(always)]
    pub(super) fn least_touched(self, units: u32, parts: &Parts) -> u32 {
        self.touched_beyond(parts.before.max(parts.behind), units).min(parts.idle_pages)
    }

    /// Returns how many pages `units` touch beyond the first `beside` of them, where pages begin.
    #[inline(always)]
    pub(super) fn touched_beyond(self, beside: u32, units: u32) -> u32 {
        let beyond = units.saturating_sub(beside);
        beyond.wrapping_add((1 << self.shift) - 1) >> self.shift
    }

    pub(super) fn first_unit(self, page: usize) -> u32 {
        u32::try_from(page << self.shift).expect("a page of an area")
    }

    /// Returns the number of pages that the units cover, and the units before and behind them. All
    /// units count as before if they cover none.
    pub(super) fn covered_and_beside(self, units: &Range<u32>) -> (u32, [u32; 2]) {
        let pages = self.covered(units);
        let page_count = pages.end - pages.start;
        let mask = (1 << self.shift) - 1;
        let [before, behind] = [units.start.wrapping_neg() & mask, units.end & mask];
        // No branch, because which units cover a page is not foreseen.
        let either = |none, some| hint::select_unpredictable(page_count == 0, none, some);
        (page_count, [either(units.end - units.start, before), either(0, behind)])
    }
}

/// The idle pages of a mapped free block, and the units before and behind them. All units count as
/// before if it covers no page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    pub(super) before: u32,
    pub(super) behind: u32,
    pub(super) idle_pages: u32,
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
    fn a_free_block_is_touched_least_at_one_of_its_ends() {
        let grid = Grid::new(Some(4));
        for (begin, end) in (0..8).flat_map(|begin| (begin + 1..24).map(move |end| (begin, end))) {
            let (idle_pages, [before, behind]) = grid.covered_and_beside(&(begin..end));
            let (parts, covered) =
                (Parts { before, behind, idle_pages }, grid.covered(&(begin..end)));
            for units in 1..=end - begin {
                let at_ends =
                    [begin, end - units].map(|at| grid.count_touched(at, units, &covered));
                let least = grid.least_touched(units, &parts);
                assert_eq!(Some(&least), at_ends.iter().min(), "{units} of {begin}..{end}");
                let at_begin = grid.touched_beyond(parts.before, units).min(idle_pages);
                assert_eq!(at_begin, at_ends[0], "{units} of {begin}..{end}");
            }
        }
    }

    #[test]
    fn without_pages_nothing_is_covered() {
        let grid = Grid::new(None);
        assert_eq!(grid.covered(&(0..100)), 0..0);
        assert_eq!(grid.covered_and_beside(&(5..100)), (0, [95, 0]));
    }
}

#[cfg(all(test, not(loom)))]
mod page_tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: memory of a page is never taken before its last use. Method: a model of each page.
        #[test]
        fn note_use_keeps_latest_use(
            uses in prop::collection::vec((0_usize..4, 0_usize..=4, 0_u64..4), 0..30),
        ) {
            let mut pages = Pages::new(1);
            pages.grow_to(4);
            let mut model = [0; 4];
            for (begin, end, busy_until) in uses {
                let range = begin.min(end)..end;
                pages.note_use(range.clone(), busy_until);
                for latest in &mut model[range] {
                    *latest = busy_until.max(*latest);
                }
                prop_assert_eq!([0, 1, 2, 3].map(|page| pages.busy_until(page)), model);
            }
        }
    }

    #[test]
    fn grow_to_keeps_pages_and_adds_unmapped() {
        let mut pages = Pages::new(1);
        pages.grow_to(1);
        pages.put(0, PhysicalHandle(7));
        for end in [1, 0, 3] {
            pages.grow_to(end);
            assert_eq!((pages.len(), pages.is_mapped(0)), (end.max(1), true));
            assert!(!pages.is_mapped(end.max(1)) && !pages.is_mapped(1));
        }
        pages.note_use(0..1, 5);
        assert_eq!(pages.take(0), PhysicalHandle(7));
        pages.put(0, PhysicalHandle(8));
        assert_eq!(pages.busy_until(0), 0, "of another page");
    }
}
