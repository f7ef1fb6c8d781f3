//! Streams that no thread executes: the system starts none, or the backend panics at one.
//!
//! The thread that made such a stream runnable retires what is queued: our own tasks run, users' do
//! not. The call that brought one of these is refused, and its task leaves nothing but its number.
//! What other threads brought in that moment fails the stream, as their calls have returned, and so
//! do waits that stand in front of the task.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::base::error::{Error, FailureCause, Result};
use crate::base::sync::yield_now;
use crate::engine::stream::commands::{drop_quietly, panic_text};
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::drain::{Consumer, Stop};
use crate::engine::stream::frames;
use crate::engine::stream::turnstile::Next;
use crate::queue::{Class, Front};

thread_local! {
    /// The task for which this thread hands a stream to its backend.
    static BROUGHT: Cell<Brought> = const { Cell::new(NOTHING) };
    /// Why it was refused.
    static REASON: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// The key of a stream, and a ticket there.
type Brought = (u64, u64);

/// No task has this ticket.
const NOTHING: Brought = (0, 0);

/// In the place of the task that was refused.
const IS_REFUSED: Brought = (0, u64::MAX);

/// Why this thread's task was refused. A thread whose variables are ending does not know any more.
fn take_reason() -> Error {
    REASON.try_with(RefCell::take).ok().flatten().unwrap_or(Error::ShutDown)
}

impl StreamCore {
    /// Hands the stream, which the caller is responsible for, to the backend because of the task
    /// `ticket`; 0 is one of our own. Fails when no thread can execute that: it was dropped unrun.
    #[cold]
    #[inline(never)]
    pub(super) fn submit_for(self: &Arc<Self>, ticket: u64) -> Result<()> {
        // What is dropped on the way may bring tasks of its own.
        let outer = BROUGHT.replace((self.key(), ticket));
        self.submit();
        if BROUGHT.replace(outer) == IS_REFUSED { Err(take_reason()) } else { Ok(()) }
    }

    /// The backend panicked when it was handed the stream, and nobody else will execute it. If it
    /// did take it, whoever comes finds nothing to do.
    #[cold]
    pub(super) fn retire_unaccepted(
        self: &Arc<Self>,
        call: &'static str,
        panic: Box<dyn Any + Send>,
    ) {
        let (kind, message) = (self.identity.device.kind(), panic_text(panic));
        self.retire_refused(&Error::Driver { kind, call, code: 0, message });
    }

    /// Retires what is queued without a worker.
    pub(super) fn retire_refused(self: &Arc<Self>, reason: &Error) {
        while let Some(mut pass) = self.turnstile.enter_from_run_queue() {
            let batch = |consumer: &mut Consumer| self.drain_refused(consumer, reason);
            frames::inside(self.key(), || self.past_panics(&mut pass, batch));
            if self.leave(pass, Stop::Here) == Next::Nothing {
                return;
            }
            // What came meanwhile is refused as well.
        }
    }

    fn drain_refused(&self, consumer: &mut Consumer, reason: &Error) {
        loop {
            let Consumer { receiver, context, .. } = &mut *consumer;
            let ticket = receiver.consumed() + 1;
            let mut entry = match receiver.front() {
                Front::Ready(entry) => entry,
                Front::Empty => return,
                Front::Unpublished => {
                    yield_now();
                    continue;
                }
            };
            if entry.class() == Class::Own && entry.is_ready(context) {
                entry.run(context);
            } else {
                context.effects().blocked_on = None;
                drop_quietly(|| entry.discard());
                context.is_marker = true; // it may have been one: who waits for it is woken
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
