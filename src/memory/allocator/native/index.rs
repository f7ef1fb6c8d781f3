//! The free blocks of one arena by size.
//!
//! Source: Masmano, Ripoll, Crespo and Real, "TLSF: a new dynamic memory allocator for real-time
//! systems", 2004.
//!
//! Two levels of lists: powers of two, each in 32 steps. Bitmaps find the next list that has
//! something, so insertion, removal and the search take a bounded number of steps.

use crate::memory::allocator::native::block::{BlockId, Blocks};

/// Lists of one power of two.
const STEPS: u32 = 1 << STEP_BITS;
const STEP_BITS: u32 = 5;

/// Which free blocks there are. A free block stands in one list, linked through its record.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Levels that have a list with something in it.
    levels_in_use: u64,
    levels: Vec<Level>,
}

#[derive(Clone, Debug, Default)]
struct Level {
    lists_in_use: u32,
    heads: [Option<BlockId>; STEPS as usize],
}

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    level: u32,
    step: u32,
}

/// The list for blocks of a size. The first level has one list for each size below 32.
fn place_of(units: u32) -> Place {
    if units < STEPS {
        return Place { level: 0, step: units };
    }
    let power = units.ilog2();
    let step = (units >> (power - STEP_BITS)) & (STEPS - 1);
    Place { level: power - STEP_BITS + 1, step }
}

impl Index {
    pub(super) fn insert(&mut self, id: BlockId, blocks: &mut Blocks) {
        let Place { level, step } = place_of(blocks[id].units);
        let place = level as usize;
        if self.levels.len() <= place {
            self.levels.resize_with(place + 1, Level::default);
        }
        let lists = &mut self.levels[place];
        let behind = lists.heads[step as usize].replace(id);
        lists.lists_in_use |= 1 << step;
        self.levels_in_use |= 1 << level;
        let block = &mut blocks[id];
        (block.listed_before, block.listed_behind) = (None, behind);
        if let Some(behind) = behind {
            blocks[behind].listed_before = Some(id);
        }
    }

    /// Takes a block out, whose size is what it was when it came in.
    pub(super) fn remove(&mut self, id: BlockId, blocks: &mut Blocks) {
        let block = &blocks[id];
        let Place { level, step } = place_of(block.units);
        let (before, behind) = (block.listed_before, block.listed_behind);
        if let Some(behind) = behind {
            blocks[behind].listed_before = before;
        }
        if let Some(before) = before {
            blocks[before].listed_behind = behind;
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

    /// The lists that blocks of a size may be in, or larger ones, by rising sizes: the first block
    /// of each, and whether it is the size's own list, where some may be smaller.
    pub(super) fn lists_from(&self, units: u32) -> impl Iterator<Item = (bool, BlockId)> {
        let own = place_of(units);
        let mut from = own;
        std::iter::from_fn(move || {
            let found = self.next_list(from)?;
            from = Place { step: found.step + 1, ..found };
            Some((found == own, self.head(found)?))
        })
    }

    fn head(&self, place: Place) -> Option<BlockId> {
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

    /// Every free block.
    pub(super) fn all(&self, blocks: &Blocks) -> impl Iterator<Item = BlockId> {
        let list = |first| std::iter::successors(Some(first), |id| blocks[*id].listed_behind);
        self.lists_from(0).flat_map(move |(_, first)| list(first))
    }

    /// Asserts that blocks stand in the list of their size.
    pub(super) fn check_places(&self, blocks: &Blocks) {
        for (level, lists) in (0..).zip(&self.levels) {
            for (step, first) in (0..).zip(&lists.heads) {
                assert_eq!(lists.lists_in_use >> step & 1 == 1, first.is_some(), "{lists:?}");
                let list = std::iter::successors(*first, |id| blocks[*id].listed_behind);
                for id in list {
                    assert_eq!(place_of(blocks[id].units), Place { level, step }, "{id:?}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_rise_with_sizes_and_differ_by_a_thirty_second() {
        let mut last = place_of(1);
        for units in 2..100_000_u32 {
            let place = place_of(units);
            let rises = (place.level, place.step) > (last.level, last.step);
            assert!(rises || place == last, "{units}");
            assert!(units >= 64 || rises, "each size below 64 has a list: {units}");
            last = place;
        }
        assert_eq!(place_of(u32::MAX), Place { level: 27, step: 31 });
    }
}
