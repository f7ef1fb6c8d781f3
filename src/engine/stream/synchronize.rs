//! Synchronise: a point in the queue that ends the open error and raises it to all waiting threads.

use std::panic::resume_unwind;
use std::sync::Arc;

use crate::base::blocking::while_blocked;
use crate::base::error::{Error, Result, RuntimeError, StreamError, StreamFailure};
use crate::base::sync::{LockRank, Mutex};
use crate::engine::stream::commands::caught;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::Stop;
use crate::engine::stream::enqueue::Checked;
use crate::engine::stream::frames;
use crate::engine::stream::operation::OperationKind;
use crate::engine::stream::wait::{Interrupt, ask_now};
use crate::queue::{Class, Command};

/// The synchronise of one thread. Consumers add each error that they end while it is in progress.
#[derive(Debug)]
pub(crate) struct SyncPoint {
    errors: Mutex<Vec<Arc<StreamFailure>>>,
}

impl SyncPoint {
    fn new() -> Arc<Self> {
        Arc::new(Self { errors: Mutex::new(LockRank::SyncPoint, Vec::new()) })
    }

    /// Adds an error. A point gets several when other threads synchronise at the same time.
    pub(crate) fn add_error(&self, error: &Arc<StreamFailure>) {
        self.errors.lock().push(Arc::clone(error));
    }

    fn take(&self) -> Vec<Arc<StreamFailure>> {
        std::mem::take(&mut *self.errors.lock())
    }
}

/// The command that ends the open error for a [`SyncPoint`].
struct Synchronize(Arc<SyncPoint>);

impl Command<TaskContext> for Synchronize {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
        context.effects().sync = Some(self.0);
    }
}

/// Makes an ended error the stream's open error again.
struct Reopen(Arc<StreamFailure>);

impl Command<TaskContext> for Reopen {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.effects().failure = Some(self.0);
    }
}

/// A synchronise in progress.
pub(crate) struct Pending {
    point: Arc<SyncPoint>,
    ticket: u64,
}

/// The error that a helping thread has ended in its synchronise, if any.
struct Passed {
    error: Option<Arc<StreamFailure>>,
}

impl StreamCore {
    /// Blocks until everything enqueued before is done. Then ends the open error and raises it.
    pub(crate) fn synchronize(self: &Arc<Self>, interrupt: &mut Interrupt<'_>) -> Result<()> {
        crate::base::fork::check()?;
        if self.is_quiet() {
            return Ok(());
        }
        self.check_wait()?;
        if let Some(passed) = self.synchronize_by_helping(interrupt)? {
            return raise(passed.error);
        }
        let pending = self.begin_synchronize()?;
        self.finish_synchronize(&pending, interrupt)
    }

    /// True when a synchronise would neither wait nor raise.
    pub(crate) fn is_quiet(self: &Arc<Self>) -> bool {
        self.on_host
            && self.progress.retired() >= self.pushed()
            && self.failures.current().is_none()
    }

    /// Announces that this waiting thread is about to execute the stream, so that a lingering
    /// worker leaves. False when this thread must not execute the stream.
    #[inline]
    pub(crate) fn expect_helper(&self) -> bool {
        let hints = &self.figures.hints;
        let may_help = self.on_host && !hints.is_long() && frames::may_help();
        if may_help {
            hints.note_helper();
        }
        may_help
    }

    /// Synchronises by executing the stream on this thread, without a point in the queue. `None`
    /// when the thread may not help or has to leave the stream before the end.
    fn synchronize_by_helping(
        self: &Arc<Self>,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Option<Passed>> {
        let until = self.pushed();
        while self.expect_helper() {
            let Some(mut pass) = self.turnstile.enter_to_help() else { break };
            let stop = self.drain_helping(&mut pass, until);
            let consumed = pass.receiver.consumed();
            let is_reached = stop == Stop::Finished && consumed >= until;
            let end = |context: &mut TaskContext| self.end_error(consumed + 1, context);
            let passed = is_reached.then(|| Passed { error: end(&mut pass.context) });
            self.leave_and_submit(pass, stop);
            if passed.is_some() || stop != Stop::TimeIsUp {
                return Ok(passed);
            }
            ask_now(interrupt)?;
        }
        Ok(None)
    }

    pub(crate) fn begin_synchronize(self: &Arc<Self>) -> Result<Pending> {
        let point = SyncPoint::new();
        // The point is listed before it is enqueued, so the consumer finds it in the list.
        self.synchronizing.lock().push(Arc::clone(&point));
        match self.enqueue(Synchronize(Arc::clone(&point)), Checked) {
            Ok(pushed) => Ok(Pending { point, ticket: pushed.ticket }),
            Err(refusal) => {
                self.remove_point(&point);
                Err(refusal)
            }
        }
    }

    /// Waits for the point and raises the ended errors. If the wait fails, reopens the errors.
    pub(crate) fn finish_synchronize(
        self: &Arc<Self>,
        pending: &Pending,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<()> {
        raise_all(self.take_synchronized(pending, interrupt)?)
    }

    /// As [`Self::finish_synchronize`], for a caller that raises the errors together with others.
    pub(crate) fn take_synchronized(
        self: &Arc<Self>,
        pending: &Pending,
        interrupt: &mut Interrupt<'_>,
    ) -> Result<Vec<Arc<StreamFailure>>> {
        // A panic of the backend abandons the synchronise too, and then unwinds further.
        let waited = caught(|| self.wait_for(pending, interrupt));
        if let Ok(Ok(())) = waited {
            return Ok(pending.point.take());
        }
        self.abandon_synchronize(pending);
        waited.unwrap_or_else(|panic| resume_unwind(panic)).map(|()| Vec::new())
    }

    fn wait_for(self: &Arc<Self>, pending: &Pending, interrupt: &mut Interrupt<'_>) -> Result<()> {
        self.wait_retired(pending.ticket, interrupt)?;
        if !self.on_host {
            while_blocked(|| self.handle.synchronize())?;
            self.marks.reached(pending.ticket);
        }
        Ok(())
    }

    /// Removes a point from the list, so that the point ends no error when the consumer reaches it.
    fn remove_point(&self, point: &Arc<SyncPoint>) {
        self.synchronizing.lock().retain(|waiting| !Arc::ptr_eq(waiting, point));
    }

    /// Abandons a synchronise in progress, and reopens the errors that its point has received.
    pub(crate) fn abandon_synchronize(self: &Arc<Self>, pending: &Pending) {
        self.remove_point(&pending.point);
        for error in pending.point.take() {
            self.put_back(error);
        }
    }

    /// Reopens an ended error that could not be raised.
    pub(crate) fn put_back(self: &Arc<Self>, error: Arc<StreamFailure>) {
        // The result is ignored: after a shutdown no error is raised any more.
        let _ = self.enqueue(Reopen(error), Checked);
    }
}

/// Converts an error to a result and marks the error as seen. A cancellation becomes `ShutDown`.
#[inline]
pub(crate) fn raise(error: Option<Arc<StreamFailure>>) -> Result<()> {
    error.map_or(Ok(()), |error| raise_all(vec![error]))
}

#[cold]
pub(crate) fn raise_all(errors: Vec<Arc<StreamFailure>>) -> Result<()> {
    raise_counted(errors, 0)
}

/// As `raise_all`, with the number of older errors that were discarded.
#[cold]
pub(crate) fn raise_counted(mut errors: Vec<Arc<StreamFailure>>, num_forgotten: u64) -> Result<()> {
    for error in &errors {
        error.set_seen();
    }
    let count = errors.len();
    errors.retain(|error| !error.is_cancellation());
    errors.sort_by_key(|error| error.inherited_from().is_some()); // originals before inherited ones
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
