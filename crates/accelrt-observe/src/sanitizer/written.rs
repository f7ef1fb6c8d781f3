//! Which bytes of an allocation have contents, as far as the watch was notified.
//!
//! A task that was enqueued counts as a writer. When a failed stream skips it, its bytes count as
//! unwritten again, unless another task or the host has written them too.

use std::collections::VecDeque;
use std::ops::Range;

use crate::sanitizer::clock::Point;

/// The maximum number of ranges that are known.
const MAX_RANGES: usize = 1024;

/// The maximum number of writes by tasks that may be skipped.
const MAX_PENDING: usize = 4 * MAX_RANGES;

/// The bytes of an allocation of any size.
const EVERYTHING: Range<usize> = 0..usize::MAX;

#[derive(Debug)]
pub(super) struct Written {
    /// Sorted, apart from each other.
    ranges: Vec<Range<usize>>,
    /// By tasks that were not retired at the last look. Each of them may be skipped.
    pending: VecDeque<(Point, Range<usize>)>,
}

impl Written {
    pub(super) fn nothing() -> Self {
        Self { ranges: Vec::new(), pending: VecDeque::new() }
    }

    pub(super) fn everything() -> Self {
        Self { ranges: vec![EVERYTHING], pending: VecDeque::new() }
    }

    /// Adds bytes that have contents. Returns the number of gaps between ranges that exceeded the
    /// limit: all bytes count as written then.
    pub(super) fn write(&mut self, range: &Range<usize>) -> u64 {
        let first = self.ranges.partition_point(|known| known.end < range.start);
        let end = self.ranges.partition_point(|known| known.start <= range.end);
        let mut joined = range.clone();
        for known in self.ranges.drain(first..end) {
            joined = joined.start.min(known.start)..joined.end.max(known.end);
        }
        self.ranges.insert(first, joined);
        if self.ranges.len() <= MAX_RANGES {
            return 0;
        }
        std::mem::replace(&mut self.ranges, vec![EVERYTHING]).len() as u64 - 1
    }

    /// As [`Self::write`], by a task that may be skipped. `is_retired` is true for a task that was
    /// executed: a skip is notified before the task retires.
    pub(super) fn write_by(
        &mut self,
        task: Point,
        range: &Range<usize>,
        is_retired: impl Fn(Point) -> bool,
    ) -> u64 {
        let mut num_forgotten = 0;
        while self.pending.front().is_some_and(|(oldest, _)| is_retired(*oldest)) {
            let settled = self.pending.pop_front();
            num_forgotten += settled.map_or(0, |(_, range)| self.write(&range));
        }
        if self.pending.len() >= MAX_PENDING {
            // The oldest task runs still: those behind it, of other streams, may be over.
            let all = std::mem::take(&mut self.pending).into_iter();
            let (over, pending): (Vec<_>, _) = all.partition(|(of, _)| is_retired(*of));
            self.pending = pending.into();
            let oldest = if over.is_empty() { self.pending.pop_front() } else { None };
            num_forgotten += u64::from(oldest.is_some());
            for (_, settled) in over.into_iter().chain(oldest) {
                num_forgotten += self.write(&settled);
            }
        }
        if !self.has(range) {
            self.pending.push_back((task, range.clone()));
        }
        num_forgotten
    }

    /// A failed stream has skipped a task.
    pub(super) fn skip(&mut self, task: Point) {
        self.pending.retain(|(of, _)| (of.slot, of.ticket) != (task.slot, task.ticket));
    }

    /// True when all bytes of a range were written, also by tasks that may be skipped.
    pub(super) fn covers(&self, range: &Range<usize>) -> bool {
        if self.has(range) {
            return true;
        }
        if self.pending.is_empty() {
            return false;
        }
        let pending = self.pending.iter().map(|(_, written)| written);
        let mut all: Vec<_> = self.ranges.iter().chain(pending).collect();
        all.sort_unstable_by_key(|known| known.start);
        let reached = all.into_iter().fold(range.start, |reached, known| {
            if known.start <= reached { reached.max(known.end) } else { reached }
        });
        reached >= range.end
    }

    /// True when all bytes of a range were written for certain.
    fn has(&self, range: &Range<usize>) -> bool {
        let place = self.ranges.partition_point(|known| known.end < range.end);
        self.ranges.get(place).is_some_and(|known| known.start <= range.start)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 24;

    #[derive(Clone, Debug)]
    enum Step {
        Host(Range<usize>),
        Task(Range<usize>),
        /// The oldest task that is queued retires, skipped or not.
        Retire {
            is_skipped: bool,
        },
    }

    fn ranges() -> impl Strategy<Value = Range<usize>> {
        (0..BYTES, 1..=BYTES).prop_map(|(start, bytes)| start..BYTES.min(start + bytes))
    }

    proptest! {
        /// Goal: exactly the bytes that the host or a task that was not skipped has written count.
        /// Method: a set for each write, and every range after each step.
        #[test]
        fn skipped_tasks_write_nothing(
            steps in proptest::collection::vec(prop_oneof![
                ranges().prop_map(Step::Host),
                ranges().prop_map(Step::Task),
                any::<bool>().prop_map(|is_skipped| Step::Retire { is_skipped }),
            ], 0..40)
        ) {
            let (mut written, mut model) = (Written::nothing(), Vec::new());
            let (mut queued, mut retired, mut ticket) = (VecDeque::new(), 0, 0);
            for step in steps {
                match step {
                    Step::Host(range) => {
                        written.write(&range);
                        model.push((0, range));
                    }
                    Step::Task(range) => {
                        ticket += 1;
                        queued.push_back(ticket);
                        let is_retired = |task: Point| task.ticket <= retired;
                        written.write_by(Point::whole(1, ticket), &range, is_retired);
                        model.push((ticket, range));
                    }
                    Step::Retire { is_skipped } => {
                        let Some(ended) = queued.pop_front() else { continue };
                        if is_skipped {
                            written.skip(Point::whole(1, ended));
                            model.retain(|(of, _)| *of != ended);
                        }
                        retired = ended;
                    }
                }
                let known: BTreeSet<usize> =
                    model.iter().flat_map(|(_, range)| range.clone()).collect();
                for start in 0..BYTES {
                    for end in start + 1..=BYTES {
                        let expected = (start..end).all(|byte| known.contains(&byte));
                        let covers = written.covers(&(start..end));
                        prop_assert_eq!(covers, expected, "{}..{}", start, end);
                    }
                }
            }
        }
    }
}
