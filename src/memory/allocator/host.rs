//! Statistics of pinned host memory, with the keys of `host_memory_stats` in PyTorch.

use std::time::Duration;

use crate::backend::contract::MemoryInfo;
use crate::base::error::{Error, MemoryError};
use crate::base::sync::{LockRank, Mutex};
use crate::memory::allocator::stats::{Stat, Statistics};

/// The number of powers of two by which segments are counted.
pub const HOST_BUCKETS: usize = 64;

/// Statistics of an allocator of pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStatistics {
    /// Active blocks: allocated ones, and those that await their free.
    pub active_requests: Stat,
    /// Bytes of the active blocks.
    pub active_bytes: Stat,
    /// Segments from the driver.
    pub allocations: Stat,
    /// Bytes of the segments.
    pub allocated_bytes: Stat,
    /// Durations of the driver's allocations.
    pub host_alloc_time: DurationStat,
    /// Durations of the driver's frees.
    pub host_free_time: DurationStat,
    /// Failed frees by a library: the memory stays in use.
    pub num_leaks: u64,
    /// Numbers of segments taken, by size rounded up to a power of two.
    pub bucket_allocation: [u64; HOST_BUCKETS],
}

impl Default for HostStatistics {
    fn default() -> Self {
        Meter::new().statistics(&Statistics::default())
    }
}

impl HostStatistics {
    /// Returns the number of segments taken.
    #[must_use]
    pub fn num_host_alloc(&self) -> u64 {
        self.allocations.allocated
    }

    /// Adds the statistics of another allocator. The sum of two peaks is an upper bound.
    #[doc(hidden)]
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        for (stat, more) in [
            (&mut self.active_requests, &other.active_requests),
            (&mut self.active_bytes, &other.active_bytes),
            (&mut self.allocations, &other.allocations),
            (&mut self.allocated_bytes, &other.allocated_bytes),
        ] {
            stat.add(more);
        }
        self.num_leaks += other.num_leaks;
        self.host_alloc_time.join(&other.host_alloc_time);
        self.host_free_time.join(&other.host_free_time);
        for (count, more) in self.bucket_allocation.iter_mut().zip(&other.bucket_allocation) {
            *count += more;
        }
        self
    }

    /// Returns the number of segments given back.
    #[must_use]
    pub fn num_host_free(&self) -> u64 {
        self.allocations.freed
    }
}

/// Durations of one kind of call; zeros before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurationStat {
    /// The sum, in microseconds.
    pub total_us: u64,
    /// The longest, in microseconds.
    pub max_us: u64,
    /// The shortest, in microseconds.
    pub min_us: u64,
    /// The number of calls.
    pub count: u64,
}

impl DurationStat {
    /// Returns the mean, in microseconds; 0 before the first call.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "2^53 us are centuries")]
    pub fn avg_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_us as f64 / self.count as f64 }
    }

    fn join(&mut self, other: &Self) {
        self.min_us = match (self.count, other.count) {
            (_, 0) => self.min_us,
            (0, _) => other.min_us,
            _ => self.min_us.min(other.min_us),
        };
        self.max_us = self.max_us.max(other.max_us);
        self.total_us = self.total_us.saturating_add(other.total_us);
        self.count += other.count;
    }

    fn add(&mut self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.min_us = if self.count == 0 { us } else { self.min_us.min(us) };
        self.max_us = self.max_us.max(us);
        self.total_us = self.total_us.saturating_add(us);
        self.count += 1;
    }
}

/// Measurements of the driver's calls for host memory, beside the statistics of every allocator.
#[derive(Debug)]
pub(super) struct Meter(Mutex<Readings>);

#[derive(Clone, Copy, Debug)]
struct Readings {
    /// The host's memory, from the last refusal.
    info: MemoryInfo,
    alloc: DurationStat,
    free: DurationStat,
    buckets: [u64; HOST_BUCKETS],
}

impl Readings {
    const NONE: Self = Self {
        info: MemoryInfo { free_bytes: 0, total_bytes: 0 },
        alloc: DurationStat { total_us: 0, max_us: 0, min_us: 0, count: 0 },
        free: DurationStat { total_us: 0, max_us: 0, min_us: 0, count: 0 },
        buckets: [0; HOST_BUCKETS],
    };
}

impl Meter {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LockRank::Allocator, Readings::NONE))
    }

    pub(super) fn took(&self, bytes: usize, duration: Duration) {
        let mut readings = self.0.lock();
        readings.alloc.add(duration);
        readings.buckets[bytes.next_power_of_two().trailing_zeros() as usize] += 1;
    }

    pub(super) fn gave_back(&self, duration: Duration) {
        self.0.lock().free.add(duration);
    }

    /// Records the host's memory, if the refusal is `OutOfMemory`.
    pub(super) fn was_refused(&self, refusal: &Error) {
        if let Error::Memory(MemoryError::OutOfMemory { free_bytes, total_bytes, .. }) = *refusal {
            self.0.lock().info = MemoryInfo { free_bytes, total_bytes };
        }
    }

    /// Returns free and total bytes from the last refusal; zeros before.
    pub(super) fn memory_info(&self) -> MemoryInfo {
        self.0.lock().info
    }

    pub(super) fn reset(&self) {
        let mut readings = self.0.lock();
        *readings = Readings { info: readings.info, ..Readings::NONE };
    }

    pub(super) fn statistics(&self, counted: &Statistics) -> HostStatistics {
        let readings = *self.0.lock();
        HostStatistics {
            active_requests: counted.active.all,
            active_bytes: counted.active_bytes.all,
            allocations: counted.segment.all,
            allocated_bytes: counted.reserved_bytes.all,
            host_alloc_time: readings.alloc,
            host_free_time: readings.free,
            num_leaks: 0, // the heap counts them
            bucket_allocation: readings.buckets,
        }
    }
}
