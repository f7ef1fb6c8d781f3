//! Streams that no worker can execute: the system starts no thread, or the backend panics.
//!
//! The thread that scheduled the stream retires the stream's queue. The runtime's own tasks run,
//! and users' tasks are dropped. That thread's enqueue call fails, and its task only uses up a
//! ticket. A task that another thread enqueued at the same time fails the stream, because its call
//! has already returned. A blocked wait ahead of the task fails the stream too.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::base::error::{Error, FailureCause, Result, RuntimeError};
use crate::base::sync::yield_now;
use crate::engine::stream::commands::{drop_quietly, take_panic_message};
use crate::engine::stream::consumer_lock::Next;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::{Consumer, Stop};
use crate::engine::stream::frames;
use crate::engine::stream::order_watch::{self, Told};
use crate::queue::{Class, Head};

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
