//! The errors of one stream, and the range of tasks that each one covers.
//!
//! A failing task sets the stream's error at its ticket (`open`), and a synchronise clears the
//! error (`clear`). Each record between the two tickets has failed. A thread or stream that waits
//! for a pending record first calls `retain_cleared`, so that the log keeps cleared errors. After
//! the last `release_cleared` the log drops them: each record in their ranges was retired, and its
//! event has stored the failure.

use std::ops::Deref;
use std::sync::Arc;

use crate::base::error::StreamFailure;
use crate::base::sync::{AtomicBool, AtomicUsize, LockRank, Mutex, Ordering};
use crate::engine::stream::core::StreamCore;

/// The `to_ticket` of an error that no synchronise has cleared.
const OPEN: u64 = u64::MAX;

#[derive(Debug)]
struct ErrorRange {
    from_ticket: u64,
    /// The first ticket behind the failed range; [`OPEN`] until the error is cleared.
    to_ticket: u64,
    error: Arc<StreamFailure>,
}

#[derive(Debug)]
pub(crate) struct Failures {
    /// True while `log` has entries. Written under the log's lock, and read without the lock.
    has_entries: AtomicBool,
    /// The number of waits that may still read a cleared error.
    retainers: AtomicUsize,
    log: Mutex<Vec<ErrorRange>>,
}

impl Failures {
    pub(crate) fn new() -> Self {
        let (has_entries, retainers) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { has_entries, retainers, log: Mutex::new(LockRank::ErrorLog, Vec::new()) }
    }

    /// Adds an error from the task `ticket` on. The consumer calls this while no error is
    /// uncleared.
    pub(crate) fn open(&self, ticket: u64, error: Arc<StreamFailure>) {
        let mut log = self.log.lock();
        debug_assert!(log.iter().all(|range| range.to_ticket != OPEN));
        log.push(ErrorRange { from_ticket: ticket, to_ticket: OPEN, error });
        // SeqCst: stored before `retainers` is read in `forget`; partner: `release_cleared`. A
        // thread that sees a later task retired sees this store as well.
        self.has_entries.store(true, Ordering::SeqCst);
    }

    /// Clears the error, which then covers no task from `ticket` on. Called by the consumer.
    pub(crate) fn clear(&self, ticket: u64) {
        let forgotten = {
            let mut log = self.log.lock();
            if let Some(range) = log.last_mut() {
                range.to_ticket = range.to_ticket.min(ticket);
            }
            self.forget(&mut log)
        };
        drop(forgotten); // without the lock: a user's error may use the stream in its drop
    }

    /// True from a task's failure until its error is dropped from the log.
    pub(crate) fn has_failed(&self) -> bool {
        // Relaxed: the caller has seen the error's task retired, and reads the error under the
        // lock.
        self.has_entries.load(Ordering::Relaxed)
    }

    /// The error that covers the task `ticket`.
    pub(crate) fn at(&self, ticket: u64) -> Option<Arc<StreamFailure>> {
        if !self.has_failed() {
            return None;
        }
        let log = self.log.lock();
        let covers = |range: &&ErrorRange| (range.from_ticket..range.to_ticket).contains(&ticket);
        log.iter().find(covers).map(|range| Arc::clone(&range.error))
    }

    /// The first error that covers a task of `first + 1..=last`.
    pub(crate) fn within(&self, first: u64, last: u64) -> Option<Arc<StreamFailure>> {
        let log = self.log.lock();
        let meets = |range: &&ErrorRange| range.from_ticket <= last && range.to_ticket > first + 1;
        log.iter().find(meets).map(|range| Arc::clone(&range.error))
    }

    pub(crate) fn current(&self) -> Option<Arc<StreamFailure>> {
        self.at(OPEN - 1)
    }

    /// Makes the log retain cleared errors until [`Failures::release_cleared`].
    pub(crate) fn retain_cleared(&self) {
        // Relaxed: a `forget` that misses this increment drops no error that the caller will read.
        // An error that the caller will read is cleared only after the caller's next step, or the
        // caller saw it under the log's lock.
        self.retainers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn release_cleared(&self) {
        // SeqCst, both: the last retainer is subtracted before `has_entries` is read; partners: the
        // store in `open`, and the load of `retainers` in `forget`.
        if self.retainers.fetch_sub(1, Ordering::SeqCst) == 1
            && self.has_entries.load(Ordering::SeqCst)
        {
            let forgotten = self.forget(&mut self.log.lock());
            drop(forgotten); // without the lock, as in `clear`
        }
    }

    /// Removes the cleared errors if no wait retains them. The caller drops them without the lock.
    fn forget(&self, log: &mut Vec<ErrorRange>) -> Vec<ErrorRange> {
        // SeqCst: read after `has_entries` was stored in `open`; partner: `release_cleared`.
        if self.retainers.load(Ordering::SeqCst) > 0 {
            return Vec::new();
        }
        let cleared = log.extract_if(.., |range| range.to_ticket != OPEN).collect();
        // Relaxed: a reader of a stale `true` finds no entry under the lock. A reader of this
        // `false` has not yet seen a task of a later error retired.
        self.has_entries.store(!log.is_empty(), Ordering::Relaxed);
        cleared
    }
}

/// A handle of a stream, whose log retains cleared errors until the handle is dropped.
pub(crate) struct RetainingStream(Arc<StreamCore>);

impl RetainingStream {
    pub(crate) fn new(stream: &Arc<StreamCore>) -> Self {
        stream.failures.retain_cleared();
        Self(Arc::clone(stream))
    }
}

impl Deref for RetainingStream {
    type Target = Arc<StreamCore>;

    fn deref(&self) -> &Arc<StreamCore> {
        &self.0
    }
}

impl Drop for RetainingStream {
    fn drop(&mut self) {
        self.0.failures.release_cleared();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::device::Device;
    use crate::base::error::FailureCause;

    fn error(id: u64) -> Arc<StreamFailure> {
        StreamFailure::new(Device::cpu(0), id, None, FailureCause::Cancelled)
    }

    fn id_at(failures: &Failures, ticket: u64) -> Option<u64> {
        failures.at(ticket).map(|error| error.stream_id())
    }

    #[test]
    fn an_error_extends_from_its_task_to_the_synchronise() {
        let failures = Failures::new();
        failures.retain_cleared();
        assert!(failures.current().is_none());
        failures.open(5, error(1));
        assert_eq!(failures.current().map(|error| error.stream_id()), Some(1));
        failures.clear(8);
        assert!(failures.current().is_none());
        let expected = [(4, None), (5, Some(1)), (7, Some(1)), (8, None)];
        for (ticket, expected) in expected {
            assert_eq!(id_at(&failures, ticket), expected, "ticket {ticket}");
        }
    }

    #[test]
    fn an_error_is_found_by_any_task_that_it_covers() {
        let failures = Failures::new();
        failures.retain_cleared();
        failures.open(5, error(1));
        failures.clear(8);
        for (first, last, is_met) in
            [(0, 4, false), (0, 5, true), (5, 6, true), (6, 20, true), (7, 20, false)]
        {
            assert_eq!(failures.within(first, last).is_some(), is_met, "{first} to {last}");
        }
    }

    #[test]
    fn cleared_errors_are_dropped_with_the_last_retention() {
        let failures = Failures::new();
        failures.retain_cleared();
        for round in 0..10 {
            failures.open(round * 10 + 1, error(round));
            failures.clear(round * 10 + 5);
        }
        assert_eq!(id_at(&failures, 2), Some(0));
        failures.open(200, error(99));
        failures.release_cleared();
        assert_eq!(failures.log.lock().len(), 1);
        assert_eq!((id_at(&failures, 2), id_at(&failures, 300)), (None, Some(99)));
    }
}
