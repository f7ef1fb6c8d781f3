//! Counts with peaks, by class: of blocks in use or awaiting their free, and of splits.
//!
//! # Inactive splits
//!
//! PyTorch's name for free memory that cannot go back to the device as it is. In a segment, each
//! free block is a part, except one that is the whole segment. Where pages are mapped one by one,
//! the units of a free block outside of its idle pages are parts, because other blocks touch the
//! pages there. In a slab, the free small blocks are parts; adjacent ones count as one, as in
//! snapshots. The parts of a slab are counted without their neighbours outside of it, so that no
//! change looks at those.

use std::ops::AddAssign;

use crate::memory::allocator::area::Area;
use crate::memory::allocator::block::Block;
use crate::memory::allocator::pages::{Grid, Parts};
use crate::memory::allocator::slab::Slab;
use crate::memory::allocator::snapshot::PoolClass;
use crate::memory::allocator::stats::{PooledStat, Stat, Statistics};
/// Amounts and their peaks. A peak is passed seldom, so what is stored is the room below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeakCounters<const N: usize> {
    peaks: [u64; N],
    rooms: [i64; N],
}

impl<const N: usize> Default for PeakCounters<N> {
    fn default() -> Self {
        Self { peaks: [0; N], rooms: [0; N] }
    }
}

impl<const N: usize> PeakCounters<N> {
    pub(crate) fn current(&self) -> [u64; N] {
        std::array::from_fn(|index| below(self.peaks[index], self.rooms[index]))
    }

    pub(super) fn peaks(&self) -> [u64; N] {
        self.peaks
    }

    /// Adds amounts. Negative when one passes its peak: [`Self::raise`] must come next.
    #[inline(always)]
    fn add(&mut self, amounts: [i64; N]) -> i64 {
        self.rooms.iter_mut().zip(amounts).fold(0, |signs, (room, amount)| {
            *room -= amount;
            signs | *room
        })
    }

    #[inline(always)]
    fn subtract(&mut self, amounts: [i64; N]) {
        self.rooms.iter_mut().zip(amounts).for_each(|(room, amount)| *room += amount);
    }

    /// Raises the peaks that are passed.
    fn raise(&mut self) {
        for (peak, room) in self.peaks.iter_mut().zip(&mut self.rooms) {
            let over = (*room).min(0);
            (*peak, *room) = (below(*peak, over), *room - over);
        }
    }

    fn reset_peaks(&mut self) {
        (self.peaks, self.rooms) = (self.current(), [0; N]);
    }
}

/// A number, its bytes and, with three amounts, the requested bytes, of each class and of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolCounters<const N: usize> {
    classes: [PeakCounters<N>; 2],
    all: PeakCounters<N>,
}

impl<const N: usize> Default for PoolCounters<N> {
    fn default() -> Self {
        Self { classes: [PeakCounters::default(); 2], all: PeakCounters::default() }
    }
}

impl<const N: usize> PoolCounters<N> {
    #[inline(always)]
    pub(super) fn leave(&mut self, class: PoolClass, amounts: [usize; N]) {
        self.change(class, signed(amounts));
    }

    /// Adds amounts of either sign.
    #[inline(always)]
    pub(super) fn change(&mut self, class: PoolClass, amounts: [i64; N]) {
        if self.classes[class as usize].add(amounts) | self.all.add(amounts) < 0 {
            self.raise(class);
        }
    }

    #[cold]
    #[inline(never)]
    fn raise(&mut self, class: PoolClass) {
        self.classes[class as usize].raise();
        self.all.raise();
    }

    #[inline(always)]
    pub(super) fn come_back(&mut self, class: PoolClass, amounts: [usize; N]) {
        let amounts = signed(amounts);
        self.classes[class as usize].subtract(amounts);
        self.all.subtract(amounts);
    }

    pub(super) fn reset_peaks(&mut self) {
        self.classes.iter_mut().chain([&mut self.all]).for_each(PeakCounters::reset_peaks);
    }

    pub(super) fn of(&self, class: PoolClass) -> &PeakCounters<N> {
        &self.classes[class as usize]
    }

    pub(crate) fn all(&self) -> &PeakCounters<N> {
        &self.all
    }
}

#[inline(always)]
fn signed<const N: usize>(amounts: [usize; N]) -> [i64; N] {
    amounts.map(|amount| amount.cast_signed() as i64)
}

/// An amount with so much room below its peak; negative room raises it.
fn below(peak: u64, room: i64) -> u64 {
    peak.checked_add_signed(-room).expect("no amount is negative")
}

/// The number of parts, and their bytes, and their history. What was given up follows: it is what
/// was gained and is not there any more.
#[derive(Debug, Default)]
pub(super) struct InactiveSplits {
    now: PoolCounters<2>,
    /// Of each class, as the next field.
    gained: [[u64; 2]; 2],
    /// What was there when the sums were reset.
    at_reset: [[u64; 2]; 2],
    /// Changes that are not counted yet: counted together, sums in between raise no peak.
    pub(super) moved: Change,
}

/// A change of the number of parts, and of their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) count: isize,
    pub(super) bytes: isize,
}

impl InactiveSplits {
    /// Counts what moved in an arena of a class.
    #[inline(always)]
    pub(super) fn count_moved(&mut self, class: PoolClass) {
        let moved = std::mem::take(&mut self.moved);
        self.count(class, moved);
    }

    /// Counts a change. No branch on its sign, which is not foreseen.
    #[inline(always)]
    pub(super) fn count(&mut self, class: PoolClass, Change { count, bytes }: Change) {
        let amounts = [count as i64, bytes as i64];
        for (gained, amount) in self.gained[class as usize].iter_mut().zip(amounts) {
            *gained += amount.max(0).cast_unsigned();
        }
        self.now.change(class, amounts);
    }

    /// Adds the sums to those of the other engine.
    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        statistics.inactive_split.add(&self.stat(0));
        statistics.inactive_split_bytes.add(&self.stat(1));
    }

    fn stat(&self, of: usize) -> PooledStat {
        let class = |class: PoolClass| {
            let (now, gained) = (self.now.of(class), self.gained[class as usize][of]);
            let current = now.current()[of];
            let freed = gained + self.at_reset[class as usize][of] - current;
            Stat { current, peak: now.peaks()[of], allocated: gained, freed }
        };
        let [small_pool, large_pool] = [PoolClass::Small, PoolClass::Large].map(class);
        let mut all = small_pool;
        all.add(&large_pool);
        all.peak = self.now.all().peaks()[of];
        PooledStat { all, small_pool, large_pool }
    }

    pub(crate) fn reset_peaks(&mut self) {
        self.now.reset_peaks();
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.gained = Default::default();
        self.at_reset =
            [PoolClass::Small, PoolClass::Large].map(|class| self.now.of(class).current());
    }
}

impl AddAssign for Change {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

impl Parts {
    /// Returns the change from these parts to others.
    #[inline(always)]
    pub(super) fn change_to(self, parts: Self, area: &Area) -> Change {
        let count = |it: Self| isize::from(it.before > 0) + isize::from(it.behind > 0);
        let bytes = |it: Self| area.bytes_of(it.before + it.behind).cast_signed();
        Change { count: count(parts) - count(self), bytes: bytes(parts) - bytes(self) }
    }

    pub(super) fn of_free(block: &Block, area: &Area, grid: Grid) -> Self {
        if area.pages.is_none() && block.offset == 0 && block.next.is_none() {
            return Self::default(); // a whole segment
        }
        let (idle_pages, [before, behind]) = grid.covered_and_beside(&block.range());
        Self { before, behind, idle_pages }
    }
}

impl Slab {
    /// Returns the change of the inactive splits when the free blocks were those of `before`.
    /// Adjacent ones are one part.
    #[inline(always)]
    pub(super) fn change_since(&self, before: u64) -> Change {
        let grown = |now: u64, then: u64| {
            now.count_ones().cast_signed() as isize - then.count_ones().cast_signed() as isize
        };
        let begins = |free: u64| free & !(free << 1);
        let bytes = grown(self.free, before) * self.class.bytes().cast_signed();
        Change { count: grown(begins(self.free), begins(before)), bytes }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    /// Goal: room below peaks counts as amounts and peaks would. Method: random steps, counted in
    /// both ways; peaks are reset now and then.
    #[test]
    fn peaks_are_those_of_each_class_and_of_both() {
        let mut numbers = Numbers::new(seed());
        let mut amounts = PoolCounters::<2>::default();
        let (mut current, mut peaks) = ([[0_u64; 2]; 3], [[0_u64; 2]; 3]);
        let mut out: Vec<(PoolClass, usize)> = Vec::new();
        for _ in 0..5_000 {
            let is_free = !out.is_empty() && numbers.below(2) == 0;
            let (class, bytes) = if is_free {
                out.swap_remove(numbers.below(out.len()))
            } else {
                let class = [PoolClass::Small, PoolClass::Large][numbers.below(2)];
                (class, numbers.below(1 << 20))
            };
            for of in [class as usize, 2] {
                for (index, amount) in [1, bytes as u64].into_iter().enumerate() {
                    let now = &mut current[of][index];
                    *now = if is_free { *now - amount } else { *now + amount };
                    peaks[of][index] = peaks[of][index].max(*now);
                }
            }
            if is_free {
                amounts.come_back(class, [1, bytes]);
            } else {
                amounts.leave(class, [1, bytes]);
                out.push((class, bytes));
            }
            if numbers.below(100) == 0 {
                amounts.reset_peaks();
                peaks = current;
            }
            let [small, large] = [PoolClass::Small, PoolClass::Large].map(|it| amounts.of(it));
            for (of, it) in [small, large, amounts.all()].into_iter().enumerate() {
                assert_eq!((it.current(), it.peaks()), (current[of], peaks[of]));
            }
        }
    }
}
