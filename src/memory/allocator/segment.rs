//! Segments: ranges of memory from a device, each for one stream, one class and one pool.

use crate::backend::contract::{Address, PhysicalHandle};
use crate::base::size::to_usize;
use crate::base::table::{Id, Table};
use crate::memory::allocator::block::BlockId;
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::snapshot::PoolClass;

pub(super) type SegmentId = Id<Segment>;

/// The requests that a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) stream: u64,
    pub(super) class: PoolClass,
    pub(super) pool: PoolId,
}

#[derive(Debug)]
pub(super) struct Segment {
    /// The first address, in the numbers of its blocks.
    pub(super) address: u64,
    /// The first address at the backend, which differs where a snapshot chose `address`.
    pub(super) base: Address,
    /// Size; of an expandable segment the size of its reserved addresses.
    pub(super) bytes: usize,
    pub(super) owner: Owner,
    pub(super) first: BlockId,
    /// True when it counts in `oversize_segments`.
    pub(super) is_oversize: bool,
    /// `None` unless the segment is expandable.
    pub(super) pages: Option<Pages>,
}

impl Segment {
    pub(super) fn is_expandable(&self) -> bool {
        self.pages.is_some()
    }

    /// True when an address is mapped. Pages that a thread is mapping or unmapping are not.
    pub(super) fn has_memory_at(&self, address: u64) -> bool {
        let has_page = |pages: &Pages| {
            pages.get(to_usize(address - self.address) / pages.page_bytes).is_some()
        };
        self.pages.as_ref().is_none_or(has_page)
    }

    /// Translates a block's address into the backend's.
    pub(super) fn at_backend(&self, address: u64) -> Address {
        Address(address - self.address + self.base.0)
    }
}

/// The handles of the mapped pages of an expandable segment.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) page_bytes: usize,
    handles: Vec<Option<PhysicalHandle>>,
}

impl Pages {
    pub(super) fn new(page_bytes: usize) -> Self {
        Self { page_bytes, handles: Vec::new() }
    }

    /// Sets the handles of adjacent unmapped pages.
    pub(super) fn put(&mut self, first: usize, handles: Vec<PhysicalHandle>) {
        for (index, handle) in (first..).zip(handles) {
            if self.handles.len() <= index {
                self.handles.resize(index + 1, None);
            }
            let before = self.handles[index].replace(handle);
            debug_assert!(before.is_none(), "page {index} has memory: {before:?}");
        }
    }

    /// Takes the handle of a mapped page. Unmapped pages at the end leave the list.
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

    pub(super) fn handles(&self) -> impl Iterator<Item = PhysicalHandle> {
        self.handles.iter().flatten().copied()
    }
}

pub(super) type Segments = Table<Segment>;
