//! Free blocks: in which list of an index each stands, and in which order their pages became idle.

use crate::base::table::Id;
use crate::memory::allocator::native::block::BlockId;
use crate::memory::allocator::native::split::Parts;

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
#[derive(Clone, Debug)]
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
    /// The entry of a block that became free, with its idle pages behind those of all others.
    pub(super) fn insert(&mut self, block: BlockId, listing: Listing, parts: Parts) -> FreeId {
        let idle_pages = parts.idle_pages;
        let older = self.newest.filter(|_| idle_pages > 0);
        let (list, before, behind, newer) = (0, None, None, None);
        let entry = FreeBlock { block, listing, list, before, behind, parts, older, newer };
        let id = if let Some(id) = self.vacant {
            self.vacant = self[id].behind;
            self[id] = entry;
            id
        } else {
            self.places.resize(self.places.len().max(1) + 1, entry);
            FreeId::of_place(self.places.len() - 2)
        };
        if idle_pages > 0 {
            self.idle_page_count += idle_pages as usize;
            match self.newest.replace(id) {
                Some(newest) => self[newest].newer = Some(id),
                None => self.oldest = Some(id),
            }
        }
        id
    }

    /// Forgets an entry that stands in no list of an index.
    pub(super) fn remove(&mut self, id: FreeId) {
        let vacant = self.vacant.replace(id);
        let entry = &mut self[id];
        entry.behind = vacant;
        let FreeBlock { parts: Parts { idle_pages, .. }, older, newer, .. } = *entry;
        if idle_pages == 0 {
            return;
        }
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
