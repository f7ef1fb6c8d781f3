//! Pages on their way to a block: new ones, and idle ones that move.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::backend::contract::{Address, PagePlaces, PhysicalHandle};
use crate::base::error::Result;
use crate::memory::allocator::ids::{AreaId, BlockId};
use crate::memory::allocator::source::{DevicePages, try_each};
/// A mapped page that a free block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdlePage {
    /// The block that covered it when it was looked for.
    pub(super) block: BlockId,
    pub(super) area: AreaId,
    pub(super) page: usize,
}

impl IdlePage {
    /// True when `next` is the page behind this one.
    pub(super) fn is_before(&self, next: &Self) -> bool {
        (self.area, self.page + 1) == (next.area, next.page)
    }
}

/// A block in use without all its memory, and the pages that go there.
#[derive(Debug)]
pub(super) struct PageWork {
    /// The block, which includes the whole of each unmapped page, and the request's place in it.
    pub(super) block: BlockId,
    pub(super) offset: u32,
    pub(super) units: u32,
    /// The base of the block's area.
    pub(super) base: Address,
    pub(super) page_bytes: usize,
    pub(super) fresh_count: usize,
    pub(super) lists: Box<PageLists>,
}

/// The pages of a [`PageWork`]. One work at a time has the allocator's lists, which keep their
/// memory, so that work on a few pages allocates nothing.
#[derive(Debug)]
pub(super) struct PageLists {
    /// The unmapped pages: first for `fresh_count` new pages, then for those that move.
    pub(super) targets: Vec<usize>,
    /// The idle pages that move.
    pub(super) idle: Vec<IdlePage>,
    /// Their memory.
    pub(super) moved: Vec<PhysicalHandle>,
    /// The memory of the first targets.
    pub(super) handles: Vec<PhysicalHandle>,
}

/// The room of the first pages.
const FIRST_PAGES: usize = 64;
/// The most pages of lists that are kept.
const MOST_KEPT_PAGES: usize = 1024;

impl Default for PageLists {
    fn default() -> Self {
        Self {
            targets: Vec::with_capacity(FIRST_PAGES),
            idle: Vec::with_capacity(FIRST_PAGES),
            moved: Vec::with_capacity(FIRST_PAGES),
            handles: Vec::with_capacity(FIRST_PAGES),
        }
    }
}

impl PageLists {
    /// Empties the lists. They keep their memory, unless it is much.
    pub(super) fn clear(&mut self) {
        if self.targets.capacity() > MOST_KEPT_PAGES {
            *self = Self::default(); // the others are hardly longer
        }
        let Self { targets, idle, moved, handles } = self;
        targets.clear();
        idle.clear();
        moved.clear();
        handles.clear();
    }
}

impl PageWork {
    /// Calls the device; lists the handles of the first targets, and returns the error of the next
    /// one. If a new page is refused, those before it go back. A refused move or a panic leaves all
    /// pages in place.
    pub(super) fn run(&mut self, memory: DevicePages<'_>) -> thread::Result<Result<()>> {
        let mut outcome = catch_unwind(AssertUnwindSafe(|| self.run_until(memory)));
        let handles = &mut self.lists.handles;
        if matches!(outcome, Ok(Err(_))) && handles.len() < self.fresh_count {
            let gone = try_each(handles.drain(..), |handle| memory.drop_page(handle));
            outcome = gone.and(outcome);
        }
        outcome
    }

    fn run_until(&mut self, memory: DevicePages<'_>) -> Result<()> {
        let Self { base, page_bytes, fresh_count, .. } = *self;
        let PageLists { targets, moved, handles, .. } = &mut *self.lists;
        let (fresh, others) = targets.split_at(fresh_count);
        let places = |numbers| PagePlaces { base, page_bytes, numbers };
        if !fresh.is_empty() {
            memory.create_mapped(places(fresh), handles)?;
        }
        if !others.is_empty() {
            memory.relocate_all(moved, places(others), handles)?;
        }
        Ok(())
    }
}
