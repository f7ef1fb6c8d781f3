//! Segments: ranges of memory from a device, each for one stream, one class and one pool.

use crate::backend::contract::{Address, PhysicalHandle};
use crate::base::size::to_usize;
use crate::base::table::{Id, Table};
use crate::memory::allocator::block::BlockId;
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::snapshot::PoolClass;

/// A segment's place in the table.
pub(super) type SegmentId = Id<Segment>;

/// Whose requests a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) stream: u64,
    pub(super) class: PoolClass,
    pub(super) pool: PoolId,
}

/// A range of memory.
#[derive(Debug)]
pub(super) struct Segment {
    /// First byte, as blocks are told.
    pub(super) address: u64,
    /// Where it is for the backend: elsewhere when a snapshot was restored.
    pub(super) base: Address,
    /// Size; of an expandable segment the size of its addresses.
    pub(super) bytes: usize,
    pub(super) owner: Owner,
    /// The block at its beginning.
    pub(super) first: BlockId,
    /// True when it was counted as one of those whose blocks are not split.
    pub(super) is_oversize: bool,
    /// Of an expandable segment.
    pub(super) pages: Option<Pages>,
}

impl Segment {
    pub(super) fn is_expandable(&self) -> bool {
        self.pages.is_some()
    }

    /// True when an address of it has memory: pages that are on their way have none here.
    pub(super) fn has_memory_at(&self, address: u64) -> bool {
        let has_page = |pages: &Pages| {
            pages.get(to_usize(address - self.address) / pages.page_bytes).is_some()
        };
        self.pages.as_ref().is_none_or(has_page)
    }

    /// Where the backend has what blocks know as `address`.
    pub(super) fn at_backend(&self, address: u64) -> Address {
        Address(address - self.address + self.base.0)
    }
}

/// The memory behind the addresses of an expandable segment: a handle for each page that has some.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) page_bytes: usize,
    handles: Vec<Option<PhysicalHandle>>,
}

impl Pages {
    pub(super) fn new(page_bytes: usize) -> Self {
        Self { page_bytes, handles: Vec::new() }
    }

    /// The handle of a page, to be set.
    pub(super) fn put(&mut self, index: usize, handle: PhysicalHandle) {
        if self.handles.len() <= index {
            self.handles.resize(index + 1, None);
        }
        let before = self.handles[index].replace(handle);
        debug_assert!(before.is_none(), "page {index} has memory: {before:?}");
    }

    /// Takes the handle of a page out; pages at the end that have none are forgotten.
    pub(super) fn take(&mut self, index: usize) -> PhysicalHandle {
        let handle = self.handles[index].take().expect("a mapped page");
        while self.handles.last().is_some_and(Option::is_none) {
            self.handles.pop();
        }
        handle
    }

    pub(super) fn get(&self, index: usize) -> Option<PhysicalHandle> {
        self.handles.get(index).copied().flatten()
    }

    /// The handles that there are.
    pub(super) fn handles(&self) -> impl Iterator<Item = PhysicalHandle> {
        self.handles.iter().flatten().copied()
    }
}

/// All segments of an allocator.
pub(super) type Segments = Table<Segment>;
