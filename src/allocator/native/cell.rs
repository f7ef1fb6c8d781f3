//! What one thread counts of requests and frees, so that no two threads write to one counter.

use crate::allocator::snapshot::PoolClass;
use crate::sync::Ordering;
use crate::sync::unmodelled::AtomicU64;

/// Counts of pieces, of their bytes, and of the bytes asked for.
///
/// Written by one thread at a time: its own, or one that keeps it out (`thread_cache`). A thread
/// that frees what others allocated has currents below zero, which the sum over threads makes up
/// for. Everything is relaxed: a count publishes nothing.
#[derive(Debug, Default)]
pub(super) struct Cell {
    classes: [Quantities; 2],
    peaks_of_all: [AtomicU64; 3],
    /// Pieces that were allocated and that were current when the peaks were reset, of both classes:
    /// they tell whether anything was counted since.
    at_reset: [AtomicU64; 2],
}

/// Of one class: pieces, bytes, bytes asked for.
#[derive(Debug, Default)]
struct Quantities {
    current: [AtomicU64; 3],
    peak: [AtomicU64; 3],
    allocated: [AtomicU64; 3],
}

/// One piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) class: PoolClass,
    pub(super) bytes: usize,
    pub(super) requested_bytes: usize,
}

impl Counted {
    #[inline]
    fn amounts(self) -> [u64; 3] {
        [1, self.bytes as u64, self.requested_bytes as u64]
    }
}

#[inline]
fn get(counter: &AtomicU64) -> u64 {
    // Relaxed: see `Cell`.
    counter.load(Ordering::Relaxed)
}

#[inline]
fn set(counter: &AtomicU64, value: u64) {
    // Relaxed: see `Cell`.
    counter.store(value, Ordering::Relaxed);
}

/// Raises a peak; below zero nothing is one.
#[inline]
fn raise(peak: &AtomicU64, value: u64) {
    if value.cast_signed() > get(peak).cast_signed() {
        set(peak, value);
    }
}

impl Cell {
    /// A program has a piece now.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn begin(&self, counted: Counted) {
        let own = &self.classes[counted.class as usize];
        let other = &self.classes[1 - counted.class as usize];
        for (index, amount) in counted.amounts().into_iter().enumerate() {
            let current = get(&own.current[index]).wrapping_add(amount);
            set(&own.current[index], current);
            set(&own.allocated[index], get(&own.allocated[index]).wrapping_add(amount));
            raise(&own.peak[index], current);
            let all = current.wrapping_add(get(&other.current[index]));
            raise(&self.peaks_of_all[index], all);
        }
    }

    /// A program has given it back.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn end(&self, counted: Counted) {
        let own = &self.classes[counted.class as usize];
        for (index, amount) in counted.amounts().into_iter().enumerate() {
            set(&own.current[index], get(&own.current[index]).wrapping_sub(amount));
        }
    }

    /// True when something was counted since the peaks were reset.
    pub(super) fn is_moved(&self) -> bool {
        self.moves() != self.at_reset.each_ref().map(get)
    }

    /// Pieces that were allocated and that are current, of both classes.
    fn moves(&self) -> [u64; 2] {
        let [small, large] = &self.classes;
        [
            get(&small.allocated[0]).wrapping_add(get(&large.allocated[0])),
            get(&small.current[0]).wrapping_add(get(&large.current[0])),
        ]
    }

    /// What is current is the peak.
    pub(super) fn reset_peaks(&self) {
        let [small, large] = &self.classes;
        for index in 0..3 {
            set(&small.peak[index], get(&small.current[index]));
            set(&large.peak[index], get(&large.current[index]));
            let all = get(&small.current[index]).wrapping_add(get(&large.current[index]));
            set(&self.peaks_of_all[index], all);
        }
        self.at_reset.iter().zip(self.moves()).for_each(|(place, count)| set(place, count));
    }

    /// Adds what another one counted, which is over; its peaks are lost in the sum.
    pub(super) fn absorb(&self, other: &Self) {
        for (own, other) in self.classes.iter().zip(&other.classes) {
            for index in 0..3 {
                let sum = get(&own.current[index]).wrapping_add(get(&other.current[index]));
                set(&own.current[index], sum);
                let sum = get(&own.allocated[index]).wrapping_add(get(&other.allocated[index]));
                set(&own.allocated[index], sum);
            }
        }
        if !other.is_moved() {
            // What came in with it did not move since, so it does not count as a move here.
            let (moves, [allocated, current]) = (other.moves(), &self.at_reset);
            set(allocated, get(allocated).wrapping_add(moves[0]));
            set(current, get(current).wrapping_add(moves[1]));
        }
    }

    /// What it knows of one quantity.
    pub(super) fn sums(&self, quantity: Quantity) -> CellSums {
        let index = quantity as usize;
        let [small, large] = &self.classes;
        let of = |part: &Quantities| Part {
            current: get(&part.current[index]).cast_signed(),
            peak: get(&part.peak[index]).cast_signed(),
            allocated: get(&part.allocated[index]),
        };
        CellSums {
            small: of(small),
            large: of(large),
            peak_of_all: get(&self.peaks_of_all[index]).cast_signed(),
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
    pub(super) peak_of_all: i64,
}

/// One class of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) current: i64,
    pub(super) peak: i64,
    pub(super) allocated: u64,
}
