//! The memory behind the addresses of an area: which pages have some, and since when it is idle.

use std::ops::Range;

use crate::backend::contract::PhysicalHandle;

/// The pages of one area, from its beginning up to the last that ever had memory.
///
/// | a page | `mapped` | `idle_since` |
/// |---|---|---|
/// | has no memory | no | 0 |
/// | is touched by a block in use | yes, or a thread maps it | 0 |
/// | has memory that no block in use touches | yes | when the last one left |
///
/// A page that no block in use touches has no edge: `edges` counts the blocks in use that begin or
/// end in a page, which is what two blocks of one page have to agree on.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) page_bytes: usize,
    mapped: Vec<u64>,
    idle_since: Vec<u64>,
    edges: Vec<u32>,
    /// The task of the heap's stream after which nothing that was freed here is used.
    busy_until: Vec<u64>,
    handles: Vec<PhysicalHandle>,
}

const WORD_BITS: usize = 64;

impl Pages {
    pub(super) fn new(page_bytes: usize) -> Self {
        Self {
            page_bytes,
            mapped: Vec::new(),
            idle_since: Vec::new(),
            edges: Vec::new(),
            busy_until: Vec::new(),
            handles: Vec::new(),
        }
    }

    /// Makes room for pages up to `end`.
    fn know(&mut self, end: usize) {
        if self.edges.len() < end {
            self.mapped.resize(end.div_ceil(WORD_BITS), 0);
            self.idle_since.resize(end, 0);
            self.edges.resize(end, 0);
            self.busy_until.resize(end, 0);
            self.handles.resize(end, PhysicalHandle(0));
        }
    }

    /// How many pages of a range have no memory.
    pub(super) fn count_missing(&self, range: &Range<usize>) -> usize {
        let word = range.start / WORD_BITS;
        if (range.end - 1) / WORD_BITS == word {
            // As nearly always; pages that are not known have no memory.
            let mapped = self.mapped.get(word).copied().unwrap_or(0) >> (range.start % WORD_BITS);
            let missing = !mapped & (u64::MAX >> (WORD_BITS - range.len()));
            return if missing == 0 { 0 } else { missing.count_ones() as usize };
        }
        let known = range.start..range.end.min(self.edges.len()).max(range.start);
        let (first_word, end_word) = (known.start / WORD_BITS, known.end.div_ceil(WORD_BITS));
        let words = self.mapped.get(first_word..end_word).unwrap_or(&[]);
        let mapped: u32 = words
            .iter()
            .zip(first_word..)
            .map(|(word, index)| (word & mask_of(index, &known)).count_ones())
            .sum();
        range.len() - mapped as usize
    }

    /// How many pages of a range have memory that no block in use touches, and nothing uses after
    /// the task `done`: those that could move elsewhere.
    pub(super) fn count_movable(&self, range: &Range<usize>, done: u64) -> usize {
        let known = range.start..range.end.min(self.len()).max(range.start);
        let is_movable =
            |page: &usize| self.idle_since[*page] > 0 && self.busy_until[*page] <= done;
        known.filter(is_movable).count()
    }

    pub(super) fn is_mapped(&self, page: usize) -> bool {
        self.mapped.get(page / WORD_BITS).is_some_and(|word| word >> (page % WORD_BITS) & 1 == 1)
    }

    /// The first pages of a range that have memory, side by side; empty when none has.
    pub(super) fn first_mapped(&self, range: Range<usize>) -> Range<usize> {
        let start = self.first_where(true, range.clone());
        start..self.first_where(false, start..range.end)
    }

    /// The pages of a range that have memory, in runs of those side by side.
    pub(super) fn runs(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut left = range.start..range.end.min(self.len());
        std::iter::from_fn(move || {
            let run = self.first_mapped(left.clone());
            left.start = run.end;
            (!run.is_empty()).then_some(run)
        })
    }

    /// The first page of a range that has memory, or has none; the end when there is no such page.
    fn first_where(&self, is_mapped: bool, range: Range<usize>) -> usize {
        let mut page = range.start;
        while page < range.end {
            let mapped = self.mapped.get(page / WORD_BITS).copied().unwrap_or(0);
            let wanted = if is_mapped { mapped } else { !mapped } >> (page % WORD_BITS);
            if wanted != 0 {
                return range.end.min(page + wanted.trailing_zeros() as usize);
            }
            page = (page / WORD_BITS + 1) * WORD_BITS;
        }
        range.end
    }

    /// The pages of a range that have no memory.
    pub(super) fn missing(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range.filter(|page| !self.is_mapped(*page))
    }

    /// A block is in use that touches the pages of a range.
    pub(super) fn enter(&mut self, range: &Range<usize>) {
        self.know(range.end);
        self.edges[range.start] += 1;
        self.edges[range.end - 1] += 1;
        self.idle_since[range.clone()].fill(0);
    }

    /// The block is not in use any more, and nothing uses it after the task `busy_until`: the pages
    /// of the range that no other block in use touches.
    pub(super) fn leave(&mut self, range: &Range<usize>, busy_until: u64) -> Range<usize> {
        self.edges[range.start] -= 1;
        self.edges[range.end - 1] -= 1;
        if busy_until > 0 {
            for ticket in &mut self.busy_until[range.clone()] {
                *ticket = busy_until.max(*ticket);
            }
        }
        let start = range.start + usize::from(self.edges[range.start] > 0);
        let end = range.end - usize::from(self.edges[range.end - 1] > 0);
        start..end.max(start)
    }

    /// Notes since when the pages of a range are idle.
    pub(super) fn rest(&mut self, range: Range<usize>, since: u64) {
        self.idle_since[range].fill(since);
    }

    pub(super) fn is_any_idle_since(&self, range: Range<usize>, since: u64) -> bool {
        self.idle_since[range].contains(&since)
    }

    pub(super) fn idle_since(&self, page: usize) -> u64 {
        self.idle_since[page]
    }

    /// The task after which nothing of the past uses a page.
    pub(super) fn busy_until(&self, page: usize) -> u64 {
        self.busy_until[page]
    }

    /// A page has memory now.
    pub(super) fn put(&mut self, page: usize, handle: PhysicalHandle) {
        debug_assert!(!self.is_mapped(page), "page {page} has memory");
        self.mapped[page / WORD_BITS] |= 1 << (page % WORD_BITS);
        self.handles[page] = handle;
        self.busy_until[page] = 0;
    }

    /// Takes the memory of an idle page out.
    pub(super) fn take(&mut self, page: usize) -> PhysicalHandle {
        debug_assert!(self.is_mapped(page) && self.idle_since[page] > 0, "page {page} is idle");
        self.mapped[page / WORD_BITS] &= !(1 << (page % WORD_BITS));
        self.idle_since[page] = 0;
        self.handles[page]
    }

    /// How many have been known at one time.
    pub(super) fn len(&self) -> usize {
        self.edges.len()
    }

    pub(super) fn count_mapped(&self) -> usize {
        self.mapped.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn count_edges(&self, page: usize) -> u32 {
        self.edges[page]
    }
}

/// The bits of a word that stand for pages of a range.
fn mask_of(word: usize, range: &Range<usize>) -> u64 {
    let start = range.start.saturating_sub(word * WORD_BITS).min(WORD_BITS);
    let end = range.end.saturating_sub(word * WORD_BITS).min(WORD_BITS);
    let below = |bit: usize| if bit == WORD_BITS { u64::MAX } else { (1 << bit) - 1 };
    below(end) & !below(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_pages_are_counted_by_words_and_at_their_edges() {
        let mut pages = Pages::new(64);
        pages.enter(&(0..200));
        for page in [0, 63, 64, 127, 128, 199] {
            pages.put(page, PhysicalHandle(1));
        }
        for start in 0..200 {
            for end in [start + 1, start + 64, 200, 300] {
                let range = start..end.max(start + 1);
                let expected = range.clone().filter(|page| !pages.is_mapped(*page)).count();
                assert_eq!(pages.count_missing(&range), expected, "{range:?}");
                let found = pages.first_mapped(range.clone());
                let first = range.clone().find(|page| pages.is_mapped(*page)).unwrap_or(range.end);
                let mut behind = first..range.end;
                let end = behind.find(|page| !pages.is_mapped(*page)).unwrap_or(range.end);
                assert_eq!(found, first..end, "{range:?}");
            }
        }
    }

    #[test]
    fn a_shared_page_is_idle_when_both_blocks_have_left() {
        let mut pages = Pages::new(64);
        pages.enter(&(0..3));
        pages.enter(&(2..5));
        assert_eq!(pages.leave(&(0..3), 7), 0..2);
        pages.rest(0..2, 1);
        assert_eq!(pages.leave(&(2..5), 0), 2..5);
        assert_eq!((pages.busy_until(2), pages.busy_until(3)), (7, 0));
    }

    #[test]
    fn a_block_in_one_page_has_two_edges_there() {
        let mut pages = Pages::new(64);
        pages.enter(&(4..5));
        pages.enter(&(4..5));
        assert_eq!(pages.leave(&(4..5), 0), 5..5);
        assert_eq!(pages.leave(&(4..5), 0), 4..5);
    }
}
