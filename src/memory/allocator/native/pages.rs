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
    handles: Vec<Option<PhysicalHandle>>,
    /// For each page the heap's count of the last task that uses memory freed in it.
    busy_until: Vec<u64>,
}

impl Pages {
    pub(super) fn new(page_bytes: usize) -> Self {
        Self { page_bytes, handles: Vec::new(), busy_until: Vec::new() }
    }

    pub(super) fn is_mapped(&self, page: usize) -> bool {
        self.handles.get(page).is_some_and(Option::is_some)
    }

    /// Raises the last use of the pages in a range to `busy_until`.
    #[inline]
    pub(super) fn note_use(&mut self, range: Range<usize>, busy_until: u64) {
        for ticket in &mut self.busy_until[range] {
            *ticket = busy_until.max(*ticket);
        }
    }

    pub(super) fn busy_until(&self, page: usize) -> u64 {
        self.busy_until[page]
    }

    /// Makes room for the pages before `end`.
    pub(super) fn grow_to(&mut self, end: usize) {
        if self.handles.len() < end {
            self.handles.resize(end, None);
            self.busy_until.resize(end, 0);
        }
    }

    /// Stores the handle of a page that was mapped or moved here, for which there is room.
    #[inline(always)]
    pub(super) fn put(&mut self, page: usize, handle: PhysicalHandle) {
        let before = self.handles[page].replace(handle);
        debug_assert!(before.is_none(), "page {page} has memory");
        self.busy_until[page] = 0;
    }

    /// Takes the handle of an idle page.
    pub(super) fn take(&mut self, page: usize) -> PhysicalHandle {
        self.handles[page].take().expect("an idle page has memory")
    }

    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }
}
