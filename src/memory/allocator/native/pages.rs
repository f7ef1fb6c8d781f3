//! The mapped pages of an area, and their last uses.

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

#[cfg(all(test, not(loom)))]
mod tests {
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
