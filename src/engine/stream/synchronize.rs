//! Synchronise: waits for the earlier tasks of a stream, and raises and ends the stream's error.
//!
//! | synchronise | ends the error |
//! |---|---|
//! | of one stream, without a limit of time | at its task ([`ErrorEnd::AtTask`]): the consumer clears it |
//! | with a limit, by a future, of several streams | when it is raised ([`ErrorEnd::WhenRaised`]) |
//!
//! A synchronise that may be given up must not let later tasks run before its caller has the error.
//! An error that the consumer clears goes to every synchronise in progress. The last one that gives
//! up puts the error back, unless another one has raised it.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::base::error::{Error, Result, RuntimeError, StreamError, StreamFailure};
use crate::base::fork::Inherited;
use crate::base::sync::Ordering;
use crate::base::thread::while_blocked;
use crate::engine::log::record::RecordKind;
use crate::engine::stream::consumer_lock::ConsumerGuard;
use crate::engine::stream::core::{Consumer, RetainingStream, Stop, StreamCore, TaskContext};
use crate::engine::stream::enqueue::{Always, Checked};
use crate::engine::stream::failures::{Cleared, SyncPoint, UnraisedErrors};
use crate::engine::stream::interrupt::Interrupt;
use crate::engine::stream::task::{OperationKind, catch_panic};
use crate::engine::stream::task_future::TaskFuture;
use crate::engine::stream::{frames, order_watch};
use crate::queue::{Class, Command};

/// When a synchronise ends the stream's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorEnd {
    AtTask,
    WhenRaised,
}

/// The task that a synchronise waits for. With a point, the consumer clears the stream's error
/// there and adds it to all [`SyncPoint`]s.
struct Synchronize(Option<Arc<SyncPoint>>);

impl Command<TaskContext> for Synchronize {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
        if let Some(point) = self.0 {
            context.effects().sync = Some(point);
        }
    }
}

/// The task that fails the stream again with an error that was cleared but not raised.
struct Reopen(Arc<StreamFailure>);

impl Command<TaskContext> for Reopen {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        // A call may have received the error through a handle since the synchronise cleared it.
        if !self.0.is_ended() {
            context.effects().failure = Some(self.0);
        }
    }
}

/// A synchronise in progress, with the ticket of its task.
pub(crate) struct Pending {
    point: Arc<SyncPoint>,
    ticket: u64,
    ends: ErrorEnd,
    /// The log keeps errors that were cleared: they may be put back.
    _log: RetainingStream,
}

impl StreamCore {
    /// Blocks until all earlier tasks are done. Then clears and raises the errors of tasks after
    /// the ticket `issued_after`: the caller holds the stream after that ticket.
    pub(crate) fn synchronize(
        self: &Arc<Self>,
        issued_after: u64,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        self.check_wait()?;
        let until = self.pushed();
        if order_watch::is_on() {
            return self.synchronize_told(until, issued_after, interrupt);
        }
        self.synchronize_up_to(until, issued_after, interrupt)
    }

    #[cold]
    fn synchronize_told(
        self: &Arc<Self>,
        until: u64,
        issued_after: u64,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        let waited = self.synchronize_up_to(until, issued_after, interrupt);
        self.tell_waited(until, true, &waited);
        waited
    }

    fn synchronize_up_to(
        self: &Arc<Self>,
        until: u64,
        issued_after: u64,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        let is_quiet = self.is_passed_up_to(until) && !self.failures.has_failed();
        if is_quiet || self.synchronize_by_helping(until, issued_after, interrupt)? {
            return Ok(());
        }
        let ends = if interrupt.has_limit() { ErrorEnd::WhenRaised } else { ErrorEnd::AtTask };
        let pending = self.begin_synchronize(ends, !interrupt.has_limit())?;
        self.await_synchronized(&pending, interrupt)?;
        raise_counted(self.take_pending(&pending, issued_after))
    }

    /// Raises the errors that a synchronise has cleared, and those of earlier holders that the pool
    /// has set aside, as far as their tasks come behind the ticket `issued_after`.
    #[cold]
    fn raise_after(self: &Arc<Self>, issued_after: u64, cleared: Vec<Cleared>) -> Result<()> {
        raise_counted(self.take_after(issued_after, u64::MAX, cleared))
    }

    /// As [`StreamCore::raise_after`], for a caller that raises the errors. Afterwards no
    /// `SyncPoint` puts them back.
    pub(crate) fn take_after(
        self: &Arc<Self>,
        issued_after: u64,
        ticket: u64,
        cleared: Vec<Cleared>,
    ) -> UnraisedErrors {
        let mut taken = self.failures.synchronize_up_to(issued_after, ticket);
        for one in cleared {
            if one.0.ticket() > issued_after || one.0.is_permanent() {
                taken.errors.push(raised(&one));
            } else {
                self.put_back(one); // another synchronise has ended an error of an earlier holder
            }
        }
        taken
    }

    /// True when a synchronise through a handle that was issued after the ticket `issued_after`
    /// would neither wait nor raise.
    pub fn is_quiet(&self, issued_after: u64) -> bool {
        self.is_passed_up_to(self.pushed()) && !self.failures.has_unraised(issued_after)
    }

    #[inline]
    fn is_passed_up_to(&self, ticket: u64) -> bool {
        self.on_host && self.progress.retired() >= ticket
    }

    /// Asks a lingering worker to leave, because this waiting thread is about to execute the
    /// stream. False when this thread must not help.
    #[inline]
    pub(crate) fn announce_helper(&self) -> bool {
        let hints = &self.batch_state.hints;
        let may_help = self.on_host && !hints.is_long() && frames::may_help();
        if may_help {
            hints.note_helper();
        }
        may_help
    }

    /// Synchronises by executing the stream on this thread, without a task in the queue. Raises the
    /// errors that it clears. False when the thread must not help or leaves the stream before the
    /// tasks up to `until` are done.
    fn synchronize_by_helping(
        self: &Arc<Self>,
        until: u64,
        issued_after: u64,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<bool> {
        while !interrupt.has_limit() && self.announce_helper() {
            let Some(mut guard) = self.consumer_lock.enter_to_help() else { break };
            let stop = self.drain_helping(&mut guard, until);
            let is_reached = stop == Stop::Finished && guard.receiver.consumed() >= until;
            if is_reached && !self.failures.has_failed() {
                self.leave_and_submit(guard, stop);
                return Ok(true);
            }
            // Apart, so that the common round keeps neither an error nor the check in registers.
            let outcome = (stop, is_reached, issued_after);
            if let Some(is_over) = self.leave_unsynchronized(guard, outcome, interrupt)? {
                return Ok(is_over);
            }
        }
        Ok(false)
    }

    /// Leaves a stream that has failed, or before its tasks are done. `None` when the thread may go
    /// on helping.
    #[cold]
    #[inline(never)]
    fn leave_unsynchronized(
        self: &Arc<Self>,
        mut guard: ConsumerGuard<'_, Consumer>,
        (stop, is_reached, issued_after): (Stop, bool, u64),
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Option<bool>> {
        let next = guard.receiver.consumed() + 1;
        let cleared = if is_reached { self.clear_error(next, &mut guard.context) } else { None };
        self.leave_and_submit(guard, stop);
        if is_reached {
            self.raise_after(issued_after, cleared.into_iter().collect())?;
        }
        if is_reached || stop != Stop::TimeIsUp {
            return Ok(Some(is_reached));
        }
        interrupt.check_now().map(|()| None)
    }

    /// Enqueues a synchronise. At the stream's task limit, a throttled call executes tasks or
    /// blocks, which waits with a limit and futures must not do.
    pub(crate) fn begin_synchronize(
        self: &Arc<Self>,
        ends: ErrorEnd,
        is_throttled: bool,
    ) -> Result<Pending> {
        let (point, log) = (SyncPoint::new(), RetainingStream::new(self));
        // Listed before the enqueue, so that the consumer of the task finds the point in the list.
        self.synchronizing.lock().push(Arc::clone(&point));
        let task = Synchronize((ends == ErrorEnd::AtTask).then(|| Arc::clone(&point)));
        let entered = if is_throttled {
            self.enqueue(task, Checked)
        } else {
            self.lifecycle.check().map(|()| self.enqueue(task, Always))
        };
        let ticket = entered.inspect_err(|_| self.remove_point(&point))?.ticket;
        Ok(Pending { point, ticket, ends, _log: log })
    }

    /// Waits for the task of a synchronise. If the wait fails, the synchronise is abandoned.
    pub(crate) fn await_synchronized(
        self: &Arc<Self>,
        pending: &Pending,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        // A panic of the backend abandons the synchronise too, and then unwinds further.
        let waited = catch_panic(|| self.wait_for(pending, interrupt));
        if !matches!(waited, Ok(Ok(()))) {
            self.abandon_synchronize(pending);
        }
        waited.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Ends the errors of a synchronise whose task is done, and returns them for the caller to
    /// raise: those of tasks up to the synchronise's own and after the ticket `issued_after`.
    pub(crate) fn take_pending(
        self: &Arc<Self>,
        pending: &Pending,
        issued_after: u64,
    ) -> UnraisedErrors {
        if pending.ends == ErrorEnd::AtTask {
            return self.take_after(issued_after, u64::MAX, pending.point.take());
        }
        self.remove_point(&pending.point);
        let (cleared, later): (Vec<_>, Vec<_>) =
            pending.point.take().into_iter().partition(|one| one.0.ticket() <= pending.ticket);
        for one in later {
            self.put_back(one);
        }
        let covering = self.failures.synchronize_at(issued_after, pending.ticket);
        let mut taken = self.take_after(issued_after, pending.ticket, cleared);
        if let Some(error) = covering {
            self.end_synchronized(&error, pending.ticket);
            if !taken.errors.iter().any(|other| Arc::ptr_eq(other, &error)) {
                taken.errors.push(error);
            }
        }
        taken
    }

    fn wait_for(self: &Arc<Self>, pending: &Pending, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.wait_retired(pending.ticket, interrupt)?;
        if self.on_host {
            return Ok(());
        }
        if interrupt.has_limit() {
            return self.wait_reached(pending.ticket, interrupt);
        }
        let start = self.wait_start();
        let waited = while_blocked(|| self.handle.synchronize());
        self.log_wait(RecordKind::Slept, pending.ticket, start);
        waited?;
        self.marks.reached(pending.ticket);
        Ok(())
    }

    /// Removes a point from the list, so that the point's task clears no error.
    fn remove_point(&self, point: &Arc<SyncPoint>) {
        self.synchronizing.lock().retain(|waiting| !Arc::ptr_eq(waiting, point));
    }

    /// Abandons a synchronise in progress. The errors of its point then fail the stream again.
    pub(crate) fn abandon_synchronize(self: &Arc<Self>, pending: &Pending) {
        self.remove_point(&pending.point);
        pending.point.take().into_iter().for_each(|cleared| self.put_back(cleared));
    }

    /// Puts back an error that was cleared, if no other point has the error or has raised it: the
    /// next synchronise raises it, and an enqueued task fails the stream again, unless a later
    /// error does. Is never throttled: waits with a limit end here, and threads drop futures.
    pub(crate) fn put_back(self: &Arc<Self>, cleared: Cleared) {
        let Some((error, is_raised)) = Arc::into_inner(cleared) else { return };
        // After a shutdown no thread raises errors. A permanent error is still current.
        let is_over = is_raised.into_inner() || error.is_permanent();
        if is_over {
            return;
        }
        self.failures.set_aside(&error);
        if self.lifecycle.check().is_ok() {
            self.enqueue(Reopen(error), Always);
        }
    }
}

/// Waits for streams, ends their errors and returns them. Ends none if a wait fails, and returns
/// the wait's error, or its panic.
pub(crate) fn synchronize_all(
    streams: &[Arc<StreamCore>],
    interrupt: &mut Interrupt<'_>,
) -> Result<UnraisedErrors, std::thread::Result<Error>> {
    streams.iter().try_for_each(|stream| stream.check_wait()).map_err(Ok)?;
    let start = |stream: &Arc<StreamCore>| {
        let is_busy = !stream.is_quiet(0);
        is_busy.then(|| stream.begin_synchronize(ErrorEnd::WhenRaised, !interrupt.has_limit()))
    };
    let begun: Vec<_> = streams.iter().map(start).collect(); // all, before the first wait
    let (mut waited, mut obstacle) = (Vec::new(), None);
    for (stream, begun) in streams.iter().zip(begun) {
        let finish = |pending: Pending| {
            if obstacle.is_none() {
                return stream.await_synchronized(&pending, interrupt).map(|()| Some(pending));
            }
            stream.abandon_synchronize(&pending);
            Ok(None)
        };
        match catch_panic(|| begun.transpose()?.map_or(Ok(None), finish)) {
            Ok(Ok(pending)) => waited.push((stream, pending)),
            Ok(Err(other)) => obstacle = Some(Ok(other)),
            Err(panic) => obstacle = Some(Err(panic)),
        }
    }
    if let Some(obstacle) = obstacle {
        for (stream, pending) in waited {
            if let Some(pending) = pending {
                stream.abandon_synchronize(&pending);
            }
        }
        return Err(obstacle);
    }
    let mut taken = UnraisedErrors::default();
    for (stream, pending) in waited {
        let of_stream = match pending {
            Some(pending) => stream.take_pending(&pending, 0),
            None => stream.failures.synchronize(0),
        };
        taken.errors.extend(of_stream.errors);
        taken.num_forgotten += of_stream.num_forgotten;
        taken.without_details = taken.without_details.or(of_stream.without_details);
    }
    Ok(taken)
}

/// A synchronise as a future. Its drop abandons a synchronise that is not done.
pub struct SynchronizeFuture(
    /// `None` for a stream without unfinished work and without an error.
    Option<Inherited<Abandoning>>,
);

impl fmt::Debug for SynchronizeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SynchronizeFuture").finish_non_exhaustive()
    }
}

struct Abandoning {
    task: TaskFuture,
    /// The last ticket before the stream was issued to the caller.
    issued_after: u64,
    /// `None` once the errors were raised or abandoned.
    pending: Option<Pending>,
}

impl SynchronizeFuture {
    /// Fails inside of the stream's own tasks, after a shutdown and in a forked child.
    pub fn new(stream: &Arc<StreamCore>, issued_after: u64) -> Result<Self> {
        stream.check_wait()?;
        // A refused query leaves it to the synchronise to raise the refusal.
        let is_done = || stream.on_host || stream.handle.query().unwrap_or(false);
        let has_work = stream.progress.retired() < stream.pushed() || !is_done();
        if !has_work && !stream.failures.has_failed() {
            stream.tell_waited(stream.pushed(), true, &Ok(()));
            return Ok(Self(None));
        }
        let pending = stream.begin_synchronize(ErrorEnd::WhenRaised, false)?;
        let task = TaskFuture::new(stream, pending.ticket);
        Ok(Self(Some(Inherited::new(Abandoning { task, issued_after, pending: Some(pending) }))))
    }

    /// True when a poll is ready.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|synchronize| synchronize.task.is_done())
    }

    /// Ready when the earlier tasks are done: then ends and raises their errors.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<()>> {
        let Some(synchronize) = &mut self.0 else { return Poll::Ready(Ok(())) };
        let Abandoning { task, issued_after, pending } = &mut **synchronize;
        match task.poll(waker) {
            Poll::Ready(Ok(())) => {
                let Some(pending) = pending.take() else { return Poll::Ready(Ok(())) };
                Poll::Ready(raise_counted(task.stream().take_pending(&pending, *issued_after)))
            }
            not_done => not_done,
        }
    }
}

impl Drop for Abandoning {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            self.task.stream().abandon_synchronize(pending);
        }
    }
}

/// Converts an error to a result and marks the error as seen. A cancellation becomes `ShutDown`.
#[inline]
pub(crate) fn raise(error: Option<Arc<StreamFailure>>) -> Result<()> {
    error.map_or(Ok(()), |error| raise_all(vec![error]))
}

/// The error, which the caller raises. From here on no point puts it back.
pub(crate) fn raised(cleared: &Cleared) -> Arc<StreamFailure> {
    // Relaxed: the drop of `cleared` comes before the `into_inner` in `put_back`.
    cleared.1.store(true, Ordering::Relaxed);
    Arc::clone(&cleared.0)
}

#[cold]
pub(crate) fn raise_all(errors: Vec<Arc<StreamFailure>>) -> Result<()> {
    raise_counted(UnraisedErrors { errors, ..UnraisedErrors::default() })
}

/// As `raise_all`. The raised error reports the number of older errors that were discarded.
#[cold]
pub(crate) fn raise_counted(unraised: UnraisedErrors) -> Result<()> {
    let UnraisedErrors { mut errors, mut num_forgotten, without_details } = unraised;
    if errors.is_empty()
        && num_forgotten > 0
        && let Some(error) = without_details
    {
        errors.push(error);
        num_forgotten -= 1;
    }
    for error in &errors {
        error.set_raised();
    }
    let count = errors.len();
    errors.retain(|error| !error.is_cancellation());
    // Originals before inherited ones.
    errors.sort_by_key(|error| error.inherited_from().is_some());
    match (&errors[..], count) {
        ([], 0) => Ok(()),
        ([], _) => Err(Error::Runtime(RuntimeError::ShutDown)),
        ([error], _) if num_forgotten == 0 => {
            Err(Error::Stream(StreamError::Failed(Arc::clone(error))))
        }
        _ => {
            Err(Error::Stream(StreamError::SeveralFailed { errors: errors.into(), num_forgotten }))
        }
    }
}
