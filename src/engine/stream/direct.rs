//! The fast path of a task on a driver's stream: past an empty queue, on the producer's thread.
//!
//! A driver's tasks run on the thread that enqueues them. When the stream has no consumer and an
//! empty queue, that thread enters the turnstile first, consumes the next place of the queue
//! without writing to it, runs the task and retires it as any consumer does. Another producer that
//! enqueues meanwhile finds the stream in use; this thread looks at the queue again after it has
//! left.

use std::sync::Arc;

use crate::engine::stream::commands::caught;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::{Consumer, Stop};
use crate::engine::stream::frames;
use crate::engine::stream::turnstile::Pass;
use crate::queue::Command;

/// The outcome of a task that was announced before it ran.
pub(crate) enum Announced<T, E> {
    /// It ran; a failure is bound.
    Ran { ticket: u64, has_failed: bool },
    /// It did not run; its place in the queue stays unused.
    Refused(E, T),
    /// It has to be enqueued, and was not announced.
    Queueable(T),
}

/// The right to consume a driver's stream, released on drop. The drop may run tasks that other
/// threads have enqueued meanwhile, so the caller holds no lock then.
pub(crate) struct Direct<'a> {
    core: &'a Arc<StreamCore>,
    /// `Some` until the drop.
    pass: Option<Pass<'a, Consumer>>,
}

impl StreamCore {
    /// Enters the stream to run a task on this thread. `None` when it has to be enqueued: on kinds
    /// that run on the host, while another thread consumes the stream or its head waits, and for a
    /// stream that failed, is watched or is cancelled, which only the drain handles.
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

    /// Runs a command past the queue and returns its ticket; or returns the command when it has to
    /// be enqueued.
    #[inline(never)]
    pub(super) fn push_directly<T: Command<TaskContext>>(
        self: &Arc<Self>,
        command: T,
    ) -> Result<u64, T> {
        let Some((mut direct, ticket)) = self.take_place_for::<T>() else { return Err(command) };
        direct.run(|context| command.run(context));
        Ok(ticket)
    }

    /// A place for a command past the queue, with its ticket. `None` when it has to be enqueued.
    #[inline]
    fn take_place_for<T: Command<TaskContext>>(self: &Arc<Self>) -> Option<(Direct<'_>, u64)> {
        let mut direct = if T::MAY_WAIT { None } else { self.enter_directly() }?;
        let ticket = direct.take_place()?;
        Some((direct, ticket))
    }

    /// As [`StreamCore::push`], but only past the queue, for callers that ask later how the task
    /// ended: a failure is bound. `announce` gets the ticket; the task runs unless it refuses.
    #[inline]
    pub(crate) fn push_watched_directly<T: Command<TaskContext>, E>(
        self: &Arc<Self>,
        command: T,
        announce: impl FnOnce(u64) -> Result<(), E>,
    ) -> Announced<T, E> {
        let Some((mut direct, ticket)) = self.take_place_for::<T>() else {
            return Announced::Queueable(command);
        };
        if let Err(refusal) = announce(ticket) {
            direct.run(|_| ());
            return Announced::Refused(refusal, command);
        }
        let has_failed = direct.run(|context| command.run(context));
        if has_failed {
            // The error is still open: only a consumer ends it, and this thread is the consumer.
            self.failures.bind();
        }
        Announced::Ran { ticket, has_failed }
    }
}

impl Direct<'_> {
    /// Takes the next place for a task, which the caller then runs, and returns its ticket. `None`
    /// when another producer was first, and the task has to be enqueued.
    #[inline]
    pub(crate) fn take_place(&mut self) -> Option<u64> {
        self.pass.as_mut()?.receiver.take_place()
    }

    /// Runs the task whose place was taken; true when the stream has failed with it.
    #[inline]
    pub(crate) fn run(&mut self, task: impl FnOnce(&mut TaskContext)) -> bool {
        let Self { core, pass } = self;
        let pass = pass.as_mut().expect("there until the drop");
        let run = || {
            let Consumer { receiver, context, .. } = &mut **pass;
            frames::inside(core.key(), || task(context));
            core.handle.flush();
            core.retire(receiver.consumed(), context);
        };
        if let Err(panic) = caught(run) {
            core.retire_panicked(pass, panic);
        }
        pass.context.error.is_some()
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
