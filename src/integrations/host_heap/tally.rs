//! What a heap counts: per thread what was given and freed, and for all what is out of its slabs.

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;
use crate::memory::allocator::Stat;

/// One quantity of one thread.
///
/// Equation: over all threads `given - freed` is what programs have. One thread alone may have
/// freed more than it was given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    given: u64,
    freed: u64,
    /// The largest `given - freed`.
    peak: i64,
}

impl Flow {
    fn net(&self) -> i64 {
        self.given.wrapping_sub(self.freed).cast_signed()
    }

    #[inline]
    fn give(&mut self, amount: u64) {
        self.given += amount;
        self.peak = self.peak.max(self.net());
    }

    fn add(&mut self, other: &Self) {
        self.given += other.given;
        self.freed += other.freed;
        self.peak += other.peak; // no more than this was out at a time
    }

    /// The whole, where at most `most_out` were out of the slabs at one moment.
    fn stat(&self, most_out: u64) -> Stat {
        let current = self.given.saturating_sub(self.freed);
        let peak = self.peak.unsigned_abs().min(most_out).max(current);
        Stat { current, peak, allocated: self.given, freed: self.freed }
    }
}

/// What one thread was given and freed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    requests: Flow,
    bytes: Flow,
}

impl Tally {
    #[inline]
    pub(super) fn give(&mut self, bytes: usize) {
        self.requests.give(1);
        self.bytes.give(bytes as u64);
    }

    #[inline]
    pub(super) fn free(&mut self, bytes: usize) {
        self.requests.freed += 1;
        self.bytes.freed += bytes as u64;
    }

    /// Takes another one's counts over.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests.add(&other.requests);
        self.bytes.add(&other.bytes);
    }

    /// Requests and bytes, as statistics. Peaks are never below the truth: two bounds are known,
    /// the sum of what each thread had at most, which is exact for one, and what was out.
    pub(super) fn stats(&self, out: &Out) -> (Stat, Stat) {
        let [requests, bytes] = [&out.requests, &out.bytes].map(Level::peak);
        (self.requests.stat(requests), self.bytes.stat(bytes))
    }
}

/// A quantity and its peak, which many threads change. Relaxed, here and below: nothing but the
/// numbers themselves is published.
#[derive(Debug, Default)]
struct Level {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Level {
    fn raise(&self, amount: u64) {
        let before = self.now.fetch_add(amount, Ordering::Relaxed);
        self.peak.fetch_max(before + amount, Ordering::Relaxed);
    }

    fn lower(&self, amount: u64) {
        self.now.fetch_sub(amount, Ordering::Relaxed);
    }

    fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// What programs have or threads keep: all that is not free in a slab.
#[derive(Debug, Default)]
pub(super) struct Out {
    requests: Level,
    bytes: Level,
}

impl Out {
    pub(super) fn took(&self, count: usize, bytes: usize) {
        self.requests.raise(count as u64);
        self.bytes.raise((count * bytes) as u64);
    }

    pub(super) fn put(&self, count: usize, bytes: usize) {
        self.requests.lower(count as u64);
        self.bytes.lower((count * bytes) as u64);
    }
}
