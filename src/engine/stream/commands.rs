//! The commands of a stream: a user's closure, a wait for another stream, an inherited error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::backend::contract::Backend;
use crate::backend::contract::owned::OwnedMark;
use crate::base::blocking::while_blocked;
use crate::base::error::{DriverError, Error, FailureCause, StreamFailure, TaskError};
use crate::base::sync::assert_no_lock_held;
use crate::engine::frontier::Point;
use crate::engine::stream::context::{Blocker, TaskContext};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::operation::{Details, OperationKind};
use crate::queue::{Class, Command};

/// What a task may return: nothing, or a result whose error becomes the stream's.
pub trait TaskOutcome {
    /// The error, if it is one.
    fn into_task_result(self) -> Result<(), TaskError>;
}

impl TaskOutcome for () {
    #[inline]
    fn into_task_result(self) -> Result<(), TaskError> {
        Ok(())
    }
}

impl<E: Into<TaskError>> TaskOutcome for Result<(), E> {
    fn into_task_result(self) -> Result<(), TaskError> {
        self.map_err(Into::into)
    }
}

/// A user's function.
pub(crate) struct Call<F>(pub(crate) F);

impl<F, R> Command<TaskContext> for Call<F>
where
    F: FnOnce() -> R + Send + 'static,
    R: TaskOutcome,
{
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Call;

    #[inline]
    fn run(self, context: &mut TaskContext) {
        assert_no_lock_held();
        match caught(|| (self.0)().into_task_result()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => context.fail(FailureCause::Returned(error)),
            Err(panic) => context.fail(panicked(panic)),
        }
    }
}

/// Calls `act` and catches a panic; not in a model, which panics to report an error.
#[inline]
pub(crate) fn caught<R>(act: impl FnOnce() -> R) -> std::thread::Result<R> {
    if cfg!(loom) { Ok(act()) } else { catch_unwind(AssertUnwindSafe(act)) }
}

/// Drops a user's value. A panic of its drop must not end the thread that retires tasks, and the
/// task has no second outcome that could report it.
pub(crate) fn drop_quietly(drop_it: impl FnOnce()) {
    if let Err(panic) = caught(drop_it)
        && !panic.is::<&str>()
        && !panic.is::<String>()
    {
        std::mem::forget(panic); // its drop may panic as well
    }
}

/// A caught panic as a cause.
#[cold]
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> FailureCause {
    FailureCause::Panicked(panic_text(panic))
}

/// The message of a caught panic; drops the panic.
#[cold]
pub(super) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic_message(&*panic);
    drop_quietly(|| drop(panic));
    text
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("with a value that is not a text").to_owned()
}

/// Waits until another stream has passed its task `ticket`, a marker, which wakes its waiters. This
/// orders the two streams only; a failure of the task is not taken over.
pub(crate) struct Behind {
    source: Arc<StreamCore>,
    ticket: u64,
}

impl Behind {
    pub(crate) fn new(source: Arc<StreamCore>, ticket: u64) -> Self {
        Self { source, ticket }
    }

    /// Finds out how far the source is. Submits nothing and never blocks.
    fn look(&self, backend: &Arc<dyn Backend>) -> Look {
        let (source, ticket) = (&self.source, self.ticket);
        if source.progress.done() >= ticket {
            return Look::Passed;
        }
        if source.on_host || source.progress.retired() < ticket {
            return Look::Blocked(Blocker::Retired(Arc::clone(source), ticket));
        }
        // The task was submitted and may be done.
        let polled = source.marks.poll();
        if source.progress.done() >= ticket {
            return Look::Passed;
        }
        match (source.marks.at(ticket), polled) {
            (None, _) => Look::Unmarked,
            (Some(mark), _) if Arc::ptr_eq(&source.backend, backend) => Look::Submitted(mark),
            // The lost device makes no progress, and no callback will ever come.
            (Some(_), Err(lost @ Error::Driver(DriverError::DeviceLost { .. }))) => {
                Look::Lost(lost)
            }
            (Some(_), _) => Look::Blocked(Blocker::Reached(Arc::clone(source), ticket)),
        }
    }

    /// Does what the look requires; true when the stream goes on.
    fn act(look: Look, context: &mut TaskContext) -> bool {
        match look {
            Look::Passed | Look::Unmarked => {}
            Look::Blocked(blocker) => {
                context.effects().blocked_on = Some(blocker);
                return false;
            }
            Look::Submitted(mark) => {
                if let Err(refusal) = context.handle.wait(&mark) {
                    context.fail(FailureCause::Backend(refusal));
                    // The promised order must still hold: this thread waits in place of the stream.
                    // A driver that refuses that too is lost.
                    let _ = while_blocked(|| mark.wait());
                }
            }
            Look::Lost(lost) => context.fail(FailureCause::Backend(lost)),
        }
        true
    }

    fn details(&self) -> Details {
        let point = Point { progress: Arc::clone(&self.source.progress), ticket: self.ticket };
        Details { source: Some(point), ..Details::default() }
    }
}

/// How far the source of a wait is.
enum Look {
    /// It has passed the task.
    Passed,
    /// The stream parks until it may have.
    Blocked(Blocker),
    /// The task was submitted to the stream's own backend, which can wait for this mark.
    Submitted(Arc<OwnedMark>),
    /// The task was submitted, and no mark stands at it or behind it.
    Unmarked,
    /// Its device is lost.
    Lost(Error),
}

impl Command<TaskContext> for Behind {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;
    const MAY_WAIT: bool = true;

    fn details(&self) -> Details {
        Behind::details(self)
    }

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        let mut look = self.look(&context.backend);
        if matches!(look, Look::Unmarked) {
            // Only records leave marks, so one is placed behind the task.
            if let Err(refusal) = self.source.mark_now() {
                // The tasks that follow are skipped, so they need no order.
                context.fail(FailureCause::Backend(refusal));
                return true;
            }
            look = self.look(&context.backend);
        }
        Self::act(look, context)
    }

    fn run(self, _context: &mut TaskContext) {}
}

/// Waits for a task, which is a record, as [`Behind`] does, and takes its failure over.
///
/// The source's errors are bound from the moment this is made until it is dropped.
pub(crate) struct WaitFor(Behind);

impl WaitFor {
    /// `source.failures` was bound for this.
    pub(crate) fn new_bound(source: Arc<StreamCore>, ticket: u64) -> Self {
        Self(Behind::new(source, ticket))
    }
}

impl Command<TaskContext> for WaitFor {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Wait;
    const MAY_WAIT: bool = true;

    fn details(&self) -> Details {
        self.0.details()
    }

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        Behind::act(self.0.look(&context.backend), context)
    }

    fn run(self, context: &mut TaskContext) {
        if let Some(error) = self.0.source.failures.at(self.0.ticket) {
            context.inherit(&error);
        }
    }
}

impl Drop for WaitFor {
    fn drop(&mut self) {
        self.0.source.failures.unbind();
    }
}

/// Passes on a failure that is already known.
pub(crate) struct Inherit(pub(crate) Arc<StreamFailure>);

impl Command<TaskContext> for Inherit {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.inherit(&self.0);
    }
}
