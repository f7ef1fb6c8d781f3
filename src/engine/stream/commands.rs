//! The commands of a stream: a user's closure, a wait for another stream, an inherited error.
//!
//! # Operations
//!
//! A command's type determines its kind and name, so reading them needs no task. Details are
//! computed before the task runs, for a subscriber that asks for them and for debug assertions.

use std::any::type_name;
use std::sync::Arc;

use crate::backend::contract::Backend;
use crate::backend::contract::owned::OwnedMark;
use crate::base::error::{DriverError, Error, FailureCause, StreamFailure};
use crate::base::sync::assert_no_lock_held;
use crate::base::thread::while_blocked;
use crate::engine::log::context::NameId;
use crate::engine::log::record::RecordedSource;
use crate::engine::stream::core::{Blocker, RetainingStream, StreamCore, TaskContext};
use crate::engine::stream::latch::{Latch, Outcome};
use crate::engine::stream::task::{Details, OperationKind, TaskOutcome, catch_panic, panic_cause};
use crate::queue::{Class, Command};

/// A user's closure as a task. Its error or panic fails the stream.
pub(crate) struct Call<F>(pub(crate) F);

impl<F, R> Command<TaskContext> for Call<F>
where
    F: FnOnce() -> R + Send + 'static,
    R: TaskOutcome,
{
    const CLASS: Class = Class::User;
    const OPERATION: OperationKind = OperationKind::Call;

    fn details(&self) -> Details {
        Details { name: NameId::of_static(type_name::<F>()), ..Details::default() }
    }

    #[inline]
    fn run(self, context: &mut TaskContext) {
        assert_no_lock_held();
        match catch_panic(|| (self.0)().into_task_result()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => context.fail(FailureCause::Returned(error)),
            Err(panic) => context.fail(panic_cause(panic)),
        }
    }
}

/// A command that waits until the stream `source` has passed its task `ticket`, which must be a
/// marker. The command only orders the two streams; it does not inherit the task's failure.
pub(crate) struct WaitForMarker {
    source: Arc<StreamCore>,
    ticket: u64,
}

impl WaitForMarker {
    pub(crate) fn new(source: Arc<StreamCore>, ticket: u64) -> Self {
        Self { source, ticket }
    }
}

impl State {
    /// Polls whether the source has passed the ticket. Submits no work and never blocks.
    fn poll(source: &Arc<StreamCore>, ticket: u64, backend: &Arc<dyn Backend>) -> Self {
        if source.progress.done() >= ticket {
            return Self::Passed;
        }
        if source.on_host || source.progress.retired() < ticket {
            return Self::Blocked(Blocker::Retired(Arc::clone(source), ticket));
        }
        // The task was submitted to the driver, which may have done it since the last poll.
        let polled = source.marks.poll();
        if source.progress.done() >= ticket {
            return Self::Passed;
        }
        match (source.marks.at(ticket), polled) {
            (None, _) => Self::Unmarked,
            (Some(mark), _) if Arc::ptr_eq(&source.backend, backend) => Self::Submitted(mark),
            // Fails the wait: a lost device makes no progress and calls no callback.
            (Some(_), Err(lost @ Error::Driver(DriverError::DeviceLost { .. }))) => {
                Self::Lost(lost)
            }
            (Some(_), _) => Self::Blocked(Blocker::Reached(Arc::clone(source), ticket)),
        }
    }

    /// Parks the stream, adds a wait for the mark, or fails the stream. True if the stream can go
    /// on.
    fn apply(self, context: &mut TaskContext) -> bool {
        match self {
            Self::Passed | Self::Unmarked => {}
            Self::Blocked(blocker) => {
                context.effects().blocked_on = Some(blocker);
                return false;
            }
            Self::Submitted(mark) => {
                if let Err(refusal) = context.handle.wait(&mark) {
                    context.fail(FailureCause::Backend(refusal));
                    // Later tasks must still run after the mark, so this thread waits for the mark.
                    // The result is ignored: the stream has failed already.
                    let _ = while_blocked(|| mark.wait());
                }
            }
            Self::Lost(lost) => context.fail(FailureCause::Backend(lost)),
        }
        true
    }
}

fn details(source: &StreamCore, ticket: u64) -> Details {
    let (device, stream_id) = (source.identity.device, source.identity.id);
    let source = RecordedSource { device, stream_id, ticket };
    Details { source: Some(source), ..Details::default() }
}

/// The polled progress of a wait's source.
enum State {
    Passed,
    /// The source may not have passed the task: the stream parks on this blocker.
    Blocked(Blocker),
    /// The task was submitted to the waiting stream's own backend, which can wait for this mark.
    Submitted(Arc<OwnedMark>),
    /// The task was submitted, and no pending mark is at or behind it.
    Unmarked,
    Lost(Error),
}

impl Command<TaskContext> for WaitForMarker {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;
    const MAY_WAIT: bool = true;

    fn details(&self) -> Details {
        details(&self.source, self.ticket)
    }

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        let mut state = State::poll(&self.source, self.ticket, &context.backend);
        if matches!(state, State::Unmarked) {
            // Places the missing mark, and polls again.
            if let Err(refusal) = self.source.mark_now() {
                // The tasks that follow are skipped, so they need no order.
                context.fail(FailureCause::Backend(refusal));
                return true;
            }
            state = State::poll(&self.source, self.ticket, &context.backend);
        }
        state.apply(context)
    }

    fn run(self, _context: &mut TaskContext) {}
}

/// A command that waits for a record as [`WaitForMarker`] does, and inherits the record's failure.
pub(crate) struct WaitFor {
    source: RetainingStream,
    ticket: u64,
}

impl WaitFor {
    pub(crate) fn new(source: &Arc<StreamCore>, ticket: u64) -> Self {
        Self { source: RetainingStream::new(source), ticket }
    }
}

impl Command<TaskContext> for WaitFor {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Wait;
    const MAY_WAIT: bool = true;

    fn details(&self) -> Details {
        details(&self.source, self.ticket)
    }

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        State::poll(&self.source, self.ticket, &context.backend).apply(context)
    }

    fn run(self, context: &mut TaskContext) {
        if let Some(error) = self.source.failures.at(self.ticket) {
            context.inherit(&error);
        }
    }
}

/// A command that fails its stream with the failure of another stream's task.
pub(crate) struct Inherit(pub(crate) Arc<StreamFailure>);

impl Command<TaskContext> for Inherit {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.inherit(&self.0);
    }
}

/// The task's reference to its latch; abandons the latch on drop.
pub(super) struct LatchWaiter(pub(super) Arc<Latch<StreamCore>>);

impl Drop for LatchWaiter {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Opens a latch, and resumes the stream that is parked on it.
pub(crate) fn open_latch(latch: &Latch<StreamCore>, outcome: Outcome) {
    if let Some((stream, parking)) = latch.open(outcome) {
        stream.unpark(parking);
    }
}

/// A command that waits until a latch is open, whatever the outcome.
pub(crate) struct WaitForLatch(LatchWaiter);

impl WaitForLatch {
    /// The command's drop abandons the latch, so no other command may wait for the same latch.
    pub(crate) fn new(latch: Arc<Latch<StreamCore>>) -> Self {
        Self(LatchWaiter(latch))
    }
}

impl Command<TaskContext> for WaitForLatch {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;
    const MAY_WAIT: bool = true;

    fn is_ready(&mut self, context: &mut TaskContext) -> bool {
        let Self(LatchWaiter(latch)) = self;
        if latch.is_open() {
            return true;
        }
        context.effects().blocked_on = Some(Blocker::Latch(Arc::clone(latch)));
        false
    }

    fn run(self, _context: &mut TaskContext) {}
}
