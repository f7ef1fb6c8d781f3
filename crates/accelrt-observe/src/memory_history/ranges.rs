//! The newest ranges of `record_function`, for what a memory history shows beside its events.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use accelrt::internal::{
    Keeps, LockRank, LogRecord, Mutex, ProcessSubscription, RecordKind, Wants, fork,
    process_log as process,
};

/// The ranges of all threads that end from the start on: those that ended last.
///
/// ```
/// use accelrt_observe::memory_history::RangeHistory;
/// use accelrt_observe::profiler::record_function;
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
    /// Starts a history of the `most_ranges` ranges that ended last; at least one.
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
        if fork::is_child() {
            return Vec::new(); // a thread that the child lacks may hold the lock
        }
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
        PassedRange { name: record.name().text(), start, end }
    }
}

impl fmt::Debug for RangeHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeHistory")
            .field("most_ranges", &self.most_ranges)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use crate::profiler::{RecordedRange, record_function};

    #[derive(Clone, Debug)]
    enum Step {
        Begin,
        EndInnermost,
        OnOtherThread,
        Start { index: usize, most_ranges: usize },
        Stop(usize),
        Check(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = 0..2_usize;
        let start = (index.clone(), 0..6_usize)
            .prop_map(|(index, most_ranges)| Step::Start { index, most_ranges });
        let step = prop_oneof![
            4 => Just(Step::Begin),
            4 => Just(Step::EndInnermost),
            2 => Just(Step::OnOtherThread),
            2 => start,
            1 => index.clone().prop_map(Step::Stop),
            4 => index.prop_map(Step::Check),
        ];
        proptest::collection::vec(step, 1..60)
    }

    struct Started {
        history: RangeHistory,
        most_ranges: usize,
        num_ended_before: usize,
    }

    #[derive(Default)]
    struct World {
        num_begun: usize,
        open: Vec<(usize, RecordedRange)>,
        /// The numbers of the ended ranges, in the order of their ends.
        ended: Vec<usize>,
        started: [Option<Started>; 2],
    }

    fn record(number: usize) -> RecordedRange {
        record_function(&format!("model {number}"))
    }

    impl World {
        fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
            match *step {
                Step::Begin => {
                    self.num_begun += 1;
                    self.open.push((self.num_begun, record(self.num_begun)));
                }
                Step::EndInnermost => {
                    if let Some((number, range)) = self.open.pop() {
                        drop(range);
                        self.ended.push(number);
                    }
                }
                Step::OnOtherThread => {
                    self.num_begun += 1;
                    let number = self.num_begun;
                    thread::spawn(move || drop(record(number))).join().unwrap();
                    self.ended.push(number);
                }
                Step::Start { index, most_ranges } => {
                    let history = RangeHistory::start(most_ranges);
                    let (most_ranges, num_ended_before) = (most_ranges.max(1), self.ended.len());
                    self.started[index] = Some(Started { history, most_ranges, num_ended_before });
                }
                Step::Stop(index) => self.started[index] = None,
                Step::Check(index) => self.check(index)?,
            }
            Ok(())
        }

        fn check(&self, index: usize) -> Result<(), TestCaseError> {
            let Some(started) = &self.started[index] else { return Ok(()) };
            let since = &self.ended[started.num_ended_before..];
            let num_beyond = since.len().saturating_sub(started.most_ranges);
            let mut expected = since[num_beyond..].to_vec();
            expected.sort_unstable();
            let ranges = started.history.ranges();
            let names: Vec<&str> = ranges.iter().map(|range| &*range.name).collect();
            let expected: Vec<_> = expected.iter().map(|it| format!("model {it}")).collect();
            prop_assert_eq!(names, expected);
            for range in &ranges {
                prop_assert!(range.start <= range.end);
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// A history has the newest ranges that ended since its start. No other test of this binary
        /// may record a range.
        #[test]
        fn a_history_has_the_newest_ranges_since_its_start(steps in steps()) {
            let everything = RangeHistory::start(usize::MAX);
            let mut world = World::default();
            for step in &steps {
                world.run(step)?;
            }
            world.check(0)?;
            world.check(1)?;
            prop_assert_eq!(everything.ranges().len(), world.ended.len());
        }
    }
}
