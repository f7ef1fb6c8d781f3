//! The runtime's own use of a stream: internal commands, marks on demand, and held values.
//!
//! The enqueue of an internal command is never refused. A value is held until the device is done.
//!
//! # Streams without a worker
//!
//! The thread that scheduled the stream retires the stream's queue. The runtime's own tasks run,
//! and users' tasks are dropped. That thread's enqueue call fails, and its task only uses up a
//! ticket. A task that another thread enqueued at the same time fails the stream, because its call
//! has already returned. A blocked wait ahead of the task fails the stream too.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::backend::contract::owned::OwnedMark;
use crate::base::error::{DriverError, Error, FailureCause, Result, RuntimeError};
use crate::base::fork;
use crate::base::sync::yield_now;
use crate::base::thread::while_blocked;
use crate::engine::stream::consumer_lock::Next;
use crate::engine::stream::core::{Consumer, Stop, StreamCore, TaskContext};
use crate::engine::stream::enqueue::Always;
use crate::engine::stream::order_watch::Told;
use crate::engine::stream::task::{OperationKind, catch_panic, drop_quietly, take_panic_message};
use crate::engine::stream::{frames, order_watch};
use crate::queue::{Class, Command, Head};

/// A task without effect whose retirement wakes waiters.
pub(crate) struct Marker;

impl Command<TaskContext> for Marker {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
    }
}

/// A task that takes a ticket and has no effect.
pub(crate) struct EmptyTask;

impl Command<TaskContext> for EmptyTask {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, _context: &mut TaskContext) {}
}

pub(crate) struct DropTask<T>(pub(crate) T);

impl<T: Send + 'static> Command<TaskContext> for DropTask<T> {
    const CLASS: Class = Class::Internal;
    const OPERATION: OperationKind = OperationKind::Internal;

    fn run(self, _context: &mut TaskContext) {}
}

impl StreamCore {
    /// Pushes a marker behind all tasks, to wake a thread that waits for a task that is no marker.
    pub(super) fn push_marker(self: &Arc<Self>) {
        self.push_as_marker(Marker);
    }

    /// Pushes a command that is done at once, and that does not count as work. Returns its ticket.
    pub(super) fn push_as_marker(self: &Arc<Self>, command: impl Command<TaskContext>) -> u64 {
        let ticket = self.enqueue(command, Always).ticket;
        self.note_marker(ticket);
        ticket
    }

    /// Notes that the task `ticket` does not count as work.
    pub(super) fn note_marker(&self, ticket: u64) {
        self.markers.lock().add(ticket);
    }

    /// True when only markers are left in the queue. Markers do not count as work, so a thread that
    /// waited for the last task finds the stream done. In a forked child markers count as work.
    pub fn is_drained(&self) -> bool {
        // Reads the consumer's counter first, so that a task enqueued meanwhile counts as pending.
        let retired = self.progress.retired();
        let pushed = self.pushed();
        pushed <= retired
            || !fork::is_child() && self.markers.lock().has_only_markers(retired, pushed)
    }

    /// Places a mark on a driver stream behind all work submitted so far.
    pub(super) fn mark_now(&self) -> Result<Arc<OwnedMark>> {
        // Reads the counter first: the tasks that it counts were submitted before the mark.
        let submitted = self.progress.retired();
        let mark = self.handle.mark(false)?;
        self.marks.insert(submitted, Arc::clone(&mark));
        Ok(mark)
    }

    /// True when the task `ticket` is known to be done. Polls the device, and places a mark when
    /// none is pending at or behind the task. Refusals are ignored: the counter gives the answer.
    pub(crate) fn poll_ticket(&self, ticket: u64) -> bool {
        if self.progress.done() >= ticket {
            return true;
        }
        if self.on_host {
            return false;
        }
        if self.progress.retired() >= ticket && self.marks.at(ticket).is_none() {
            let _ = self.mark_now();
        }
        let _ = self.marks.poll();
        self.progress.done() >= ticket
    }

    /// Keeps `thing` until the device has done the task `ticket` of this driver stream. After a
    /// shutdown no thread polls any more, so this call waits for the device.
    pub(crate) fn hold(&self, ticket: u64, thing: Box<dyn Send>) {
        self.marks.hold(ticket, thing);
        if self.lifecycle.is_cancelled() {
            self.finish_held(self.progress.retired());
        }
    }

    /// Drops the values held for tasks that the device has done. True when no value is left. Places
    /// a mark only when none is pending: later values wait for the next mark. Ignores refusals.
    pub(crate) fn poll_held(&self) -> bool {
        if let Some(ticket) = self.marks.held_until() {
            let _ = self.marks.poll();
            if !self.marks.has_pending() {
                self.poll_ticket(ticket.min(self.progress.retired()));
            }
            // A driver's callback may have moved the counter without dropping held values.
            self.marks.drop_passed();
        }
        self.marks.held_until().is_none()
    }

    /// Waits for the device, if a value is held, and drops the values held for tasks up to `until`.
    /// If the wait fails, leaks all held values, because the device may still use them.
    pub(super) fn finish_held(&self, until: u64) {
        if self.marks.held_until().is_none() {
            return;
        }
        match catch_panic(|| self.wait_idle()) {
            Ok(Ok(())) => self.marks.reached(until),
            _ => self.marks.abandon_held(),
        }
    }

    /// Blocks until the device has finished all submitted tasks or is lost. If the driver refuses
    /// to synchronise the stream, this thread waits for a mark.
    pub(super) fn wait_idle(&self) -> Result<()> {
        let by_mark = |_| self.handle.mark(false)?.wait();
        let waited = while_blocked(|| self.handle.synchronize().or_else(by_mark));
        waited.or_else(|refusal| match refusal {
            Error::Driver(DriverError::DeviceLost { .. }) => Ok(()),
            refusal => Err(refusal),
        })
    }
}

thread_local! {
    /// The task whose enqueue call is handing a stream to its backend on this thread.
    static SUBMITTING: Cell<TaskKey> = const { Cell::new(NO_TASK) };
    /// The reason for the refusal of the task in `SUBMITTING`.
    static REASON: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// A stream's key, and a ticket of that stream.
type TaskKey = (u64, u64);

/// No task has the ticket 0: tickets start at 1.
const NO_TASK: TaskKey = (0, 0);

/// Stored in `SUBMITTING` in place of a task's key after the task's refusal.
const REFUSED: TaskKey = (0, u64::MAX);

/// Takes the reason of this thread's refusal: `ShutDown` after the thread-locals are destroyed.
fn take_refusal() -> Error {
    REASON.try_with(RefCell::take).ok().flatten().unwrap_or(Error::Runtime(RuntimeError::ShutDown))
}

impl StreamCore {
    /// As `submit`, for the task `ticket`; 0 stands for a task of the runtime. Fails when no thread
    /// can execute the task, which is then dropped without running.
    #[cold]
    #[inline(never)]
    pub(super) fn submit_for(self: &Arc<Self>, ticket: u64) -> Result<()> {
        // `submit` may drop a user's value that enqueues a task, so the outer key is restored.
        let outer = SUBMITTING.replace((self.key(), ticket));
        self.submit();
        if SUBMITTING.replace(outer) == REFUSED { Err(take_refusal()) } else { Ok(()) }
    }

    /// Retires the queue after the backend panicked in `call`, because perhaps no thread will
    /// execute the stream. If the backend has accepted the stream, the first consumer to enter
    /// takes the tasks: this thread or the backend's.
    #[cold]
    pub(super) fn retire_unaccepted(
        self: &Arc<Self>,
        call: &'static str,
        panic: Box<dyn Any + Send>,
    ) {
        let (kind, message) = (self.identity.device.kind(), take_panic_message(panic));
        self.retire_refused(&Error::refused(kind, call, 0, message));
    }

    /// Retires the queue on this thread: runs the runtime's tasks, drops users' tasks.
    pub(super) fn retire_refused(self: &Arc<Self>, reason: &Error) {
        while let Some(mut guard) = self.consumer_lock.enter_from_run_queue() {
            let batch = |consumer: &mut Consumer| self.drain_refused(consumer, reason);
            frames::inside(self.key(), || self.run_despite_panics(&mut guard, batch));
            if self.leave(guard, Stop::Finished) == Next::Nothing {
                return;
            }
            // The loop also refuses tasks enqueued since the drain.
        }
    }

    fn drain_refused(&self, consumer: &mut Consumer, reason: &Error) {
        loop {
            let Consumer { receiver, context, .. } = &mut *consumer;
            let ticket = receiver.consumed() + 1;
            let mut entry = match receiver.head() {
                Head::Ready(entry) => entry,
                Head::Empty => return,
                Head::Unpublished => {
                    yield_now();
                    continue;
                }
            };
            if entry.class() == Class::Internal && entry.is_ready(context) {
                entry.run(context);
            } else {
                context.operation = entry.operation();
                context.effects().blocked_on = None;
                if order_watch::is_on() {
                    order_watch::tell(Told::Skip(self, ticket));
                }
                drop_quietly(|| entry.discard());
                context.is_marker = true; // the task may have been a marker: wakes its waiters
                if SUBMITTING.get() == (self.key(), ticket) {
                    SUBMITTING.set(REFUSED);
                    let _ = REASON.try_with(|place| place.replace(Some(reason.clone())));
                } else {
                    context.fail(FailureCause::Backend(reason.clone()));
                }
            }
            self.retire(ticket, context);
        }
    }
}
