//! Streams that no worker can execute: the system starts no thread, or the backend panics.
//!
//! The thread that made such a stream runnable retires its queue: our own tasks run, users' tasks
//! do not. The call that enqueued a user's task is refused, and only the task's ticket remains.
//! Tasks that other threads enqueued in that moment fail the stream, because their calls have
//! returned; so do waits in front of the task.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::base::error::{DriverError, Error, FailureCause, Result, RuntimeError};
use crate::base::sync::yield_now;
use crate::engine::stream::commands::{drop_quietly, panic_text};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::{Consumer, Stop};
use crate::engine::stream::frames;
use crate::engine::stream::turnstile::Next;
use crate::queue::{Class, Head};

thread_local! {
    /// The task because of which this thread hands a stream to its backend.
    static BROUGHT: Cell<Brought> = const { Cell::new(NOTHING) };
    /// Why it was refused.
    static REASON: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// The key of a stream, and a ticket there.
type Brought = (u64, u64);

/// No task has this ticket.
const NOTHING: Brought = (0, 0);

/// Replaces the task once it was refused.
const IS_REFUSED: Brought = (0, u64::MAX);

/// Why this thread's task was refused. A thread whose thread-locals are already destroyed has lost
/// the reason.
fn take_reason() -> Error {
    REASON.try_with(RefCell::take).ok().flatten().unwrap_or(Error::Runtime(RuntimeError::ShutDown))
}

impl StreamCore {
    /// Hands the stream, which the caller is responsible for, to the backend because of the task
    /// `ticket`; 0 stands for one of our own tasks. Fails when no thread can execute the task,
    /// which was then dropped unrun.
    #[cold]
    #[inline(never)]
    pub(super) fn submit_for(self: &Arc<Self>, ticket: u64) -> Result<()> {
        // Values dropped on the way may enqueue tasks of their own.
        let outer = BROUGHT.replace((self.key(), ticket));
        self.submit();
        if BROUGHT.replace(outer) == IS_REFUSED { Err(take_reason()) } else { Ok(()) }
    }

    /// The backend panicked when it was handed the stream, so no other thread will execute it. If
    /// the backend did accept the stream, its worker finds no task.
    #[cold]
    pub(super) fn retire_unaccepted(
        self: &Arc<Self>,
        call: &'static str,
        panic: Box<dyn Any + Send>,
    ) {
        let (kind, message) = (self.identity.device.kind(), panic_text(panic));
        self.retire_refused(&Error::Driver(DriverError::Refused { kind, call, code: 0, message }));
    }

    /// Retires the queue without a worker.
    pub(super) fn retire_refused(self: &Arc<Self>, reason: &Error) {
        while let Some(mut pass) = self.turnstile.enter_from_run_queue() {
            let batch = |consumer: &mut Consumer| self.drain_refused(consumer, reason);
            frames::inside(self.key(), || self.past_panics(&mut pass, batch));
            if self.leave(pass, Stop::Here) == Next::Nothing {
                return;
            }
            // Tasks that came meanwhile are refused as well.
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
                drop_quietly(|| entry.discard());
                context.is_marker = true; // it may have been one: its waiters are woken
                if BROUGHT.get() == (self.key(), ticket) {
                    BROUGHT.set(IS_REFUSED);
                    let _ = REASON.try_with(|place| place.replace(Some(reason.clone())));
                } else {
                    context.fail(FailureCause::Backend(reason.clone()));
                }
            }
            self.retire(ticket, context);
        }
    }
}
