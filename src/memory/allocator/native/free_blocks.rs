//! Free blocks: in which list of an index each stands, and in which order their pages became idle.

use crate::base::table::Id;
use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::grid::Parts;

/// An entry's place in the table.
pub(super) type FreeId = Id<FreeBlock>;

/// In which index of its arena a free block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// It has memory, and no neighbour lacks some.
    Closed,
    /// It has memory, beside addresses without.
    Open,
    /// It has no memory.
    Bare,
}

/// What is known of a free block alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeBlock {
    pub(super) block: BlockId,
    pub(super) listing: Listing,
    /// The list of that index.
    pub(super) list: u16,
    /// Its neighbours in that list.
    pub(super) before: Option<FreeId>,
    pub(super) behind: Option<FreeId>,
    /// What of it is held back, and the pages that no other block touches, which are idle; none
    /// without memory.
    pub(super) parts: Parts,
    /// Its neighbours among the blocks with idle pages.
    older: Option<FreeId>,
    newer: Option<FreeId>,
}

/// All free blocks of an allocator. Places of entries that are gone are used again, last first.
///
/// Equation: the blocks from `oldest` to `newest` are those with idle pages, of which they have
/// `idle_page_count` together.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    /// By their numbers; the first one is no block's.
    places: Vec<FreeBlock>,
    /// Heads a list through `behind` of places without an entry.
    vacant: Option<FreeId>,
    oldest: Option<FreeId>,
    newest: Option<FreeId>,
    idle_page_count: usize,
}

impl FreeBlocks {
    /// The entry of a block that became free, whose parts are not known yet.
    pub(super) fn insert(&mut self, block: BlockId, listing: Listing) -> FreeId {
        let (list, before, behind, older, newer) = (0, None, None, None, None);
        let parts = Parts::default();
        let entry = FreeBlock { block, listing, list, before, behind, parts, older, newer };
        let Some(id) = self.vacant else { return self.insert_new(entry) };
        self.vacant = self[id].behind;
        self[id] = entry;
        id
    }

    #[cold]
    fn insert_new(&mut self, entry: FreeBlock) -> FreeId {
        self.places.resize(self.places.len().max(1) + 1, entry);
        FreeId::of_place(self.places.len() - 2)
    }

    /// Forgets an entry that stands in no list of an index.
    pub(super) fn remove(&mut self, id: FreeId) {
        let idle_pages = self[id].parts.idle_pages;
        if idle_pages > 0 {
            self.end_idle(id, idle_pages);
        }
        self[id].behind = self.vacant.replace(id);
    }

    /// A block has become another one. Where it has idle pages it stays where it is among those
    /// that have some, or is behind all others.
    #[inline(always)]
    pub(super) fn set_parts(&mut self, id: FreeId, parts: Parts) {
        let entry = &mut self[id];
        let was_idle = std::mem::replace(&mut entry.parts, parts).idle_pages;
        if (was_idle > 0) == (parts.idle_pages > 0) {
            self.idle_page_count += parts.idle_pages as usize;
            self.idle_page_count -= was_idle as usize;
        } else if was_idle > 0 {
            self.end_idle(id, was_idle);
        } else {
            self.begin_idle(id);
        }
    }

    fn begin_idle(&mut self, id: FreeId) {
        self.idle_page_count += self[id].parts.idle_pages as usize;
        let older = self.newest.replace(id);
        match older {
            Some(older) => self[older].newer = Some(id),
            None => self.oldest = Some(id),
        }
        (self[id].older, self[id].newer) = (older, None);
    }

    fn end_idle(&mut self, id: FreeId, idle_pages: u32) {
        let FreeBlock { older, newer, .. } = self[id];
        self.idle_page_count -= idle_pages as usize;
        match older {
            Some(older) => self[older].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self[newer].older = older,
            None => self.newest = older,
        }
    }

    /// The blocks with idle pages, longest idle first.
    pub(super) fn idle(&self) -> impl Iterator<Item = BlockId> {
        let entries = std::iter::successors(self.oldest, |id| self[*id].newer);
        entries.map(|id| self[id].block)
    }

    pub(super) fn idle_page_count(&self) -> usize {
        self.idle_page_count
    }
}

impl std::ops::Index<FreeId> for FreeBlocks {
    type Output = FreeBlock;

    fn index(&self, id: FreeId) -> &FreeBlock {
        &self.places[id.number() as usize]
    }
}

impl std::ops::IndexMut<FreeId> for FreeBlocks {
    fn index_mut(&mut self, id: FreeId) -> &mut FreeBlock {
        &mut self.places[id.number() as usize]
    }
}
