//! Entries of free blocks: the list of each, and the order in which their pages became idle.
//!
//! # The index by size
//!
//! Source: Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic memory allocator for real-time
//! systems", 2004. Two levels of lists: powers of two, each in 32 steps. Bitmaps find the next
//! nonempty list, so insertion, removal and search take a bounded number of steps.

use std::hint;

use crate::base::table::{Record, Records};
use crate::memory::allocator::ids::{BlockId, FreeId, FreeKey};
use crate::memory::allocator::pages::Parts;
/// The index of an arena that lists a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeList {
    /// Mapped, without an unmapped neighbour.
    Mapped,
    /// Mapped, beside an unmapped block.
    NextToGap,
    /// Unmapped.
    Unmapped,
    /// None yet.
    None,
}

impl FreeList {
    /// True for blocks with a neighbour that is listed by them.
    pub(super) fn meets_other(self) -> bool {
        matches!(self, Self::NextToGap | Self::Unmapped)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FreeBlock {
    pub(super) block: BlockId,
    /// The units of the block, or of a bare block's gap.
    pub(super) units: u32,
    pub(super) listing: FreeList,
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

impl Record<FreeKey> for FreeBlock {
    #[inline(always)]
    fn blank() -> Self {
        let (block, listing, parts) = (BlockId::of_place(0), FreeList::None, Parts::default());
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
    pub(super) entries: Records<FreeBlock, FreeKey>,
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

/// The number of lists of one power of two.
const STEPS: u32 = 1 << STEP_BITS;
const STEP_BITS: u32 = 5;
/// Enough for all sizes of 32 bits.
const LEVELS: usize = 28;
/// The exponent of the lists in a word of the bitmap.
const WORD_BITS: u32 = u64::BITS.ilog2();

/// Free blocks in lists by size, linked through their entries.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The words with a nonempty list.
    words_in_use: u32,
    lists_in_use: [u64; (LEVELS << STEP_BITS) >> WORD_BITS],
    /// The first entry of each list, up to the highest list that was ever used.
    heads: Vec<Option<FreeId>>,
}

/// Returns the number of the list for blocks of a size. Each size below 64 has its own list.
#[expect(clippy::cast_possible_truncation, reason = "below 32 times the levels")]
pub(super) fn list_of(units: u32) -> u16 {
    let shift = (units | STEPS).ilog2() - STEP_BITS;
    ((shift << STEP_BITS) + (units >> shift)) as u16
}

/// Returns the word of a list, and the number of its bit there.
fn word_and_bit(list: u16) -> (usize, u32) {
    (usize::from(list) >> WORD_BITS, u32::from(list) % u64::BITS)
}

impl Index {
    /// Inserts an entry at the head of a list.
    #[inline(always)]
    pub(super) fn insert(&mut self, id: FreeId, list: u16, free: &mut [FreeBlock]) {
        let behind = match self.heads.get_mut(usize::from(list)) {
            Some(head) => head.replace(id),
            None => self.insert_new(id, list),
        };
        let entry = &mut free[id.index()];
        (entry.list, entry.before, entry.behind) = (list, None, behind);
        free[FreeId::index_of(behind)].before = Some(id);
        let (word, bit) = word_and_bit(list);
        self.lists_in_use[word] |= 1 << bit;
        self.words_in_use |= 1 << word;
    }

    #[cold]
    #[inline(never)]
    fn insert_new(&mut self, id: FreeId, list: u16) -> Option<FreeId> {
        let place = usize::from(list);
        self.heads.resize((place + 1).next_multiple_of(STEPS as usize), None);
        self.heads[place].replace(id)
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, id: FreeId, free: &mut [FreeBlock]) {
        let FreeBlock { list, before, behind, .. } = free[id.index()];
        free[FreeId::index_of(behind)].before = before;
        free[FreeId::index_of(before)].behind = behind;
        let head = &mut self.heads[list as usize];
        debug_assert!(before.is_some() || *head == Some(id), "the first of its list");
        // No branch, because which is the first and which lists become empty is not foreseen.
        *head = hint::select_unpredictable(before.is_none(), behind, *head);
        let (word, bit) = word_and_bit(list);
        let lists = &mut self.lists_in_use[word];
        *lists &= !(u64::from(head.is_none()) << bit);
        self.words_in_use &= !(u32::from(*lists == 0) << word);
    }

    /// Returns the nonempty lists from `own` on, in ascending order of size: the first entry of
    /// each, and true for `own`.
    #[inline(always)]
    pub(super) fn lists_from(&self, own: u16) -> impl Iterator<Item = (bool, FreeId)> {
        let (mut word, bit) = word_and_bit(own);
        let mut lists = self.lists_in_use[word] & u64::MAX << bit;
        let mut words = self.words_in_use & (u32::MAX << 1 << word);
        std::iter::from_fn(move || {
            if lists == 0 {
                if words == 0 {
                    return None;
                }
                word = words.trailing_zeros() as usize;
                words &= words - 1;
                lists = self.lists_in_use[word];
            }
            let list = word << WORD_BITS | lists.trailing_zeros() as usize;
            lists &= lists - 1;
            Some((list == usize::from(own), self.heads[list]?))
        })
    }

    pub(super) fn all(&self, free: &FreeBlocks) -> impl Iterator<Item = FreeId> {
        let list = |first| std::iter::successors(Some(first), |id| free[*id].behind);
        self.lists_from(list_of(0)).flat_map(move |(_, first)| list(first))
    }

    /// Asserts that an entry is in the list for `units`.
    pub(super) fn check_place(&self, id: FreeId, units: u32, free: &FreeBlocks) {
        let number = list_of(units);
        assert_eq!(free[id].list, number, "the list of {units} units");
        let first = self.heads[usize::from(number)];
        let mut list = std::iter::successors(first, |id| free[*id].behind);
        assert!(list.any(|listed| listed == id), "{id:?} of {units} units is listed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_rise_with_sizes_and_differ_by_a_thirty_second() {
        let mut before = list_of(1);
        for units in 2..100_000_u32 {
            let list = list_of(units);
            let is_next = list == before + 1;
            assert!(is_next || list == before, "{units}");
            assert!(units >= 64 || is_next, "each size below 64 has a list: {units}");
            let shift = units.ilog2().saturating_sub(STEP_BITS);
            assert!(is_next || (units - 1) >> shift == units >> shift, "{units}");
            before = list;
        }
        assert_eq!(usize::from(list_of(u32::MAX)), LEVELS * STEPS as usize - 1);
    }
}
