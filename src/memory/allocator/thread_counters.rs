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
/// Equations, for each quantity: the current value of a class is `current` of its total plus what
/// its `room` lost since `room_then`; as of the last settlement, `room` was at most the distance to
/// the peak of the class, and both rooms together at most that to the peak of both classes. So no
/// peak is passed while no room is negative.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadCounters {
    /// Of the class in force, which is always in one place: a processor knows where the next
    /// request looks before it knows of what class that is.
    moving: Moving,
    class: PoolClass,
    /// The class whose frees need no step before: the one in force, or none during a climb, while
    /// peaks are not compared with.
    free_class: Option<PoolClass>,
    /// Of the other class.
    other: Moving,
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

/// What moved of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Moving {
    rooms: [FitCandidate; 3],
    /// The requested bytes of its allocations since the last settlement.
    requested_bytes: u64,
}

/// One quantity.
///
/// The rooms are not adjacent: a store of two words as one, read as single words, costs a processor
/// as much as all the rest.
#[derive(Clone, Copy, Debug, Default)]
struct FitCandidate {
    /// What the class may allocate before it must be settled; negative beyond it.
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
pub(super) struct BlockSize {
    pub(super) class: PoolClass,
    pub(super) bytes: usize,
    pub(super) requested_bytes: usize,
}

impl BlockSize {
    #[inline(always)]
    #[expect(clippy::cast_possible_wrap, reason = "below an exbibyte")]
    fn amounts(self) -> [i64; 3] {
        [1, self.bytes as i64, self.requested_bytes as i64]
    }
}

impl ThreadCounters {
    /// Counts an allocation.
    pub(super) fn begin(&mut self, counted: BlockSize) {
        self.note_taken(counted.class, counted.bytes, 1);
        self.begin_taken(counted);
    }

    /// As [`ThreadCounters::begin`], for a piece that the bin's take count includes.
    #[inline(always)]
    pub(super) fn begin_taken(&mut self, counted: BlockSize) {
        if !self.begin_below_peak(counted) {
            self.begin_past_peak(counted);
        }
    }

    /// The end of [`ThreadCounters::begin_taken`] where a peak might be passed.
    #[cold]
    #[inline(never)]
    fn begin_past_peak(&mut self, counted: BlockSize) {
        self.move_by(counted);
        self.settle();
        self.passes += 1;
        if self.passes == PASSES_BEFORE_CLIMB {
            self.climb();
        }
    }

    /// As [`ThreadCounters::begin_taken`]. False, without counting, when a peak might be passed.
    #[inline(always)]
    fn begin_below_peak(&mut self, counted: BlockSize) -> bool {
        if self.class != counted.class {
            self.switch();
        }
        let mut signs = 0;
        for (FitCandidate { room, .. }, amount) in self.moving.rooms.iter().zip(counted.amounts()) {
            signs |= room - amount;
        }
        if signs >= 0 {
            self.move_by(counted);
        }
        signs >= 0
    }

    /// Counts an allocation of the class in force.
    #[inline(always)]
    fn move_by(&mut self, counted: BlockSize) {
        let Moving { rooms, requested_bytes } = &mut self.moving;
        for (FitCandidate { room, .. }, amount) in rooms.iter_mut().zip(counted.amounts()) {
            *room -= amount;
        }
        *requested_bytes = requested_bytes.wrapping_add(counted.requested_bytes as u64);
    }

    /// Puts the other class in force.
    #[cold]
    #[inline(never)]
    fn switch(&mut self) {
        std::mem::swap(&mut self.moving, &mut self.other);
        self.class = match self.class {
            PoolClass::Small => PoolClass::Large,
            PoolClass::Large => PoolClass::Small,
        };
        self.free_class = self.free_class.map(|_| self.class);
    }

    /// Adds `count` allocations to the sums, whose currents were counted before.
    pub(super) fn note_taken(&mut self, class: PoolClass, bytes: usize, count: u64) {
        let [counts, all_bytes, _] = &mut self.classes[class as usize];
        counts.allocated = counts.allocated.wrapping_add(count);
        let taken_bytes = count.wrapping_mul(bytes as u64);
        all_bytes.allocated = all_bytes.allocated.wrapping_add(taken_bytes);
    }

    /// Counts a free.
    #[inline(always)]
    pub(super) fn end(&mut self, counted: BlockSize) {
        if self.free_class.is_none() {
            self.settle();
        }
        let is_ready = self.may_end(counted.class);
        debug_assert!(is_ready, "no climb: {self:?}");
        self.end_passes(counted);
    }

    /// As [`ThreadCounters::end`], where [`ThreadCounters::may_end`].
    #[inline(always)]
    pub(super) fn end_passes(&mut self, counted: BlockSize) {
        self.passes = 0;
        self.end_in_force(counted);
    }

    /// Puts a class in force for a free of it. False in a climb.
    #[inline(always)]
    pub(super) fn may_end(&mut self, class: PoolClass) -> bool {
        if self.free_class != Some(class) {
            if self.free_class.is_none() {
                return false;
            }
            self.switch();
        }
        true
    }

    /// As [`ThreadCounters::end_passes`], but the next pass of a peak follows those before.
    #[inline(always)]
    pub(super) fn end_in_force(&mut self, counted: BlockSize) {
        for (FitCandidate { room, .. }, amount) in
            self.moving.rooms.iter_mut().zip(counted.amounts())
        {
            *room += amount;
        }
    }

    /// Adds the moves to the totals, raises the peaks, and measures the room below them.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        let other_class = 1 - self.class as usize;
        for (class, moving) in [(self.class as usize, &self.moving), (other_class, &self.other)] {
            let totals = &mut self.classes[class];
            for (total, FitCandidate { room, room_then }) in totals.iter_mut().zip(moving.rooms) {
                total.current += room_then - room;
                total.peak = total.peak.max(total.current);
            }
            let [_, _, requested] = totals;
            requested.allocated = requested.allocated.wrapping_add(moving.requested_bytes);
        }
        let [small, large] = &self.classes;
        for (peak, (small, large)) in self.all_peak.iter_mut().zip(small.iter().zip(large)) {
            *peak = (*peak).max(small.current + large.current);
        }
        self.measure_room();
    }

    /// Stops comparing with the peaks until the next free. While nothing is freed, the last value
    /// is the highest.
    #[cold]
    fn climb(&mut self) {
        (self.passes, self.free_class) = (0, None);
        let room = FitCandidate { room: NO_BOUND, room_then: NO_BOUND };
        (self.moving.rooms, self.other.rooms) = ([room; 3], [room; 3]);
    }

    /// Computes the room below the peaks, after a settlement. Where the classes must share what is
    /// below the peak of both, each has half of it at least, if it can use that.
    fn measure_room(&mut self) {
        self.free_class = Some(self.class);
        (self.moving, self.other) = (Moving::default(), Moving::default());
        let [in_force, other] = [self.class as usize, 1 - self.class as usize];
        for quantity in 0..self.all_peak.len() {
            let totals = [in_force, other].map(|class| self.classes[class][quantity]);
            let all: i64 = totals.iter().map(|total| total.current).sum();
            let all_room = self.all_peak[quantity] - all;
            let [own_room, others_room] = totals.map(|total| total.peak - total.current);
            let room = own_room.min((all_room - others_room).max(all_room / 2));
            self.moving.rooms[quantity] = FitCandidate { room, room_then: room };
            let room = others_room.min(all_room - room);
            self.other.rooms[quantity] = FitCandidate { room, room_then: room };
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
        for quantity in 0..self.all_peak.len() {
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
        let (mut cell, mut live) = (ThreadCounters::default(), Vec::new());
        let (mut current, mut peak, mut climbs) = ([0_i64; 3], [0_i64; 3], 0);
        for _ in 0..2_000 {
            let is_growing = numbers.below(2) == 0;
            let large_of_8 = [1, 7][numbers.below(2)];
            for _ in 0..numbers.below(12) {
                if is_growing {
                    let class = [PoolClass::Large, PoolClass::Small]
                        [usize::from(numbers.below(8) >= large_of_8)];
                    let counted =
                        BlockSize { class, bytes: 1 + numbers.below(99), requested_bytes: 1 };
                    cell.note_taken(class, counted.bytes, 1);
                    if !cell.begin_below_peak(counted) {
                        cell.begin_taken(counted);
                    }
                    live.push(counted);
                } else if !live.is_empty() {
                    let counted: BlockSize = live.swap_remove(numbers.below(live.len()));
                    if cell.may_end(counted.class) {
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

    /// Goal: a program whose sizes lie on both sides of 1 MiB counts on the fast path (A3). Method:
    /// each class reaches a peak alone, so that they share what is left below that of both; then
    /// they are asked for in turns.
    #[test]
    fn classes_in_turns_share_what_is_left_below_the_peak_of_both() {
        let [small, large] = [PoolClass::Small, PoolClass::Large].map(|class| BlockSize {
            class,
            bytes: 100,
            requested_bytes: 100,
        });
        let mut cell = ThreadCounters::default();
        for counted in [small, large] {
            for _ in 0..8 {
                cell.note_taken(counted.class, counted.bytes, 1);
                cell.begin_taken(counted);
            }
            for _ in 0..8 {
                cell.end(counted);
            }
        }
        assert!(!cell.begin_below_peak(small), "the other class had all that is left");
        cell.begin_taken(small);
        for pairs in 1..4 {
            assert!(cell.begin_below_peak(large) && cell.begin_below_peak(small), "{pairs} pairs");
        }
        while cell.begin_below_peak(large) || cell.begin_below_peak(small) {}
        let CellSums { all, .. } = cell.sums(Quantity::Count);
        assert_eq!((all.current, all.peak), (7, 8), "half of what is left is three pieces");
    }
}
