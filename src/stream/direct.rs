//! The short way of a task on a driver's stream: past an empty queue, on the thread that brings it.
//!
//! A driver's tasks run on the thread that enqueues them. When nobody consumes the stream and
//! nothing is queued, that thread enters the turnstile first, consumes the next place of the queue
//! without putting anything there, runs the task and retires it as any consumer does. Who enqueues
//! meanwhile finds somebody responsible; this thread looks at the queue when it has left.

use std::sync::Arc;

use crate::queue::Command;
use crate::stream::context::TaskContext;
use crate::stream::core::StreamCore;
use crate::stream::drain::{Consumer, Stop};
use crate::stream::frames::Frame;
use crate::stream::turnstile::Pass;

/// A task that went past the queue.
pub(super) struct Ran<'a> {
    pub(super) ticket: u64,
    /// The stream has an error since, which no task can end before this is dropped.
    pub(super) has_failed: bool,
    _direct: Direct<'a>,
}

/// The right to consume a driver's stream, given back by the drop. That may run what others have
/// enqueued meanwhile, so no lock is held then.
pub(crate) struct Direct<'a> {
    core: &'a Arc<StreamCore>,
    /// There until the drop.
    pass: Option<Pass<'a, Consumer>>,
}

impl StreamCore {
    /// Enters the stream to run a task on this thread. `None` when it has to be enqueued: on kinds
    /// that run on the host, while somebody else consumes the stream or its head waits, and for
    /// what the drain alone knows: a stream that failed, is watched or is cancelled.
    #[inline]
    pub(crate) fn enter_directly(self: &Arc<Self>) -> Option<Direct<'_>> {
        if self.on_host || self.lifecycle.is_unusual() {
            return None;
        }
        let pass = self.turnstile.enter_to_help()?;
        let has_failed = pass.context.error.is_some();
        let direct = Direct { core: self, pass: Some(pass) };
        (!has_failed).then_some(direct)
    }

    /// Runs a command past the queue; gives it back when it has to be enqueued.
    #[inline(never)]
    pub(super) fn push_directly<T: Command<TaskContext>>(
        self: &Arc<Self>,
        command: T,
    ) -> Result<Ran<'_>, T> {
        if !T::MAY_WAIT
            && let Some(mut direct) = self.enter_directly()
            && let Some(ticket) = direct.take_place()
        {
            let has_failed = direct.run(|context| command.run(context));
            return Ok(Ran { ticket, has_failed, _direct: direct });
        }
        Err(command)
    }
}

impl Direct<'_> {
    /// Takes the next place for a task, which the caller then runs; its ticket. `None` when others
    /// were first, and the task has to be enqueued.
    #[inline]
    pub(crate) fn take_place(&mut self) -> Option<u64> {
        self.pass.as_mut()?.receiver.take_place()
    }

    /// Runs the task whose place was taken; true when the stream has failed with it.
    #[inline]
    pub(crate) fn run(&mut self, task: impl FnOnce(&mut TaskContext)) -> bool {
        let Self { core, pass } = self;
        let pass = pass.as_mut().expect("there until the drop");
        let Consumer { receiver, context, .. } = &mut **pass;
        let frame = Frame::enter(core.key());
        task(context);
        drop(frame);
        core.backend.flush(core.handle);
        core.retire(receiver.consumed(), context);
        context.error.is_some()
    }
}

impl Drop for Direct<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.core.leave_and_submit(pass, Stop::Here);
        }
    }
}
