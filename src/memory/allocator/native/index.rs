//! The free blocks of one arena by size.
//!
//! Source: Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic memory allocator for real-time
//! systems", 2004.
//!
//! Two levels of lists: powers of two, each in 32 steps. Bitmaps find the next list that has
//! something, so insertion, removal and the search take a bounded number of steps.

use crate::memory::allocator::native::free_blocks::{FreeBlock, FreeBlocks, FreeId};

/// Lists of one power of two.
const STEPS: u32 = 1 << STEP_BITS;
const STEP_BITS: u32 = 5;
/// Up to the largest number of units that is counted.
const LEVELS: usize = 28;

/// Free blocks by size. Each stands in one list, linked through its entry.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Levels that have a list with something in it,
    levels_in_use: u32,
    /// and their lists.
    lists_in_use: [u32; LEVELS],
    /// The first of each list, by its number, up to the last that ever had one.
    heads: Vec<Option<FreeId>>,
}

/// The number of the list for blocks of a size: of those below 64 each has one.
#[expect(clippy::cast_possible_truncation, reason = "below 32 times the levels")]
pub(super) fn list_of(units: u32) -> u16 {
    let shift = (units | STEPS).ilog2() - STEP_BITS;
    ((shift << STEP_BITS) + (units >> shift)) as u16
}

/// A list's level, and its bit there.
fn level_and_step(list: u16) -> (usize, u32) {
    (usize::from(list) >> STEP_BITS, 1 << (u32::from(list) % STEPS))
}

impl Index {
    /// Puts an entry in front of a list.
    #[inline]
    pub(super) fn insert(&mut self, id: FreeId, list: u16, free: &mut FreeBlocks) {
        let place = usize::from(list);
        if self.heads.len() <= place {
            self.heads.resize((place + 1).next_multiple_of(STEPS as usize), None);
        }
        let behind = self.heads[place].replace(id);
        let entry = &mut free[id];
        (entry.list, entry.before, entry.behind) = (list, None, behind);
        if let Some(behind) = behind {
            free[behind].before = Some(id);
            return;
        }
        let (level, step) = level_and_step(list);
        self.lists_in_use[level] |= step;
        self.levels_in_use |= 1 << level;
    }

    /// Takes an entry out.
    #[inline]
    pub(super) fn remove(&mut self, id: FreeId, free: &mut FreeBlocks) {
        let FreeBlock { list, before, behind, .. } = free[id];
        if let Some(behind) = behind {
            free[behind].before = before;
        }
        if let Some(before) = before {
            free[before].behind = behind;
            return;
        }
        debug_assert_eq!(self.heads[list as usize], Some(id), "the first of its list");
        self.heads[list as usize] = behind;
        if behind.is_none() {
            let (level, step) = level_and_step(list);
            let lists = &mut self.lists_in_use[level];
            *lists &= !step;
            if *lists == 0 {
                self.levels_in_use &= !(1 << level);
            }
        }
    }

    /// The lists that blocks of a size may be in, or larger ones, by rising sizes: the first block
    /// of each, and whether it is the size's own list, where some may be smaller.
    pub(super) fn lists_from(&self, units: u32) -> impl Iterator<Item = (bool, FreeId)> {
        let own = list_of(units);
        let mut from = own;
        std::iter::from_fn(move || {
            let (list, first) = self.next_list(from)?;
            from = list + 1;
            Some((list == own, first))
        })
    }

    /// The first list with something in it, from one on, and what is first there.
    pub(super) fn next_list(&self, list: u16) -> Option<(u16, FreeId)> {
        let (mut level, step) = level_and_step(list);
        let mut lists = self.lists_in_use.get(level)? & step.wrapping_neg();
        if lists == 0 {
            let above = self.levels_in_use & (u32::MAX << 1 << level);
            if above == 0 {
                return None;
            }
            level = above.trailing_zeros() as usize;
            lists = self.lists_in_use[level];
        }
        #[expect(clippy::cast_possible_truncation, reason = "below 32 times the levels")]
        let list = (level << STEP_BITS) as u16 | lists.trailing_zeros() as u16;
        Some((list, self.heads[usize::from(list)]?))
    }

    /// Every entry.
    pub(super) fn all(&self, free: &FreeBlocks) -> impl Iterator<Item = FreeId> {
        let list = |first| std::iter::successors(Some(first), |id| free[*id].behind);
        self.lists_from(0).flat_map(move |(_, first)| list(first))
    }

    /// Asserts that an entry stands in the list of a size.
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
