//! The memory behind the addresses of an area: which pages have some, and who may still use it.

use std::ops::Range;

use crate::backend::contract::PhysicalHandle;

/// The pages of one area, from its beginning up to the last that ever had memory.
///
/// Equation: a page has memory exactly while no bare block covers it, but for those of a block that
/// a thread maps at this moment. It is idle while one free block covers it.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) page_bytes: usize,
    handles: Vec<Option<PhysicalHandle>>,
    /// The task of the heap's stream after which nothing that was freed here is used.
    busy_until: Vec<u64>,
}

impl Pages {
    pub(super) fn new(page_bytes: usize) -> Self {
        Self { page_bytes, handles: Vec::new(), busy_until: Vec::new() }
    }

    pub(super) fn is_mapped(&self, page: usize) -> bool {
        self.handles.get(page).is_some_and(Option::is_some)
    }

    /// What was freed in the pages of a range is used up to a task.
    #[inline]
    pub(super) fn note_use(&mut self, range: Range<usize>, busy_until: u64) {
        for ticket in &mut self.busy_until[range] {
            *ticket = busy_until.max(*ticket);
        }
    }

    /// The task after which nothing of the past uses a page.
    pub(super) fn busy_until(&self, page: usize) -> u64 {
        self.busy_until[page]
    }

    /// A page has memory now.
    pub(super) fn put(&mut self, page: usize, handle: PhysicalHandle) {
        if self.handles.len() <= page {
            self.handles.resize(page + 1, None);
            self.busy_until.resize(page + 1, 0);
        }
        let before = self.handles[page].replace(handle);
        debug_assert!(before.is_none(), "page {page} has memory");
        self.busy_until[page] = 0;
    }

    /// Takes the memory of an idle page out.
    pub(super) fn take(&mut self, page: usize) -> PhysicalHandle {
        self.handles[page].take().expect("an idle page has memory")
    }

    /// How many have been known at one time.
    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }
}
