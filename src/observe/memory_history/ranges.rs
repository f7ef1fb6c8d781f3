//! The newest ranges of `record_function`, for what a memory history shows beside its events.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::base::sync::{LockRank, Mutex};
use crate::engine::log::collector::{Keeps, Wants};
use crate::engine::log::process::{self, ProcessSubscription};
use crate::engine::log::record::{LogRecord, RecordKind};

/// The ranges of all threads that end from the start on; the newest of them.
///
/// ```
/// use accelrt::memory_history::RangeHistory;
/// use accelrt::profiler::record_function;
///
/// let history = RangeHistory::start(2);
/// for name in ["load", "step", "store"] {
///     drop(record_function(name));
/// }
/// let names: Vec<_> = history.ranges().iter().map(|range| range.name.to_string()).collect();
/// assert_eq!(names, ["step", "store"]);
/// ```
pub struct RangeHistory {
    subscription: ProcessSubscription,
    began: SystemTime,
    most_ranges: usize,
    kept: Mutex<VecDeque<LogRecord>>,
}

/// A range that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassedRange {
    /// The name.
    pub name: Arc<str>,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
}

impl RangeHistory {
    /// Starts a history that keeps the newest `most_ranges` ranges; at least one.
    #[must_use = "the drop ends the history"]
    pub fn start(most_ranges: usize) -> Self {
        let most_ranges = most_ranges.max(1);
        let subscription = process::subscribe(Wants::RANGES, None, most_ranges, Keeps::Newest);
        let (began, kept) = (SystemTime::now(), Mutex::new(LockRank::Runtime, VecDeque::new()));
        Self { subscription, began, most_ranges, kept }
    }

    /// The ranges that are kept, by their begin.
    #[must_use]
    pub fn ranges(&self) -> Vec<PassedRange> {
        let mut kept = self.kept.lock();
        let taken = self.subscription.take();
        kept.extend(taken.records.iter().filter(|record| record.kind == RecordKind::Range));
        let beyond = kept.len().saturating_sub(self.most_ranges);
        kept.drain(..beyond);
        let mut ranges: Vec<_> = kept.iter().map(|record| self.passed(record)).collect();
        drop(kept);
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    fn passed(&self, record: &LogRecord) -> PassedRange {
        let time = |since_began_ns: u64| {
            let since_began_ns = since_began_ns.cast_signed(); // it may have begun before
            let distance = Duration::from_nanos(since_began_ns.unsigned_abs());
            if since_began_ns < 0 { self.began - distance } else { self.began + distance }
        };
        let (start, end) = (time(record.start), time(record.end));
        PassedRange { name: record.name.text(), start, end }
    }
}

impl fmt::Debug for RangeHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeHistory")
            .field("most_ranges", &self.most_ranges)
            .finish_non_exhaustive()
    }
}
