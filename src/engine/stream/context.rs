//! The context in which a command is asked and run, and the effects that it leaves to the stream.

use std::sync::Arc;

use crate::backend::contract::Backend;
use crate::backend::contract::owned::{BareMark, OwnedMark, OwnedStream};
use crate::base::device::Device;
use crate::base::error::{FailureCause, Result, StreamFailure};
use crate::engine::stream::action::Since;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::latch::Latch;
use crate::engine::stream::marks::PlacedMark;
use crate::engine::stream::operation::{Details, OperationKind};
use crate::engine::stream::synchronize::SyncPoint;
use crate::queue::CommandContext;

/// The consumer's view of one stream. Owned by the thread that drains it.
pub(crate) struct TaskContext {
    pub(crate) device: Device,
    pub(crate) stream_id: u64,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) handle: Arc<OwnedStream>,
    /// True when a task that returned is done.
    pub(crate) on_host: bool,
    /// The open error: user tasks are retired without running.
    pub(crate) error: Option<Arc<StreamFailure>>,
    /// The stream's actions when it retires the command: none for most. Stored in place, because
    /// each record on a driver's stream leaves a mark.
    pub(crate) effects: Effects,
    /// True when `effects` is not empty.
    pub(crate) has_effects: bool,
    /// The operation of the task at the head, or of the last one.
    pub(crate) operation: OperationKind,
    /// When the consumer first looked at the head, while the stream is watched.
    pub(crate) since: Since,
    /// Set for a command that threads and streams may wait for.
    pub(crate) is_marker: bool,
}

/// The stream's actions when it retires a command.
#[derive(Default)]
pub(crate) struct Effects {
    /// The task failed.
    pub(crate) failure: Option<Arc<StreamFailure>>,
    /// The task marked its place on a driver stream.
    pub(crate) mark: Option<PlacedMark>,
    /// The task is a synchronise.
    pub(crate) sync: Option<Arc<SyncPoint>>,
    /// The task is not ready: the blocker that it waits for.
    pub(crate) blocked_on: Option<Blocker>,
}

/// The condition that the head of a queue waits for while it is not ready.
pub(crate) enum Blocker {
    /// Until the stream has retired a marker.
    Retired(Arc<StreamCore>, u64),
    /// Until a driver has reached the mark of a stream's task.
    Reached(Arc<StreamCore>, u64),
    /// Until a latch is opened.
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

    /// The running task failed.
    #[cold]
    pub(crate) fn fail(&mut self, cause: FailureCause) {
        let error = StreamFailure::new(self.device, self.stream_id, self.operation.name(), cause);
        self.effects().failure.get_or_insert(error);
    }

    /// The running task waited for a task that failed.
    #[cold]
    pub(crate) fn inherit(&mut self, from: &Arc<StreamFailure>) {
        let error = StreamFailure::inherited(self.device, self.stream_id, from);
        self.effects().failure.get_or_insert(error);
    }

    /// Marks the place that the stream has reached. A refusal becomes the stream's error.
    pub(crate) fn mark(&mut self, timed: bool) -> Option<Arc<OwnedMark>> {
        let marked = self.handle.mark(timed);
        self.told(marked)
    }

    /// The same, for a caller that is the only owner of the mark and releases it.
    #[inline]
    pub(crate) fn place(&mut self, timed: bool) -> Option<BareMark> {
        let placed = self.handle.bare_mark(timed);
        self.told(placed)
    }

    #[inline]
    fn told<T>(&mut self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|refusal| self.fail(FailureCause::Backend(refusal))).ok()
    }

    /// The error that extends over the running task.
    pub(crate) fn failure(&self) -> Option<&Arc<StreamFailure>> {
        self.error.as_ref().or(self.effects.failure.as_ref())
    }
}
