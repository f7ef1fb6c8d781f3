//! How long a stream's tasks have taken lately: decides whether a waiting thread executes them.
//!
//! Reading a clock around every task would cost more than an empty task. A drain reads it at one
//! batch in sixteen while tasks are short, and at every batch while they are long or unknown.

use std::time::{Duration, Instant};

use crate::queue::Class;
use crate::sync::Ordering;
use crate::sync::unmodelled::AtomicU64;

/// Tasks up to this are short: executing one costs a waiting thread less than waking a worker.
const SHORT: Duration = Duration::from_micros(20);

/// Batches between two readings of the clock, while tasks are short.
const SAMPLED_BATCHES: u32 = 16;

/// No batch was measured yet.
const UNKNOWN: u64 = u64::MAX;

/// The published figure of one stream.
#[derive(Debug)]
pub(crate) struct Pace {
    recent_ns: AtomicU64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { recent_ns: AtomicU64::new(UNKNOWN) }
    }

    /// True when tasks have been long.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        let recent_ns = self.recent_ns();
        recent_ns != UNKNOWN && Duration::from_nanos(recent_ns) > SHORT
    }

    /// True when a waiting thread should not execute a task of this class.
    #[inline]
    pub(crate) fn expects_long(&self, class: Class) -> bool {
        class == Class::Native && self.recent_ns() == UNKNOWN
    }

    #[inline]
    fn recent_ns(&self) -> u64 {
        // Relaxed, here and below: a figure for a heuristic orders nothing.
        self.recent_ns.load(Ordering::Relaxed)
    }

    /// A batch of `tasks` took `elapsed`. One long task among short ones counts for half.
    fn learn(&self, elapsed: Duration, tasks: u64) {
        let mean_ns = u64::try_from(elapsed.as_nanos() / u128::from(tasks)).unwrap_or(UNKNOWN - 1);
        let old = self.recent_ns();
        let recent_ns = if old == UNKNOWN { mean_ns } else { old / 2 + mean_ns / 2 };
        self.recent_ns.store(recent_ns.min(UNKNOWN - 1), Ordering::Relaxed);
    }
}

/// The consumer's side: which batches are measured.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    batches_to_skip: u32,
}

/// One batch.
#[derive(Debug)]
pub(crate) struct Batch(Option<Instant>);

impl Stopwatch {
    /// A batch begins.
    #[inline]
    pub(crate) fn start(&mut self) -> Batch {
        match self.batches_to_skip.checked_sub(1) {
            Some(rest) => {
                self.batches_to_skip = rest;
                Batch(None)
            }
            None => Batch(Some(Instant::now())),
        }
    }

    /// A batch of `tasks` ended.
    #[inline]
    pub(crate) fn finish(&mut self, batch: &Batch, tasks: u64, pace: &Pace) {
        let Batch(Some(started)) = batch else { return };
        if tasks == 0 {
            return;
        }
        pace.learn(started.elapsed(), tasks);
        if !pace.is_long() {
            self.batches_to_skip = SAMPLED_BATCHES - 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn without_a_history_closures_count_as_short_and_native_calls_as_long() {
        let pace = Pace::new();
        assert!(!pace.is_long());
        assert!(!pace.expects_long(Class::User) && !pace.expects_long(Class::Own));
        assert!(pace.expects_long(Class::Native));
    }

    #[test]
    fn a_history_replaces_the_expectation_and_is_forgotten_by_halves() {
        let pace = Pace::new();
        pace.learn(Duration::from_millis(1), 1);
        assert!(pace.is_long());
        for _ in 0..10 {
            pace.learn(Duration::from_nanos(640), 64);
        }
        assert!(!pace.is_long() && !pace.expects_long(Class::Native));
    }

    #[test]
    fn short_batches_are_sampled_and_long_ones_all_measured() {
        let (mut stopwatch, pace) = (Stopwatch::default(), Pace::new());
        let first = stopwatch.start();
        assert!(first.0.is_some());
        stopwatch.finish(&first, 1_000_000_000, &pace);
        let measured = (0..32).filter(|_| {
            let batch = stopwatch.start();
            stopwatch.finish(&batch, 1_000_000_000, &pace);
            batch.0.is_some()
        });
        assert_eq!(measured.count(), 2);
        pace.learn(Duration::from_secs(1), 1);
        stopwatch.batches_to_skip = 0;
        let long = stopwatch.start();
        stopwatch.finish(&long, 1, &pace);
        assert!(stopwatch.start().0.is_some());
    }
}
