//! The counts of one thread's requests and frees. No two threads write to one counter.

use crate::memory::allocator::snapshot::PoolClass;

/// Peaks that are passed one by one before the cell climbs. Each climb costs a slow free at its
/// end.
const PASSES_BEFORE_CLIMB: u8 = 4;
/// Above every count.
const NO_BOUND: i64 = i64::MAX / 2;

/// Counts of pieces, of their bytes, and of their requested bytes. The currents of a thread that
/// frees other threads' pieces may be negative; the sum over all threads is not.
///
/// Equations, for each quantity: the current value of the class in force is `current` of its total
/// plus what `room` lost since `room_then`; `room` is the distance from the current values to the
/// nearer peak, that of the class or that of both classes.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// The quantities of the class in force.
    moving: [Moving; 3],
    /// The requested bytes of its allocations since the last settlement.
    requested_bytes: u64,
    class: PoolClass,
    /// The class whose frees take the fast path: the class in force, or none during a climb.
    free_class: Option<PoolClass>,
    /// Peaks passed since the last free on the slow path.
    passes: u8,
    /// Totals by class, as of the last settlement.
    classes: [[Total; 3]; 2],
    /// The peaks of both classes together.
    all_peak: [i64; 3],
    /// Allocated and current pieces at the last reset of peaks, which tell whether anything was
    /// counted since.
    at_reset: (u64, i64),
    /// True when the peaks are sums of peaks of several threads, passed at different times.
    has_lost_peaks: bool,
}

/// One quantity of the class in force.
///
/// The rooms are not adjacent: a store of two words as one, read as single words, costs a processor
/// as much as all the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Moving {
    /// What may be allocated before a peak is passed; negative beyond it.
    room: i64,
    /// `room` at the last settlement.
    room_then: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    current: i64,
    peak: i64,
    /// The sum of all allocations.
    allocated: u64,
}

/// The class and sizes of a piece.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory::allocator) struct Counted {
    pub(super) class: PoolClass,
    pub(super) bytes: usize,
    pub(super) requested_bytes: usize,
}

impl Counted {
    #[inline(always)]
    #[expect(clippy::cast_possible_wrap, reason = "below an exbibyte")]
    fn amounts(self) -> [i64; 3] {
        [1, self.bytes as i64, self.requested_bytes as i64]
    }
}

impl Cell {
    /// Counts an allocation.
    pub(super) fn begin(&mut self, counted: Counted) {
        self.note_taken(counted.class, counted.bytes, 1);
        self.begin_taken(counted);
    }

    /// As [`Cell::begin`], for a piece that the bin's take count includes.
    pub(super) fn begin_taken(&mut self, counted: Counted) {
        if !self.is_in_force(counted.class) {
            self.put_in_force(counted.class);
        }
        if !self.begin_below_peak(counted) {
            self.move_by(counted);
            self.settle();
            self.passes += 1;
            if self.passes == PASSES_BEFORE_CLIMB {
                self.climb();
            }
        }
    }

    /// As [`Cell::begin_taken`], for the class in force. False, without counting, when a peak would
    /// be passed.
    #[inline(always)]
    pub(super) fn begin_below_peak(&mut self, counted: Counted) -> bool {
        let mut signs = 0;
        for (moving, amount) in self.moving.iter().zip(counted.amounts()) {
            signs |= moving.room - amount;
        }
        if signs >= 0 {
            self.move_by(counted);
        }
        signs >= 0
    }

    #[inline(always)]
    fn move_by(&mut self, counted: Counted) {
        for (moving, amount) in self.moving.iter_mut().zip(counted.amounts()) {
            moving.room -= amount;
        }
        self.requested_bytes = self.requested_bytes.wrapping_add(counted.requested_bytes as u64);
    }

    /// Adds `count` allocations to the sums, whose currents were counted before.
    pub(super) fn note_taken(&mut self, class: PoolClass, bytes: usize, count: u64) {
        let [counts, all_bytes, _] = &mut self.classes[class as usize];
        counts.allocated = counts.allocated.wrapping_add(count);
        let taken_bytes = count.wrapping_mul(bytes as u64);
        all_bytes.allocated = all_bytes.allocated.wrapping_add(taken_bytes);
    }

    /// Counts a free.
    pub(super) fn end(&mut self, counted: Counted) {
        if !self.counts_frees_of(counted.class) {
            self.put_in_force(counted.class);
        }
        self.passes = 0;
        self.end_in_force(counted);
    }

    /// As [`Cell::end`], where [`Cell::counts_frees_of`] the class.
    #[inline(always)]
    pub(super) fn end_in_force(&mut self, counted: Counted) {
        for (moving, amount) in self.moving.iter_mut().zip(counted.amounts()) {
            moving.room += amount;
        }
    }

    /// True when frees of a class take the fast path.
    #[inline(always)]
    pub(super) fn counts_frees_of(&self, class: PoolClass) -> bool {
        self.free_class == Some(class)
    }

    /// True when allocations of a class take the fast path below the peaks.
    #[inline(always)]
    pub(super) fn is_in_force(&self, class: PoolClass) -> bool {
        self.class == class
    }

    #[cold]
    #[inline(never)]
    fn put_in_force(&mut self, class: PoolClass) {
        self.add_moves();
        self.class = class;
        self.measure_room();
    }

    /// Adds the moves to the totals, and raises the peaks.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        self.add_moves();
        self.measure_room();
    }

    /// As [`Self::settle`], before the class in force changes.
    #[inline(always)]
    fn add_moves(&mut self) {
        for (quantity, moving) in self.moving.iter_mut().enumerate() {
            let total = &mut self.classes[self.class as usize][quantity];
            total.current += moving.room_then - moving.room;
            total.peak = total.peak.max(total.current);
        }
        let [_, _, requested] = &mut self.classes[self.class as usize];
        let moved = std::mem::take(&mut self.requested_bytes);
        requested.allocated = requested.allocated.wrapping_add(moved);
        for quantity in 0..self.moving.len() {
            let peak = &mut self.all_peak[quantity];
            *peak = (*peak).max(self.classes.iter().map(|totals| totals[quantity].current).sum());
        }
    }

    /// Stops comparing with the peaks until the next free.
    #[cold]
    fn climb(&mut self) {
        self.passes = 0;
        self.free_class = None;
        for moving in &mut self.moving {
            *moving = Moving { room: NO_BOUND, room_then: NO_BOUND };
        }
    }

    /// Computes the room below the peaks, after a settlement.
    fn measure_room(&mut self) {
        self.free_class = Some(self.class);
        for (quantity, moving) in self.moving.iter_mut().enumerate() {
            let total = &self.classes[self.class as usize][quantity];
            let all: i64 = self.classes.iter().map(|totals| totals[quantity].current).sum();
            moving.room = (total.peak - total.current).min(self.all_peak[quantity] - all);
            moving.room_then = moving.room;
        }
    }

    /// True when something was counted since the last reset of peaks.
    pub(super) fn is_moved(&self) -> bool {
        self.moves() != self.at_reset
    }

    /// True when the counts of an ended thread were added to those of another.
    pub(super) fn has_lost_peaks(&self) -> bool {
        self.has_lost_peaks
    }

    /// The allocated and current pieces of both classes.
    fn moves(&self) -> (u64, i64) {
        let Part { allocated, current, .. } = self.sums(Quantity::Count).all;
        (allocated, current)
    }

    /// Lowers every peak to its current value.
    pub(super) fn reset_peaks(&mut self) {
        self.settle();
        for quantity in 0..self.moving.len() {
            let totals = self.classes.iter_mut().map(|totals| &mut totals[quantity]);
            self.all_peak[quantity] = totals
                .map(|total| {
                    total.peak = total.current;
                    total.current
                })
                .sum();
        }
        self.measure_room();
        self.at_reset = self.moves();
        self.has_lost_peaks = false;
    }

    /// Adds the counts of an ended thread. The sum of both peaks is exact where one of the cells
    /// did not move since the reset.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.has_lost_peaks |= other.has_lost_peaks || (self.is_moved() && other.is_moved());
        self.at_reset.0 = self.at_reset.0.wrapping_add(other.at_reset.0);
        self.at_reset.1 += other.at_reset.1;
        self.settle();
        let other = other.settled();
        let classes = self.classes.as_flattened_mut().iter_mut();
        for (own, other) in classes.zip(other.classes.as_flattened()) {
            own.current += other.current;
            own.peak += other.peak;
            own.allocated = own.allocated.wrapping_add(other.allocated);
        }
        self.all_peak.iter_mut().zip(other.all_peak).for_each(|(own, other)| *own += other);
        self.measure_room();
    }

    fn settled(&self) -> Self {
        let mut cell = self.clone();
        cell.settle();
        cell
    }

    /// Returns the settled sums of one quantity.
    pub(super) fn sums(&self, quantity: Quantity) -> CellSums {
        let Self { classes, all_peak, .. } = self.settled();
        let [small, large] = classes.map(|totals| {
            let Total { current, peak, allocated } = totals[quantity as usize];
            Part { current, peak, allocated }
        });
        let all = Part {
            current: small.current + large.current,
            peak: all_peak[quantity as usize],
            allocated: small.allocated.wrapping_add(large.allocated),
        };
        CellSums { small, large, all }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Quantity {
    Count,
    Bytes,
    RequestedBytes,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CellSums {
    pub(super) small: Part,
    pub(super) large: Part,
    pub(super) all: Part,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) current: i64,
    pub(super) peak: i64,
    pub(super) allocated: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    /// Goal: peaks are exact however they are passed, one by one or in a climb. Method: random
    /// pieces of both classes begin and end in runs, counted as bins do it, beside plain sums.
    #[test]
    fn peaks_are_exact_in_climbs_too() {
        let mut numbers = Numbers::new(seed());
        let (mut cell, mut live) = (Cell::default(), Vec::new());
        let (mut current, mut peak, mut climbs) = ([0_i64; 3], [0_i64; 3], 0);
        for _ in 0..2_000 {
            let is_growing = numbers.below(2) == 0;
            for _ in 0..numbers.below(12) {
                if is_growing {
                    let class = [PoolClass::Small, PoolClass::Large][numbers.below(8) / 7];
                    let counted =
                        Counted { class, bytes: 1 + numbers.below(99), requested_bytes: 1 };
                    cell.note_taken(class, counted.bytes, 1);
                    if !cell.is_in_force(class) || !cell.begin_below_peak(counted) {
                        cell.begin_taken(counted);
                    }
                    live.push(counted);
                } else if !live.is_empty() {
                    let counted: Counted = live.swap_remove(numbers.below(live.len()));
                    if cell.counts_frees_of(counted.class) {
                        cell.end_in_force(counted);
                    } else {
                        cell.end(counted);
                    }
                }
                climbs += usize::from(cell.free_class.is_none());
                let bytes_of = |class: Option<PoolClass>| -> i64 {
                    let of_class = live.iter().filter(|it| class.is_none_or(|it2| it2 == it.class));
                    of_class.map(|it| it.bytes.cast_signed() as i64).sum()
                };
                current = [None, Some(PoolClass::Small), Some(PoolClass::Large)].map(bytes_of);
                peak = [0, 1, 2].map(|part| peak[part].max(current[part]));
            }
            if numbers.below(100) == 0 {
                cell.reset_peaks();
                peak = current;
            }
            let CellSums { small, large, all } = cell.sums(Quantity::Bytes);
            assert_eq!([all.current, small.current, large.current], current);
            assert_eq!([all.peak, small.peak, large.peak], peak);
        }
        assert!(climbs > 100, "{climbs} steps of climbs");
    }
}
