//! What one thread counts of requests and frees, so that no two threads write to one counter.

use crate::allocator::snapshot::PoolClass;

/// Counts of pieces, of their bytes, and of the bytes asked for.
///
/// A thread that frees what others allocated has currents below zero, which the sum over threads
/// makes up for. Whoever keeps pieces knows how often each was taken, and tells that when somebody
/// wants to know.
///
/// Equations, for each quantity: what is current of a class is `current` of its total and what its
/// `room` lost since `room_then`. The room of a class is at most what its peak is above what is
/// current, and of both classes together at most what the peak of both is above it: the class in
/// force has as much as there is, the other one what that leaves.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// How much more a program may have before a peak is passed; its sign tells when one is.
    ///
    /// What moves with a piece is not side by side. If it were, some steps would move two as one
    /// word and others each alone, which costs a processor as much as all the rest.
    room: [[i64; 2]; 3],
    /// Requested bytes of what was allocated, by class, since they were added to the totals.
    requested_bytes: [u64; 2],
    /// What the room was at first.
    room_then: [[i64; 2]; 3],
    class: PoolClass,
    /// Up to when the class came in force, or a peak was passed.
    classes: [[Total; 3]; 2],
    /// Of both classes together.
    all_peak: [i64; 3],
    /// Pieces that were allocated and that were current when the peaks were reset, of both classes:
    /// they tell whether anything was counted since.
    at_reset: (u64, i64),
    /// True when its peaks are sums of peaks that were passed at different times.
    has_lost_peaks: bool,
}

/// One quantity of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    current: i64,
    peak: i64,
    /// What was ever allocated.
    allocated: u64,
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

impl Cell {
    /// A program has a piece now.
    pub(super) fn begin(&mut self, counted: Counted) {
        self.note_taken(counted.class, counted.bytes, 1);
        self.begin_taken(counted);
    }

    /// As [`Cell::begin`] of a piece that is counted among those that were taken.
    pub(super) fn begin_taken(&mut self, counted: Counted) {
        if self.begin_below_peak(counted) {
            return;
        }
        self.put_in_force(counted.class);
        if !self.begin_below_peak(counted) {
            self.move_by(counted);
            self.settle();
        }
    }

    /// As [`Cell::begin_taken`]. False, and nothing is counted, when a peak may be passed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn begin_below_peak(&mut self, counted: Counted) -> bool {
        let mut signs = 0;
        for (room, amount) in self.room.iter().zip(counted.amounts()) {
            signs |= room[counted.class as usize] - amount;
        }
        if signs >= 0 {
            self.move_by(counted);
        }
        signs >= 0
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn move_by(&mut self, counted: Counted) {
        let class = counted.class as usize;
        for (room, amount) in self.room.iter_mut().zip(counted.amounts()) {
            room[class] -= amount;
        }
        let requested_bytes = &mut self.requested_bytes[class];
        *requested_bytes = requested_bytes.wrapping_add(counted.requested_bytes as u64);
    }

    /// Pieces of a size were taken, whose beginnings were counted.
    pub(super) fn note_taken(&mut self, class: PoolClass, bytes: usize, count: u64) {
        let [counts, all_bytes, _] = &mut self.classes[class as usize];
        counts.allocated = counts.allocated.wrapping_add(count);
        let taken_bytes = count.wrapping_mul(bytes as u64);
        all_bytes.allocated = all_bytes.allocated.wrapping_add(taken_bytes);
    }

    /// A program has given it back.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn end(&mut self, counted: Counted) {
        for (room, amount) in self.room.iter_mut().zip(counted.amounts()) {
            room[counted.class as usize] += amount;
        }
    }

    #[cold]
    #[inline(never)]
    fn put_in_force(&mut self, class: PoolClass) {
        self.class = class;
        self.settle();
    }

    /// Adds what moved to the totals. What is above its peak is the peak.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        for (class, totals) in self.classes.iter_mut().enumerate() {
            for (quantity, total) in totals.iter_mut().enumerate() {
                total.current += self.room_then[quantity][class] - self.room[quantity][class];
                total.peak = total.peak.max(total.current);
            }
            let requested = &mut totals[Quantity::RequestedBytes as usize].allocated;
            let moved = std::mem::take(&mut self.requested_bytes[class]);
            *requested = requested.wrapping_add(moved);
        }
        for quantity in 0..self.room.len() {
            let peak = &mut self.all_peak[quantity];
            *peak = (*peak).max(self.classes.iter().map(|totals| totals[quantity].current).sum());
        }
        self.measure_room();
    }

    /// Of totals that know all.
    fn measure_room(&mut self) {
        let in_force = self.class as usize;
        for (quantity, room) in self.room.iter_mut().enumerate() {
            let totals = self.classes.map(|totals| totals[quantity]);
            let all: i64 = totals.iter().map(|total| total.current).sum();
            let mut left = self.all_peak[quantity] - all;
            for class in [in_force, 1 - in_force] {
                room[class] = (totals[class].peak - totals[class].current).min(left);
                left -= room[class];
            }
        }
        self.room_then = self.room;
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
        let Part { allocated, current, .. } = self.sums(Quantity::Count).all;
        (allocated, current)
    }

    /// What is current is the peak.
    pub(super) fn reset_peaks(&mut self) {
        self.settle();
        for quantity in 0..self.room.len() {
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

    /// Adds what another one counted, which is over. Where one of both did not move since the
    /// reset, its peak is what is current, and the sum has the peak of the sum.
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

    /// What it knows of one quantity.
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
