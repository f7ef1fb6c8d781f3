//! The context that a command is run with, and the effects that the command leaves in it.

use std::fmt;
use std::sync::Arc;

use crate::backend::contract::owned::{BareMark, OwnedMark, OwnedStream};
use crate::backend::contract::{Backend, Work};
use crate::base::device::Device;
use crate::base::error::{FailureCause, Result, StreamFailure};
use crate::engine::stream::commands::{Details, OperationKind};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::latch::Latch;
use crate::engine::stream::marks::PlacedMark;
use crate::engine::stream::receipt::FailureEnd;
use crate::engine::stream::synchronize::SyncPoint;
use crate::engine::stream::task_report::FirstRead;
use crate::queue::CommandContext;

/// The state of one stream that its commands read and change. Only the consumer has access.
pub struct TaskContext {
    pub(crate) device: Device,
    pub(crate) stream_id: u64,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) handle: Arc<OwnedStream>,
    pub(crate) on_host: bool,
    /// The stream's uncleared error. While an error is set, the consumer skips users' tasks.
    pub(crate) error: Option<Arc<StreamFailure>>,
    /// The effects that the stream applies when it retires the command; most commands have none.
    /// Stored inline, so that a record on a driver's stream allocates no memory for its mark.
    pub(crate) effects: Effects,
    pub(crate) has_effects: bool,
    /// The operation of the task that began last.
    pub(crate) operation: OperationKind,
    /// The consumer's first read of the head, while the tasks are watched.
    pub(crate) since: FirstRead,
    /// The ticket of a user's task that has begun without being over, as deferred tasks do.
    pub(crate) begun: u64,
    /// True when threads and streams may wait for the command: its retirement wakes them.
    pub is_marker: bool,
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}

/// The effects of a command, which the stream applies when it retires the command.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) failure: Option<Arc<StreamFailure>>,
    /// The mark that the task placed on its driver stream.
    pub(crate) mark: Option<PlacedMark>,
    pub(crate) sync: Option<Arc<SyncPoint>>,
    /// The end of the stream's error at a receipt or a reissue.
    pub(crate) ended: Option<FailureEnd>,
    /// The blocker of a task that is not ready.
    pub(crate) blocked_on: Option<Blocker>,
}

/// The condition that the head of a queue waits for before it is ready.
pub(crate) enum Blocker {
    /// The stream has to retire the marker with this ticket.
    Retired(Arc<StreamCore>, u64),
    /// The driver has to reach a mark of this stream at or behind this ticket.
    Reached(Arc<StreamCore>, u64),
    /// Another thread has to open the latch.
    Latch(Arc<Latch<StreamCore>>),
}

impl CommandContext for TaskContext {
    type Operation = OperationKind;
    type Details = Details;

    #[inline]
    fn begin(&mut self, operation: OperationKind) {
        self.operation = operation;
    }
}

impl TaskContext {
    pub(crate) fn effects(&mut self) -> &mut Effects {
        self.has_effects = true;
        &mut self.effects
    }

    /// Queues work for another thread of the stream's device, to share the running task. On kinds
    /// that run tasks on the host such work may start late or never.
    pub fn resume(&self, work: Arc<dyn Work>) {
        self.handle.resume(work);
    }

    /// Fails the task, and with it the stream.
    #[cold]
    pub fn fail(&mut self, cause: FailureCause) {
        let error = StreamFailure::new(self.device, self.stream_id, self.operation.name(), cause);
        self.fail_with(error);
    }

    /// As [`TaskContext::fail`], with an error that the task's handle shares.
    #[cold]
    pub(crate) fn fail_with(&mut self, error: Arc<StreamFailure>) {
        self.effects().failure.get_or_insert(error);
    }

    /// Fails the running task with the failure of a task that it waited for.
    #[cold]
    pub(crate) fn inherit(&mut self, from: &Arc<StreamFailure>) {
        let error = StreamFailure::inherited(self.device, self.stream_id, from);
        self.effects().failure.get_or_insert(error);
    }

    /// Places a mark behind all submitted work. A refusal becomes the stream's error.
    pub(crate) fn mark(&mut self, timed: bool) -> Option<Arc<OwnedMark>> {
        let marked = self.handle.mark(timed);
        self.fail_if_refused(marked)
    }

    /// As `mark`, for a caller that is the mark's only owner and releases it.
    #[inline]
    pub(crate) fn bare_mark(&mut self, timed: bool) -> Option<BareMark> {
        let placed = self.handle.bare_mark(timed);
        self.fail_if_refused(placed)
    }

    #[inline]
    fn fail_if_refused<T>(&mut self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|refusal| self.fail(FailureCause::Backend(refusal))).ok()
    }

    /// The error that covers the running task: the stream's uncleared error, or the task's own.
    pub(crate) fn failure(&self) -> Option<&Arc<StreamFailure>> {
        self.error.as_ref().or(self.effects.failure.as_ref())
    }
}
