//! The entry of every task into a stream, where it gets its ticket.
//!
//! A task enters in one of three modes.
//!
//! | mode | after a shutdown, in a forked child | otherwise |
//! |---|---|---|
//! | [`Checked`] | refused | the stream is scheduled; above its limit the caller helps or waits |
//! | [`Always`] | enters | the stream is scheduled; the caller is never throttled |
//! | [`Unscheduled`] | enters | the caller, which holds a lock, schedules the stream later |
//!
//! On a driver's idle stream a checked task bypasses the queue (`direct`). Other tasks are queued.
//!
//! # The fast path of a driver's stream
//!
//! A driver's tasks run on the thread that enqueues them. If the stream has no consumer and an
//! empty queue, that thread takes the consumer lock, consumes the queue's next slot without writing
//! to the slot, runs the task and retires it. A producer that enqueues at the same time finds the
//! stream in use, so the first thread reads the queue again after it has left.

use std::fmt;
use std::sync::Arc;

use crate::base::error::Result;
use crate::engine::stream::consumer_lock::{ConsumerGuard, Next};
use crate::engine::stream::core::{Consumer, Stop, StreamCore, TaskContext};
use crate::engine::stream::order_watch::Place;
use crate::engine::stream::task::{OperationKind, catch_panic};
use crate::engine::stream::{frames, order_watch};
use crate::queue::{Class, Command, CommandContext, Pushed};

/// A task to enqueue: a command, or a task whose creator stores the ticket, as an event does.
pub trait Enqueue: Sized {
    /// The command that the queue stores.
    type Command: Command<TaskContext>;
    /// The result of enqueueing. Dropped when no thread can execute the task.
    type Receipt;

    /// Runs the task at once, or returns the task when it has to be queued. The drop of `direct`
    /// then leaves the stream.
    fn run_directly(self, direct: Direct<'_>) -> Attempt<Self>;

    /// Calls `push` once, under the creator's locks, and stores the ticket in the creator's state.
    fn queue(
        self,
        core: &Arc<StreamCore>,
        push: impl FnOnce(Self::Command) -> Pushed,
    ) -> Result<(Pushed, Self::Receipt)>;
}

/// The outcome of an attempt to run a task without queueing it.
pub enum Attempt<T: Enqueue> {
    /// The task ran, or its creator refused it.
    Over(Result<T::Receipt>),
    /// The task must be queued.
    Queue(T),
}

impl<T: Enqueue> fmt::Debug for Attempt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if let Self::Over(_) = self { "Over" } else { "Queue" })
    }
}

impl<T: Command<TaskContext>> Enqueue for T {
    type Command = T;
    type Receipt = Pushed;

    #[inline]
    fn run_directly(self, mut direct: Direct<'_>) -> Attempt<Self> {
        let Some(ticket) = direct.take_ticket() else { return Attempt::Queue(self) };
        direct.run::<T>(|context| self.run(context));
        Attempt::Over(Ok(Pushed { ticket, place_in_segment: 1 }))
    }

    #[inline]
    fn queue(
        self,
        _core: &Arc<StreamCore>,
        push: impl FnOnce(T) -> Pushed,
    ) -> Result<(Pushed, Pushed)> {
        let pushed = push(self);
        Ok((pushed, pushed))
    }
}

/// How a task is enqueued: see the table at the head of this file.
pub trait Mode {
    /// True when a stopped runtime refuses the task.
    const IS_CHECKED: bool;
    /// True when enqueueing schedules the stream.
    const IS_SCHEDULED: bool;
    type Outcome<R>;

    fn outcome<R>(entered: Result<R>) -> Self::Outcome<R>;
}

/// The mode of users' tasks.
#[derive(Debug)]
pub struct Checked;

/// The mode of the runtime's own tasks. These tasks free memory and wake threads, so they run in
/// every state of the stream. Not used in a forked child.
pub(crate) struct Always;

/// The mode of tasks that a caller enqueues while it holds a lock. The caller schedules the stream
/// by [`StreamCore::schedule`] or by enqueueing a later task.
pub(crate) struct Unscheduled;

impl Mode for Checked {
    const IS_CHECKED: bool = true;
    const IS_SCHEDULED: bool = true;
    type Outcome<R> = Result<R>;

    #[inline]
    fn outcome<R>(entered: Result<R>) -> Result<R> {
        entered
    }
}

impl Mode for Always {
    const IS_CHECKED: bool = false;
    const IS_SCHEDULED: bool = true;
    type Outcome<R> = R;

    #[inline]
    fn outcome<R>(entered: Result<R>) -> R {
        entered.expect("a task of the runtime is not refused")
    }
}

impl Mode for Unscheduled {
    const IS_CHECKED: bool = false;
    const IS_SCHEDULED: bool = false;
    type Outcome<R> = R;

    #[inline]
    fn outcome<R>(entered: Result<R>) -> R {
        entered.expect("a task of the runtime is not refused")
    }
}

impl StreamCore {
    /// Enqueues a task, as its mode says. Returns its receipt.
    #[inline(always)]
    pub fn enqueue<T: Enqueue, M: Mode>(
        self: &Arc<Self>,
        task: T,
        _mode: M,
    ) -> M::Outcome<T::Receipt> {
        debug_assert!(
            M::IS_CHECKED || T::Command::CLASS == Class::Internal,
            "a user's task can be refused"
        );
        if M::IS_CHECKED && !(self.on_host && self.lifecycle.is_plain()) {
            // As a pair the task moves to memory here, and the common task stays in registers.
            return M::outcome(Self::enqueue_slowly((self, task)));
        }
        M::outcome(self.place_and_schedule::<T, M>(task))
    }

    /// Enqueues a checked task of a driver's stream, or one that is told to the log or refused.
    #[inline(never)]
    fn enqueue_slowly<T: Enqueue>((core, task): (&Arc<Self>, T)) -> Result<T::Receipt> {
        core.lifecycle.check()?;
        let is_queued = T::Command::MAY_WAIT || core.on_host;
        match if is_queued { None } else { core.enter_directly() } {
            Some(direct) => core.enqueue_inside(direct, task),
            None => core.enqueue_logged(task),
        }
    }

    /// As `enqueue_slowly`, for a caller that has entered the stream.
    #[inline]
    pub(crate) fn enqueue_inside<T: Enqueue>(
        self: &Arc<Self>,
        direct: Direct<'_>,
        task: T,
    ) -> Result<T::Receipt> {
        match task.run_directly(direct) {
            Attempt::Over(outcome) => outcome,
            Attempt::Queue(task) => self.enqueue_logged(task),
        }
    }

    /// Queues a checked task. Tells the log before the caller is throttled.
    fn enqueue_logged<T: Enqueue>(self: &Arc<Self>, task: T) -> Result<T::Receipt> {
        let start = self.enqueue_start(T::Command::OPERATION);
        let place = if order_watch::is_on() { order_watch::begin() } else { None };
        let (pushed, receipt) = task.queue(self, |command| match place {
            None => self.sender.push(command),
            Some(place) => self.push_told(command, place),
        })?;
        self.schedule_logged(pushed, T::Command::OPERATION, start)?;
        Ok(receipt)
    }

    /// What `enqueue_logged` does behind the push, once for all types of tasks.
    #[inline(never)]
    fn schedule_logged(
        self: &Arc<Self>,
        pushed: Pushed,
        operation: OperationKind,
        start: Option<u64>,
    ) -> Result<()> {
        self.schedule_for(pushed)?;
        self.log_enqueued(operation, pushed.ticket, start);
        self.throttle_at(pushed);
        Ok(())
    }

    #[inline(never)]
    fn push_told<T: Command<TaskContext>>(&self, command: T, place: Place) -> Pushed {
        let (what, mut command) = ((self, T::OPERATION, command.details()), Some(command));
        let mut push = || self.sender.push(command.take().expect("pushed once"));
        order_watch::push(what, place, &mut push)
    }

    #[inline(always)]
    fn place_and_schedule<T: Enqueue, M: Mode>(self: &Arc<Self>, task: T) -> Result<T::Receipt> {
        let (pushed, receipt) = task.queue(self, |command| self.sender.push(command))?;
        if M::IS_CHECKED {
            self.schedule_for(pushed)?;
            self.throttle_at(pushed);
        } else if M::IS_SCHEDULED {
            self.schedule();
        }
        Ok(receipt)
    }

    /// Schedules the stream if it is idle. Fails when no thread can execute the task, now or later.
    #[inline]
    fn schedule_for(self: &Arc<Self>, pushed: Pushed) -> Result<()> {
        if self.consumer_lock.schedule_if_idle() == Next::Schedule {
            self.submit_for(pushed.ticket)?;
        }
        Ok(())
    }

    /// Checks the stream's task limit once per segment.
    #[inline]
    fn throttle_at(self: &Arc<Self>, pushed: Pushed) {
        if pushed.place_in_segment == 0 {
            self.throttle(pushed.ticket);
        }
    }

    /// Schedules the stream if it is idle; never throttles the caller.
    pub(crate) fn schedule(self: &Arc<Self>) {
        if self.consumer_lock.schedule_if_idle() == Next::Schedule {
            // The result is ignored: without a worker the runtime's own tasks run on this thread.
            let _ = self.submit_for(0);
        }
    }
}

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
