//! What one thread counts of requests and frees, so that no two threads write to one counter.

use crate::allocator::snapshot::PoolClass;

/// Counts of pieces, of their bytes, and of the bytes asked for.
///
/// A thread that frees what others allocated has currents below zero, which the sum over threads
/// makes up for.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    classes: [[Total; 3]; 2],
    /// Of both classes together.
    all: [Level; 3],
    /// Pieces that were allocated and that were current when the peaks were reset, of both classes:
    /// they tell whether anything was counted since.
    at_reset: (u64, i64),
    /// True when its peaks are sums of peaks that were passed at different times.
    has_lost_peaks: bool,
}

/// Of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    level: Level,
    /// What was ever allocated.
    allocated: u64,
}

/// How far what is current is below its peak: one number moves, and its sign tells when the peak is
/// passed.
///
/// Those of the three quantities are not side by side. If they were, some steps would move two as
/// one word and others each alone, which costs a processor as much as all the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    below_peak: i64,
    peak: i64,
}

/// One piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) class: PoolClass,
    pub(super) bytes: usize,
    pub(super) requested_bytes: usize,
}

impl Counted {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    #[expect(clippy::cast_possible_wrap, reason = "below an exbibyte")]
    fn amounts(self) -> [i64; 3] {
        [1, self.bytes as i64, self.requested_bytes as i64]
    }
}

impl Level {
    fn current(self) -> i64 {
        self.peak - self.below_peak
    }

    /// What is above its peak is the peak.
    fn settle(&mut self) {
        let above = (-self.below_peak).max(0);
        self.peak += above;
        self.below_peak += above;
    }

    fn reset_peak(&mut self) {
        *self = Self { below_peak: 0, peak: self.current() };
    }

    /// Adds another one. Where one of both did not move since the reset, its peak is what is
    /// current, and the sum has the peak of the sum.
    fn absorb(&mut self, other: Self) {
        self.peak += other.peak;
        self.below_peak += other.below_peak;
    }
}

impl Cell {
    /// A program has a piece now.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn begin(&mut self, counted: Counted) {
        let (own, amounts) = (&mut self.classes[counted.class as usize], counted.amounts());
        let mut signs = 0;
        for index in 0..3 {
            let (own, all) = (&mut own[index], &mut self.all[index]);
            own.level.below_peak -= amounts[index];
            all.below_peak -= amounts[index];
            signs |= own.level.below_peak | all.below_peak;
            own.allocated = own.allocated.wrapping_add(amounts[index].cast_unsigned());
        }
        if signs < 0 {
            self.settle();
        }
    }

    /// A program has given it back.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn end(&mut self, counted: Counted) {
        let (own, amounts) = (&mut self.classes[counted.class as usize], counted.amounts());
        for index in 0..3 {
            own[index].level.below_peak += amounts[index];
            self.all[index].below_peak += amounts[index];
        }
    }

    fn levels(&mut self) -> impl Iterator<Item = &mut Level> {
        let own = self.classes.as_flattened_mut().iter_mut().map(|total| &mut total.level);
        own.chain(&mut self.all)
    }

    /// What is above its peak is the peak.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        self.levels().for_each(Level::settle);
    }

    /// True when something was counted since the peaks were reset.
    pub(super) fn is_moved(&self) -> bool {
        self.moves() != self.at_reset
    }

    /// True when several threads counted in it, one of which is over.
    pub(super) fn has_lost_peaks(&self) -> bool {
        self.has_lost_peaks
    }

    /// Pieces that were allocated and that are current, of both classes.
    fn moves(&self) -> (u64, i64) {
        let [small, large] = &self.classes;
        (small[0].allocated.wrapping_add(large[0].allocated), self.all[0].current())
    }

    /// What is current is the peak.
    pub(super) fn reset_peaks(&mut self) {
        self.levels().for_each(Level::reset_peak);
        self.at_reset = self.moves();
        self.has_lost_peaks = false;
    }

    /// Adds what another one counted, which is over.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.has_lost_peaks |= other.has_lost_peaks || (self.is_moved() && other.is_moved());
        self.at_reset.0 = self.at_reset.0.wrapping_add(other.at_reset.0);
        self.at_reset.1 += other.at_reset.1;
        let classes = self.classes.as_flattened_mut().iter_mut();
        for (own, other) in classes.zip(other.classes.as_flattened()) {
            own.level.absorb(other.level);
            own.allocated = own.allocated.wrapping_add(other.allocated);
        }
        self.all.iter_mut().zip(other.all).for_each(|(own, other)| own.absorb(other));
    }

    /// What it knows of one quantity.
    pub(super) fn sums(&self, quantity: Quantity) -> CellSums {
        let of = |level: Level, allocated| Part {
            current: level.current(),
            peak: level.peak,
            allocated,
        };
        let [small, large] = self.classes.map(|totals| totals[quantity as usize]);
        CellSums {
            small: of(small.level, small.allocated),
            large: of(large.level, large.allocated),
            all: of(self.all[quantity as usize], small.allocated.wrapping_add(large.allocated)),
        }
    }
}

/// What is counted of a piece.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quantity {
    Count,
    Bytes,
    RequestedBytes,
}

/// One quantity of one cell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CellSums {
    pub(super) small: Part,
    pub(super) large: Part,
    pub(super) all: Part,
}

/// One class of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) current: i64,
    pub(super) peak: i64,
    pub(super) allocated: u64,
}
