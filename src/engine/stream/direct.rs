//! The short way of a task on a driver's stream: past an empty queue, on the thread that brings it.
//!
//! A driver's tasks run on the thread that enqueues them. When nobody consumes the stream and
//! nothing is queued, that thread enters the turnstile first, consumes the next place of the queue
//! without putting anything there, runs the task and retires it as any consumer does. Who enqueues
//! meanwhile finds somebody responsible; this thread looks at the queue when it has left.

use std::sync::Arc;

use crate::engine::stream::commands::caught;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::{Consumer, Stop};
use crate::engine::stream::frames;
use crate::engine::stream::turnstile::Pass;
use crate::queue::Command;

/// What became of a task that was announced to those whom it is about.
pub(crate) enum Announced<T, E> {
    /// It ran; a failure is bound.
    Ran { ticket: u64, has_failed: bool },
    /// It did not run, and a place of the queue is for nothing.
    Refused(E, T),
    /// It has to be enqueued, and nobody was told.
    Queueable(T),
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

    /// Runs a command past the queue; its ticket. Gives it back when it has to be enqueued.
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

    /// As [`StreamCore::push`], past the queue alone, for who asks later how the task ended: a
    /// failure is bound. The task runs unless `announce`, which is told its ticket, refuses.
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
            // Open still: the consumer's right, which ends it, is this thread's.
            self.failures.bind();
        }
        Announced::Ran { ticket, has_failed }
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
