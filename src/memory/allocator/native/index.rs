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

/// Free blocks by size. Each stands in one list, linked through its entry.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Levels that have a list with something in it.
    levels_in_use: u64,
    levels: Vec<Level>,
}

#[derive(Clone, Debug, Default)]
struct Level {
    lists_in_use: u32,
    heads: [Option<FreeId>; STEPS as usize],
}

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    level: u32,
    step: u32,
}

impl Place {
    /// The list for blocks of a size. The first level has one list for each size below 32.
    #[inline]
    fn of(units: u32) -> Self {
        if units < STEPS {
            return Self { level: 0, step: units };
        }
        let power = units.ilog2();
        let step = (units >> (power - STEP_BITS)) & (STEPS - 1);
        Self { level: power - STEP_BITS + 1, step }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 27 levels")]
    fn number(self) -> u16 {
        (self.level << STEP_BITS | self.step) as u16
    }

    fn of_number(number: u16) -> Self {
        let number = u32::from(number);
        Self { level: number >> STEP_BITS, step: number & (STEPS - 1) }
    }
}

impl Index {
    /// Lists an entry by a size.
    pub(super) fn insert(&mut self, id: FreeId, units: u32, free: &mut FreeBlocks) {
        let place = Place::of(units);
        let level = place.level as usize;
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Level::default);
        }
        let lists = &mut self.levels[level];
        let behind = lists.heads[place.step as usize].replace(id);
        lists.lists_in_use |= 1 << place.step;
        self.levels_in_use |= 1 << place.level;
        let entry = &mut free[id];
        (entry.list, entry.before, entry.behind) = (place.number(), None, behind);
        if let Some(behind) = behind {
            free[behind].before = Some(id);
        }
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, id: FreeId, free: &mut FreeBlocks) {
        let entry = &free[id];
        let Place { level, step } = Place::of_number(entry.list);
        let (before, behind) = (entry.before, entry.behind);
        if let Some(behind) = behind {
            free[behind].before = before;
        }
        if let Some(before) = before {
            free[before].behind = behind;
            return;
        }
        let lists = &mut self.levels[level as usize];
        debug_assert_eq!(lists.heads[step as usize], Some(id), "the first of its list");
        lists.heads[step as usize] = behind;
        if behind.is_none() {
            lists.lists_in_use &= !(1 << step);
            if lists.lists_in_use == 0 {
                self.levels_in_use &= !(1 << level);
            }
        }
    }

    /// True when an entry stands in the list of a size.
    pub(super) fn has_in_list_of(units: u32, entry: &FreeBlock) -> bool {
        entry.list == Place::of(units).number()
    }

    /// The lists that blocks of a size may be in, or larger ones, by rising sizes: the first block
    /// of each, and whether it is the size's own list, where some may be smaller.
    pub(super) fn lists_from(&self, units: u32) -> impl Iterator<Item = (bool, FreeId)> {
        let own = Place::of(units);
        let mut from = own;
        std::iter::from_fn(move || {
            let found = self.next_list(from)?;
            from = Place { step: found.step + 1, ..found };
            Some((found == own, self.head(found)?))
        })
    }

    fn head(&self, place: Place) -> Option<FreeId> {
        self.levels[place.level as usize].heads[place.step as usize]
    }

    /// The first list with something in it, from a place on.
    fn next_list(&self, Place { level, step }: Place) -> Option<Place> {
        let lists = self.levels.get(level as usize).map_or(0, |lists| lists.lists_in_use);
        let here = if step < STEPS { lists & (u32::MAX << step) } else { 0 };
        if here != 0 {
            return Some(Place { level, step: here.trailing_zeros() });
        }
        let above = self.levels_in_use & u64::MAX.checked_shl(level + 1)?;
        if above == 0 {
            return None;
        }
        let level = above.trailing_zeros();
        let step = self.levels[level as usize].lists_in_use.trailing_zeros();
        Some(Place { level, step })
    }

    /// Every entry.
    pub(super) fn all(&self, free: &FreeBlocks) -> impl Iterator<Item = FreeId> {
        let list = |first| std::iter::successors(Some(first), |id| free[*id].behind);
        self.lists_from(0).flat_map(move |(_, first)| list(first))
    }

    /// Asserts that an entry stands in the list of a size.
    pub(super) fn check_place(&self, id: FreeId, units: u32, free: &FreeBlocks) {
        let place = Place::of(units);
        assert_eq!(free[id].list, place.number(), "the list of {units} units");
        let first = self.head(place);
        let mut list = std::iter::successors(first, |id| free[*id].behind);
        assert!(list.any(|listed| listed == id), "{id:?} of {units} units is listed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_rise_with_sizes_and_differ_by_a_thirty_second() {
        let mut last = Place::of(1);
        for units in 2..100_000_u32 {
            let place = Place::of(units);
            let rises = (place.level, place.step) > (last.level, last.step);
            assert!(rises || place == last, "{units}");
            assert!(units >= 64 || rises, "each size below 64 has a list: {units}");
            last = place;
        }
        assert_eq!(Place::of(u32::MAX), Place { level: 27, step: 31 });
    }
}
