//! Receipts: a call raises a stream's error to its caller, and the error ends.
//!
//! A synchronise of one stream ends the error at its task (`synchronize`). A handle of a task (a
//! transfer, a callable, the host's access to a buffer) and other synchronises receive the error
//! later, so the receipt enqueues a task: tasks with earlier tickets stay skipped, and later ones
//! run. Cancellations end only at a synchronise, and the error of a lost device never ends.
//!
//! A pooled stream is issued to several holders, one after the other. The errors of one holder do
//! not fail the tasks of the next: the pool enqueues a task that sets the error aside, for a
//! synchronise through an older handle.

use std::sync::Arc;

use crate::base::error::{FailureCause, Result, StreamFailure};
use crate::engine::stream::core::{StreamCore, TaskContext};
use crate::engine::stream::enqueue::Unscheduled;
use crate::engine::stream::failures::FailureEnd;
use crate::engine::stream::synchronize::raise;
use crate::engine::stream::task::OperationKind;
use crate::queue::{Class, Command};

/// The task at which a received error ends.
struct EndFailure {
    error: Arc<StreamFailure>,
    synchronized_to: u64,
}

impl Command<TaskContext> for EndFailure {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
        let Self { error, synchronized_to } = self;
        context.effects().ended = Some(FailureEnd::Received { error, synchronized_to });
    }
}

/// The task that transfers a pooled stream: later tasks belong to the next holder.
struct Reissue;

impl Command<TaskContext> for Reissue {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
        context.effects().ended = Some(FailureEnd::SetAside);
    }
}

impl StreamCore {
    /// Raises the error of a task to a caller that holds the task's handle, and ends the error
    /// unless it is a cancellation or a lost device.
    #[inline]
    pub fn receive(self: &Arc<Self>, error: Option<Arc<StreamFailure>>) -> Result<()> {
        error.map_or(Ok(()), |error| self.receive_error(error))
    }

    #[cold]
    #[inline(never)]
    fn receive_error(self: &Arc<Self>, error: Arc<StreamFailure>) -> Result<()> {
        self.end_received(&error);
        raise(Some(error))
    }

    /// Marks an error of this stream as raised, and ends it for tasks that are enqueued later. A
    /// second call for the same error has no effect. Does not wait for tasks.
    #[cold]
    pub fn end_received(self: &Arc<Self>, error: &Arc<StreamFailure>) {
        error.set_raised();
        // After a shutdown no later task is enqueued.
        if !error.is_ended_by_receipt() || self.lifecycle.check().is_err() {
            return;
        }
        self.enqueue_end(error, 0);
    }

    /// Ends an error that a synchronise with this ticket raises, for tasks that are enqueued later.
    pub(super) fn end_synchronized(self: &Arc<Self>, error: &Arc<StreamFailure>, ticket: u64) {
        error.set_raised();
        if !error.is_permanent() && self.lifecycle.check().is_ok() {
            self.enqueue_end(error, ticket);
        }
    }

    fn enqueue_end(self: &Arc<Self>, error: &Arc<StreamFailure>, synchronized_to: u64) {
        let task = EndFailure { error: Arc::clone(error), synchronized_to };
        if let Some(ticket) =
            self.failures.end_once(error, || self.enqueue(task, Unscheduled).ticket)
        {
            self.note_marker(ticket);
            self.schedule();
        }
    }

    /// Prepares a pooled stream for its next holder. Returns the last ticket of the earlier
    /// holders, whose errors the next one does not see.
    pub(crate) fn reissue(self: &Arc<Self>) -> u64 {
        let pushed = self.pushed();
        if self.lifecycle.check().is_err() {
            return pushed; // no later task is enqueued
        }
        // Read before the errors: a task that is retired has set its error.
        let is_idle = self.progress.retired() >= pushed;
        if !self.failures.note_reissue(pushed) && is_idle {
            return pushed;
        }
        // The stream has an error, or tasks that may still fail.
        self.push_as_marker(Reissue)
    }

    /// Applies the effect of an [`EndFailure`] or a [`Reissue`] with this ticket.
    #[cold]
    pub(super) fn end_without_synchronize(
        &self,
        ended: &FailureEnd,
        ticket: u64,
        context: &mut TaskContext,
    ) {
        let (is_over, synchronized_to) = match ended {
            FailureEnd::Received { error, synchronized_to } => {
                (self.failures.end_received(error, ticket), *synchronized_to)
            }
            FailureEnd::SetAside => {
                self.failures.reissue(ticket);
                (context.error.as_ref().is_some_and(|error| !error.is_permanent()), ticket)
            }
        };
        if !is_over {
            return;
        }
        context.error = None;
        // A synchronise ends a cancel of the tasks that it has waited for.
        let cancelled = context.cancelled.take();
        let Some((_, operation)) = cancelled.filter(|(last, _)| *last > synchronized_to) else {
            return;
        };
        // Tasks behind the receipt are cancelled as well, until a synchronise.
        context.operation = operation;
        context.fail(FailureCause::StreamCancelled);
        self.apply_effects(ticket, context);
    }
}
