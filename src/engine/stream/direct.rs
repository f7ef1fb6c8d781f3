//! The fast path of a driver's stream: the producer's thread runs its task without queueing it.
//!
//! A driver's tasks run on the thread that enqueues them. If the stream has no consumer and an
//! empty queue, that thread takes the consumer lock, consumes the queue's next slot without writing
//! to the slot, runs the task and retires it. A producer that enqueues at the same time finds the
//! stream in use, so the first thread reads the queue again after it has left.

use std::fmt;
use std::sync::Arc;

use crate::engine::stream::commands::catch_panic;
use crate::engine::stream::consumer_lock::ConsumerGuard;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::{Consumer, Stop};
use crate::engine::stream::frames;
use crate::engine::stream::operation::OperationKind;
use crate::queue::{Command, CommandContext};

/// The right to consume a driver's stream, released on drop. The drop may run tasks that other
/// threads have enqueued meanwhile, so the caller must hold no lock.
pub struct Direct<'a> {
    core: &'a Arc<StreamCore>,
    /// `Some` until the drop.
    guard: Option<ConsumerGuard<'a, Consumer>>,
}

impl fmt::Debug for Direct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

impl StreamCore {
    /// Enters the stream to run a task on this thread. `None` when the task has to be queued: on
    /// host kinds, while another thread consumes the stream, and while its head is blocked. Also
    /// `None` for a stream that failed, is watched or is cancelled: only the drain handles these.
    #[inline(never)]
    pub(crate) fn enter_directly(self: &Arc<Self>) -> Option<Direct<'_>> {
        if self.on_host || self.lifecycle.is_watched_or_cancelled() {
            return None;
        }
        let guard = self.consumer_lock.enter_to_help()?;
        let has_failed = guard.context.error.is_some();
        let direct = Direct { core: self, guard: Some(guard) };
        (!has_failed).then_some(direct)
    }
}

impl<'a> Direct<'a> {
    #[inline]
    pub(crate) fn core(&self) -> &'a Arc<StreamCore> {
        self.core
    }

    /// Takes the next ticket for a task, which the caller then runs. `None` when another producer
    /// was first: the task has to be queued.
    #[inline]
    pub(crate) fn take_ticket(&mut self) -> Option<u64> {
        self.guard.as_mut()?.receiver.take_ticket()
    }

    /// Runs the task whose ticket was taken: a command of type `T`, or code that acts as this
    /// command. True when the stream has failed.
    #[inline]
    pub(crate) fn run<T: Command<TaskContext>>(
        &mut self,
        task: impl FnOnce(&mut TaskContext),
    ) -> bool {
        let mut task = Some(task);
        self.run_as(T::OPERATION, &mut |context| {
            if let Some(task) = task.take() {
                task(context);
            }
        })
    }

    /// As `run`, once for all types: a driver's call takes longer than one through a pointer.
    fn run_as(&mut self, operation: OperationKind, task: &mut dyn FnMut(&mut TaskContext)) -> bool {
        let Self { core, guard } = self;
        let guard = guard.as_mut().expect("there until the drop");
        let run = || {
            let Consumer { receiver, context, .. } = &mut **guard;
            context.begin(operation);
            frames::inside(core.key(), || task(context));
            core.handle.flush();
            core.retire(receiver.consumed(), context);
        };
        if let Err(panic) = catch_panic(run) {
            core.retire_panicked(guard, panic);
        }
        guard.context.error.is_some()
    }
}

impl Drop for Direct<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            self.core.leave_and_submit(guard, Stop::Finished);
        }
    }
}
