//! The errors of one stream, and the range of tasks that each one covers.
//!
//! A failing task sets the stream's error at its ticket (`open`). The error ends at a later ticket,
//! and each task between the two tickets has failed or was skipped.
//!
//! | phase | begins when | ends when |
//! |---|---|---|
//! | current | a task fails | another phase begins; never, if the device is lost |
//! | synchronized | a synchronise raises the error | no wait needs the log (`forget`); put back |
//! | received | a call raises it through a handle ([`EndFailure`]) | a synchronise; 16 newer ones |
//! | set aside | the pool issues it again ([`Reissue`]) | an older handle synchronises, a receipt |
//!
//! A thread or stream that waits for a pending record first calls `retain_cleared`, so that the log
//! keeps synchronized errors. After the last `release_cleared` the log drops them: each record in
//! their ranges was retired, and its event has stored the failure.
//!
//! [`EndFailure`]: crate::engine::stream::receipt
//! [`Reissue`]: crate::engine::stream::receipt

use std::cell::RefCell;
use std::sync::Arc;

use crate::base::error::{FailureCause, StreamFailure};
use crate::base::fork;
use crate::base::sync::unmodelled::{AtomicBool as UnmodelledBool, AtomicU64 as UnmodelledU64};
use crate::base::sync::{AtomicBool, AtomicUsize, LockRank, Mutex, Ordering};

/// The `to_ticket` of the current error.
const OPEN: u64 = u64::MAX;

/// The maximum number of errors of each phase whose details a stream keeps.
const MAX_KEPT: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Current,
    Synchronized,
    Received,
    SetAside,
}

#[derive(Debug)]
struct ErrorRange {
    from_ticket: u64,
    /// The first ticket behind the failed range; [`OPEN`] while the error is current.
    to_ticket: u64,
    phase: Phase,
    /// The last task that a synchronise has waited for which raised the error, 0 without one.
    synchronized_to: u64,
    error: Arc<StreamFailure>,
}

impl ErrorRange {
    /// The phase of an ended error: synchronized when no task is left whose caller does not know.
    fn phase_after_end(&self) -> Phase {
        let is_known = self.synchronized_to >= self.to_ticket - 1;
        if is_known { Phase::Synchronized } else { Phase::Received }
    }

    fn covers(&self, ticket: u64) -> bool {
        (self.from_ticket..self.to_ticket).contains(&ticket)
    }
}

#[derive(Debug)]
struct Log {
    /// Sorted by ticket. The ranges do not overlap.
    ranges: Vec<ErrorRange>,
    /// The last ticket before the pool issued the stream again.
    reissued_at: u64,
    /// The number of set-aside errors that the log has dropped and no call has raised since.
    num_forgotten: Arc<UnmodelledU64>,
    /// Takes the place of errors whose details were dropped.
    without_details: Option<Arc<StreamFailure>>,
}

impl Log {
    /// True when a synchronise through the oldest handle raises at least a count.
    fn has_forgotten(&self) -> bool {
        self.num_forgotten.load(Ordering::Relaxed) > 0 // Relaxed, here and below: orders nothing
    }
}

#[derive(Debug)]
pub struct Failures {
    /// True while `log` has entries. Written under the log's lock, and read without the lock.
    has_entries: AtomicBool,
    /// The number of waits that may still read a synchronized error.
    retainers: AtomicUsize,
    log: Mutex<Log>,
}

/// Errors for a caller to raise or report, and the number of older ones that the log has dropped.
#[derive(Debug, Default)]
pub(crate) struct UnraisedErrors {
    pub(crate) errors: Vec<Arc<StreamFailure>>,
    pub(crate) num_forgotten: u64,
    /// Is raised for the dropped errors when there are no others.
    pub(crate) without_details: Option<Arc<StreamFailure>>,
}

/// An error for those of a stream whose details were dropped. The stream's log knows which of them
/// were raised, so that no report at exit shows this one.
pub(super) fn without_details(dropped: &StreamFailure) -> Arc<StreamFailure> {
    let (device, stream_id) = (dropped.device(), dropped.stream_id());
    let error = StreamFailure::new(device, stream_id, None, FailureCause::Forgotten);
    error.set_raised();
    error
}

impl Failures {
    pub(crate) fn new() -> Self {
        let log = Log {
            ranges: Vec::new(),
            reissued_at: 0,
            num_forgotten: Arc::default(),
            without_details: None,
        };
        Self {
            has_entries: AtomicBool::new(false),
            retainers: AtomicUsize::new(0),
            log: Mutex::new(LockRank::ErrorLog, log),
        }
    }

    /// Makes an error current from the task `ticket` on. The consumer calls this while no error is
    /// current. False for an error that a synchronise puts back after the pool has issued the
    /// stream again: this error does not fail the tasks of the new holder.
    pub(crate) fn open(&self, ticket: u64, error: &Arc<StreamFailure>) -> bool {
        let forgotten = {
            let mut log = self.log.lock();
            debug_assert!(log.ranges.iter().all(|range| range.phase != Phase::Current));
            // An error that fails its stream for the first time has no ticket yet.
            let is_earlier = (1..=log.reissued_at).contains(&error.ticket());
            let is_set_aside = is_earlier && !error.is_permanent();
            // What `set_aside` left of an error that is put back.
            let earlier = log
                .ranges
                .iter_mut()
                .find(|range| range.phase == Phase::SetAside && Arc::ptr_eq(&range.error, error));
            if let Some(earlier) = earlier {
                if is_set_aside {
                    return false;
                }
                earlier.phase = Phase::Received; // the new range is raised in its place
            }
            error.set_ticket(ticket);
            let (to_ticket, phase) =
                if is_set_aside { (ticket, Phase::SetAside) } else { (OPEN, Phase::Current) };
            let (error, synchronized_to) = (Arc::clone(error), 0);
            let from_ticket = ticket;
            let range = ErrorRange { from_ticket, to_ticket, phase, synchronized_to, error };
            log.ranges.push(range);
            // SeqCst: stored before `retainers` is read in `forget`; partner: `release_cleared`. A
            // thread that sees a later task retired sees this store as well.
            self.has_entries.store(true, Ordering::SeqCst);
            if !is_set_aside {
                return true;
            }
            self.forget(&mut log)
        };
        drop(forgotten);
        false
    }

    /// Ends the current error at a synchronise. The error then covers no task from `ticket` on.
    /// Called by the consumer.
    pub(crate) fn clear(&self, ticket: u64) {
        self.end_current(ticket, Phase::Synchronized);
    }

    /// Enqueues the end of `error` by `push` at the first receipt, and returns the end's ticket.
    ///
    /// Holds the log's lock until the error is marked as ended. So tasks of a thread that reads the
    /// mark get later tickets than the end.
    pub(crate) fn end_once(
        &self,
        error: &StreamFailure,
        push: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let log = self.log.lock();
        let ticket = if error.is_ended() { None } else { Some(push()) };
        error.end();
        drop(log);
        ticket
    }

    /// Ends `error` at its receipt through a handle. True if the error was current. Called by the
    /// consumer.
    pub(crate) fn end_received(&self, error: &Arc<StreamFailure>, ticket: u64) -> bool {
        let (is_current, forgotten) = {
            let mut log = self.log.lock();
            let is_unraised = |range: &&mut ErrorRange| {
                matches!(range.phase, Phase::Current | Phase::SetAside)
                    && Arc::ptr_eq(&range.error, error)
            };
            let Some(range) = log.ranges.iter_mut().find(is_unraised) else { return false };
            let is_current = range.phase == Phase::Current;
            range.to_ticket = range.to_ticket.min(ticket);
            range.phase = range.phase_after_end();
            (is_current, self.forget(&mut log))
        };
        drop(forgotten);
        is_current
    }

    /// Puts an error back that a synchronise has cleared and not raised: the next synchronise
    /// raises it. The caller's synchronise has made the log retain it.
    pub(crate) fn set_aside(&self, error: &Arc<StreamFailure>) {
        let mut log = self.log.lock();
        let is_cleared = |range: &&mut ErrorRange| {
            range.phase == Phase::Synchronized && Arc::ptr_eq(&range.error, error)
        };
        if let Some(range) = log.ranges.iter_mut().find(is_cleared) {
            range.phase = Phase::SetAside;
        }
    }

    /// For a synchronise with the task `ticket`, through a handle that was issued after a ticket:
    /// returns the error that covers the task. The caller raises the error and enqueues its end.
    /// From here on host accesses do not fail because of tasks up to this one.
    pub(crate) fn synchronize_at(
        &self,
        issued_after: u64,
        ticket: u64,
    ) -> Option<Arc<StreamFailure>> {
        if !self.has_failed() {
            return None;
        }
        let mut log = self.log.lock();
        let range = log.ranges.iter_mut().find(|range| {
            let is_visible = range.error.ticket() > issued_after || range.error.is_permanent();
            range.covers(ticket) && is_visible
        })?;
        if !range.error.is_permanent() {
            range.synchronized_to = range.synchronized_to.max(ticket);
        }
        Some(Arc::clone(&range.error))
    }

    /// Notes that the pool issues the stream again behind the task `ticket`. True while an error is
    /// current.
    pub(crate) fn note_reissue(&self, ticket: u64) -> bool {
        let mut log = self.log.lock();
        log.reissued_at = log.reissued_at.max(ticket);
        log.ranges.last().is_some_and(|range| range.phase == Phase::Current)
    }

    /// Ends the current error for the stream's new holder, from the task `ticket` on. A synchronise
    /// through an older handle still raises the error. Called by the consumer.
    pub(crate) fn reissue(&self, ticket: u64) {
        self.end_current(ticket, Phase::SetAside);
    }

    fn end_current(&self, ticket: u64, phase: Phase) {
        let forgotten = {
            let mut log = self.log.lock();
            if let Some(range) = log.ranges.last_mut()
                && range.phase == Phase::Current
                && !range.error.is_permanent()
            {
                range.to_ticket = ticket;
                range.phase = phase;
            }
            self.forget(&mut log)
        };
        drop(forgotten); // without the lock: a user's error may use the stream in its drop
    }

    /// As [`Failures::synchronize_up_to`], for all later tasks.
    pub(crate) fn synchronize(&self, issued_after: u64) -> UnraisedErrors {
        self.synchronize_up_to(issued_after, u64::MAX)
    }

    /// For a synchronise with the task `ticket`, through a handle that was issued after a ticket:
    /// returns the set-aside errors of the tasks between the two that no handle has received, and
    /// marks their errors that are not current as synchronized.
    pub(crate) fn synchronize_up_to(&self, issued_after: u64, ticket: u64) -> UnraisedErrors {
        if !self.has_failed() {
            return UnraisedErrors::default();
        }
        let (taken, forgotten) = {
            let mut log = self.log.lock();
            let mut errors = Vec::new();
            let is_seen = |range: &&mut ErrorRange| {
                range.error.ticket() > issued_after && range.from_ticket <= ticket
            };
            for range in log.ranges.iter_mut().filter(is_seen) {
                if range.phase == Phase::SetAside && !range.error.is_ended() {
                    errors.push(Arc::clone(&range.error));
                }
                if matches!(range.phase, Phase::Received | Phase::SetAside) {
                    range.synchronized_to = range.synchronized_to.max(ticket);
                    range.phase = range.phase_after_end();
                }
            }
            // The count covers all holders, so only a handle that sees all errors reports it.
            let sees_all = issued_after == 0;
            let counter = sees_all.then(|| std::mem::take(&mut log.num_forgotten));
            let num_forgotten = counter.map_or(0, |counter| counter.load(Ordering::Relaxed));
            let without_details = log.without_details.clone();
            let taken = UnraisedErrors { errors, num_forgotten, without_details };
            (taken, self.forget(&mut log))
        };
        drop(forgotten);
        taken
    }

    /// Marks the received errors of tasks after a ticket as synchronized, for a synchronise that
    /// has nothing to raise.
    pub(crate) fn forget_received(&self, issued_after: u64) {
        if !self.has_failed() {
            return;
        }
        let forgotten = {
            let mut log = self.log.lock();
            let is_received = |range: &&mut ErrorRange| {
                range.phase == Phase::Received && range.error.ticket() > issued_after
            };
            let received = log.ranges.iter_mut().filter(is_received);
            received.for_each(|range| range.phase = Phase::Synchronized);
            self.forget(&mut log)
        };
        drop(forgotten);
    }

    /// True from a task's failure until its error is dropped from the log. False in a forked child,
    /// where a thread that it lacks may hold the lock.
    pub(crate) fn has_failed(&self) -> bool {
        // Relaxed: the caller has seen the error's task retired, and reads the error under the
        // lock.
        self.has_entries.load(Ordering::Relaxed) && !fork::is_child()
    }

    /// The error that covers the task `ticket`.
    #[inline]
    pub fn at(&self, ticket: u64) -> Option<Arc<StreamFailure>> {
        if self.has_failed() { self.find_at(ticket) } else { None }
    }

    #[cold]
    fn find_at(&self, ticket: u64) -> Option<Arc<StreamFailure>> {
        self.find(|range| range.covers(ticket))
    }

    /// As [`Failures::at`], without an error that a synchronise has raised.
    pub(crate) fn unsynchronized_at(&self, ticket: u64) -> Option<Arc<StreamFailure>> {
        let is_synchronized = |range: &ErrorRange| {
            range.phase == Phase::Synchronized || range.synchronized_to >= ticket
        };
        self.find(|range| range.covers(ticket) && !is_synchronized(range))
    }

    /// The first error that covers a task of `first + 1..=last`.
    pub(crate) fn within(&self, first: u64, last: u64) -> Option<Arc<StreamFailure>> {
        self.find(|range| range.from_ticket <= last && range.to_ticket > first + 1)
    }

    /// The current error; `None` after a call has received it.
    #[cfg(test)]
    pub(crate) fn current(&self) -> Option<Arc<StreamFailure>> {
        self.find(|range| range.phase == Phase::Current && !range.error.is_ended())
    }

    /// True when a synchronise through a handle that was issued after the ticket `issued_after`
    /// would raise an error of a retired task.
    pub(crate) fn has_unraised(&self, issued_after: u64) -> bool {
        let is_unraised = |range: &ErrorRange| {
            matches!(range.phase, Phase::Current | Phase::SetAside)
                && (range.error.ticket() > issued_after || range.error.is_permanent())
                && !range.error.is_ended()
        };
        self.has_failed() && {
            let log = self.log.lock();
            issued_after == 0 && log.has_forgotten() || log.ranges.iter().any(is_unraised)
        }
    }

    fn find(&self, is_wanted: impl Fn(&ErrorRange) -> bool) -> Option<Arc<StreamFailure>> {
        if !self.has_failed() {
            return None;
        }
        let log = self.log.lock();
        log.ranges.iter().find(|range| is_wanted(range)).map(|range| Arc::clone(&range.error))
    }

    /// The errors that no call has raised, without cancellations, and the number of those that the
    /// log has dropped.
    pub(crate) fn unraised(&self) -> UnraisedErrors {
        let log = self.log.lock();
        let is_unraised = |range: &&ErrorRange| {
            matches!(range.phase, Phase::Current | Phase::SetAside)
                && !range.error.is_raised()
                && !range.error.is_cancellation()
        };
        let errors = log.ranges.iter().filter(is_unraised).map(|range| Arc::clone(&range.error));
        let num_forgotten = log.num_forgotten.load(Ordering::Relaxed);
        let without_details = log.without_details.clone();
        UnraisedErrors { errors: errors.collect(), num_forgotten, without_details }
    }

    /// Makes the log retain synchronized errors until [`Failures::release_cleared`].
    pub(crate) fn retain_cleared(&self) {
        // Relaxed: a concurrent `forget` that misses this increment drops only errors that were
        // synchronized before. The caller reads errors that end after it has registered its wait,
        // and errors that it finds under the log's lock.
        self.retainers.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn release_cleared(&self) {
        // SeqCst, both: the last retainer is subtracted before `has_entries` is read; partners: the
        // store in `open`, and the load of `retainers` in `forget`.
        if self.retainers.fetch_sub(1, Ordering::SeqCst) == 1
            && self.has_entries.load(Ordering::SeqCst)
            && !fork::is_child()
        {
            self.forget_cleared();
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_cleared(&self) {
        let forgotten = self.forget(&mut self.log.lock());
        drop(forgotten); // without the lock, as in `end_current`
    }

    /// Removes the errors that no wait, synchronise or host access needs. The caller drops them
    /// without the lock.
    fn forget(&self, log: &mut Log) -> Vec<Arc<StreamFailure>> {
        let mut forgotten = Vec::new();
        let Log { ranges, num_forgotten, without_details: instead, .. } = log;
        let is_beyond = |range: &&mut ErrorRange| range.phase == Phase::SetAside;
        let mut num_surplus = surplus(ranges, Phase::SetAside).count();
        // Cancellations first: a report at exit shows the other errors alone.
        for is_cancellation in [true, false] {
            let beyond = ranges.iter_mut().filter(is_beyond);
            let of_kind = beyond.filter(|range| range.error.is_cancellation() == is_cancellation);
            for range in of_kind.take(num_surplus) {
                num_surplus -= 1;
                range.phase = Phase::Synchronized;
                range.error.count_dropped(num_forgotten);
                instead.get_or_insert_with(|| without_details(&range.error));
            }
        }
        surplus(ranges, Phase::Received).for_each(|range| range.phase = Phase::Synchronized);
        // SeqCst: read after `has_entries` was stored in `open`; partner: `release_cleared`.
        if self.retainers.load(Ordering::SeqCst) == 0 {
            let dropped = ranges.extract_if(.., |range| range.phase == Phase::Synchronized);
            forgotten.extend(dropped.map(|range| range.error));
        }
        for range in surplus(ranges, Phase::Synchronized) {
            let error = instead.get_or_insert_with(|| without_details(&range.error));
            forgotten.push(std::mem::replace(&mut range.error, Arc::clone(error)));
        }
        // Relaxed: a reader of a stale `true` finds no entry under the lock. A reader of this
        // `false` has not yet seen a task of a later error retired.
        let has_entries = !ranges.is_empty() || log.has_forgotten();
        self.has_entries.store(has_entries, Ordering::Relaxed);
        forgotten
    }
}

/// The oldest ranges of a phase that exceed `MAX_KEPT`.
fn surplus(ranges: &mut [ErrorRange], phase: Phase) -> impl Iterator<Item = &mut ErrorRange> {
    let count = ranges.iter().filter(|range| range.phase == phase).count();
    let of_phase = ranges.iter_mut().filter(move |range| range.phase == phase);
    of_phase.take(count.saturating_sub(MAX_KEPT))
}

/// How a task of the runtime ends the stream's error without a synchronise.
pub(crate) enum FailureEnd {
    /// Ends this error, if it is current or set aside. The ticket is that of the synchronise which
    /// raises it; 0 through a handle.
    Received { error: Arc<StreamFailure>, synchronized_to: u64 },
    /// Ends any error.
    SetAside,
}

thread_local! {
    /// The error that caused the skip, while this thread drops a skipped task.
    static SKIPPED_BY: RefCell<Option<Arc<StreamFailure>>> = const { RefCell::new(None) };
}

/// The error that caused the skip, for destructors of values that a skipped task owns.
pub fn skipped_by() -> Option<Arc<StreamFailure>> {
    SKIPPED_BY.with_borrow(Clone::clone)
}

/// Calls `discard`, which drops a task that is skipped because of `error`.
pub(super) fn discard_skipped(error: Option<&Arc<StreamFailure>>, discard: impl FnOnce()) {
    let outer = SKIPPED_BY.replace(error.cloned());
    discard(); // does not panic: the caller catches panics of users' values
    drop(SKIPPED_BY.replace(outer));
}

/// The errors that the synchronise of one thread will raise. While the synchronise is in progress,
/// the consumer adds each error that it clears.
#[derive(Debug)]
pub(crate) struct SyncPoint {
    errors: Mutex<Vec<Cleared>>,
}

/// An error that the consumer has cleared, as the points share it that were in progress then, and
/// whether one of them has raised it. The error of a lost device is shared without being cleared.
pub(crate) type Cleared = Arc<(Arc<StreamFailure>, UnmodelledBool)>;

impl SyncPoint {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { errors: Mutex::new(LockRank::SyncPoint, Vec::new()) })
    }

    /// Adds an error. Other threads that synchronise at the same time may add several errors.
    pub(crate) fn add_error(&self, error: &Cleared) {
        self.errors.lock().push(Arc::clone(error));
    }

    pub(super) fn take(&self) -> Vec<Cleared> {
        std::mem::take(&mut *self.errors.lock())
    }
}

#[cfg(all(test, not(loom)))]
#[path = "failures_tests.rs"]
mod tests;
