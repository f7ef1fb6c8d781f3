//! Entries of free blocks: the list of each, and the order in which their pages became idle.

use crate::base::table::{Id, Record, Records};
use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::grid::Parts;

pub(super) type FreeId = Id<FreeBlock>;

/// The index of an arena that lists a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// Mapped, without an unmapped neighbour.
    Closed,
    /// Mapped, beside an unmapped block.
    Open,
    /// Unmapped.
    Bare,
    /// None yet.
    None,
}

impl Listing {
    /// True for blocks with a neighbour that is listed by them.
    pub(super) fn meets_other(self) -> bool {
        matches!(self, Self::Open | Self::Bare)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FreeBlock {
    pub(super) block: BlockId,
    /// The units of the block, or of a bare block's gap.
    pub(super) units: u32,
    pub(super) listing: Listing,
    /// The list in that index.
    pub(super) list: u16,
    /// The neighbours in that list.
    pub(super) before: Option<FreeId>,
    pub(super) behind: Option<FreeId>,
    /// The block's idle pages and the units beside them; zeros for bare blocks and whole segments.
    pub(super) parts: Parts,
    /// The neighbours in the ring of blocks with idle pages.
    older: Option<FreeId>,
    newer: Option<FreeId>,
}

impl Record for FreeBlock {
    #[inline(always)]
    fn blank() -> Self {
        let (block, listing, parts) = (BlockId::of_place(0), Listing::None, Parts::default());
        let (units, list, before, behind, older, newer) = (0, 0, None, None, None, None);
        Self { block, units, listing, list, before, behind, parts, older, newer }
    }

    fn link(&mut self) -> &mut Option<FreeId> {
        &mut self.behind
    }
}

/// The entries of all free blocks.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    pub(super) entries: Records<FreeBlock>,
    pub(super) idle: Idle,
}

/// The blocks with idle pages: a ring from the oldest to the newest one, closed by the blank entry.
///
/// Equation: the ring contains them, `page_count` pages in total.
#[derive(Debug, Default)]
pub(super) struct Idle {
    page_count: usize,
}

impl Idle {
    /// Sets the parts of a block that changed. A block that gets its first idle pages becomes the
    /// newest; one that already has some keeps its position.
    #[inline(always)]
    pub(super) fn set_parts(&mut self, id: FreeId, parts: Parts, entries: &mut [FreeBlock]) {
        let newest = entries[0].older;
        let entry = &mut entries[id.index()];
        let was_idle = std::mem::replace(&mut entry.parts, parts).idle_pages;
        self.page_count += parts.idle_pages as usize;
        self.page_count -= was_idle as usize;
        let is_idle = parts.idle_pages > 0;
        if is_idle == (was_idle > 0) {
            return;
        }
        if is_idle {
            (entry.older, entry.newer) = (newest, None);
            entries[FreeId::index_of(newest)].newer = Some(id);
            entries[0].older = Some(id);
        } else {
            let FreeBlock { older, newer, .. } = *entry;
            entries[FreeId::index_of(older)].newer = newer;
            entries[FreeId::index_of(newer)].older = older;
        }
    }
}

impl FreeBlocks {
    /// Adds an entry for a free block, in no index and with empty parts.
    #[inline(always)]
    pub(super) fn insert(&mut self, block: BlockId) -> FreeId {
        self.entries.insert(FreeBlock { block, ..FreeBlock::blank() })
    }

    /// Removes an entry, which no index may list.
    #[inline(always)]
    pub(super) fn remove(&mut self, id: FreeId) {
        self.idle.set_parts(id, Parts::default(), self.entries.places());
        self.entries.remove(id);
    }

    /// Returns the blocks with idle pages, longest idle first.
    pub(super) fn idle(&self) -> impl Iterator<Item = BlockId> {
        let oldest = self.entries.blank().and_then(|blank| blank.newer);
        let entries = std::iter::successors(oldest, |id| self[*id].newer);
        entries.map(|id| self[id].block)
    }

    pub(super) fn idle_page_count(&self) -> usize {
        self.idle.page_count
    }
}

impl std::ops::Index<FreeId> for FreeBlocks {
    type Output = FreeBlock;

    fn index(&self, id: FreeId) -> &FreeBlock {
        &self.entries[id]
    }
}
