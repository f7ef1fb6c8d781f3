//! What the runtime itself needs of a stream: commands that are never refused, marks on demand.
//!
//! Memory is freed whatever happened to the stream: it failed, its runtime was shut down, or more
//! is queued in it than its limit.

use std::sync::Arc;

use crate::backend::contract::owned::OwnedMark;
use crate::base::blocking::while_blocked;
use crate::base::error::{Error, Result};
use crate::engine::stream::commands::caught;
use crate::engine::stream::context::TaskContext;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::turnstile::Next;
use crate::queue::{Class, Command};

/// A place that threads wait for.
pub(crate) struct Marker;

impl Command<TaskContext> for Marker {
    const CLASS: Class = Class::Own;

    fn run(self, context: &mut TaskContext) {
        context.is_marker = true;
    }
}

/// Markers that stand one behind the other in a queue, with nothing between them.
#[derive(Debug)]
pub(super) struct MarkerRun {
    first: u64,
    last: u64,
}

impl MarkerRun {
    /// Without any.
    pub(super) const EMPTY: Self = Self { first: 1, last: 0 };

    /// Notes one more. Threads may come in another order than their markers: one that stands apart
    /// and is older is left out, as if it were somebody's work.
    fn add(&mut self, ticket: u64) {
        if ticket == self.last + 1 {
            self.last = ticket;
        } else if ticket + 1 == self.first {
            self.first = ticket;
        } else if ticket > self.last {
            *self = Self { first: ticket, last: ticket };
        }
    }

    /// True when everything behind `retired`, up to `pushed`, is one of these.
    fn is_all_behind(&self, retired: u64, pushed: u64) -> bool {
        self.last == pushed && self.first <= retired + 1
    }
}

/// A place that has a number, and nothing else.
pub(crate) struct Place;

impl Command<TaskContext> for Place {
    const CLASS: Class = Class::Own;

    fn run(self, _context: &mut TaskContext) {}
}

/// Something that is dropped when the stream comes to it.
pub(crate) struct Keep<T>(pub(crate) T);

impl<T: Send + 'static> Command<TaskContext> for Keep<T> {
    const CLASS: Class = Class::Own;

    fn run(self, _context: &mut TaskContext) {}
}

impl StreamCore {
    /// Enqueues an own command, also after a stop, and never waits for the stream's limit; its
    /// ticket. Not called in a forked child.
    pub(crate) fn push_always<T: Command<TaskContext>>(self: &Arc<Self>, command: T) -> u64 {
        debug_assert_eq!(T::CLASS, Class::Own, "a user's task can be refused");
        let pushed = self.push_unscheduled(command);
        self.schedule();
        pushed.ticket
    }

    /// Places a marker behind all tasks, for a thread that waits for one which is none.
    pub(super) fn push_marker(self: &Arc<Self>) {
        let ticket = self.push_always(Marker);
        self.markers.lock().add(ticket);
    }

    /// True when all tasks are out of the queue but markers: those are nobody's work, and whoever
    /// waited for the last task finds the stream done.
    pub(crate) fn is_drained(&self) -> bool {
        // The stream's counter first: what is enqueued meanwhile does not make it look done.
        let retired = self.progress.retired();
        let pushed = self.pushed();
        pushed <= retired || self.markers.lock().is_all_behind(retired, pushed)
    }

    /// Has the stream executed, unless somebody is responsible for it; nobody is held back.
    pub(crate) fn schedule(self: &Arc<Self>) {
        if self.turnstile.schedule_if_idle() == Next::Schedule {
            // Our own tasks run here where there is no worker.
            let _ = self.submit_for(0);
        }
    }

    /// Marks the place on a driver stream behind everything submitted so far.
    pub(super) fn mark_now(&self) -> Result<Arc<OwnedMark>> {
        // The counter first: what it counts was submitted before the mark.
        let submitted = self.progress.retired();
        let mark = self.handle.mark(false)?;
        self.marks.insert(submitted, Arc::clone(&mark));
        Ok(mark)
    }

    /// True when the task `ticket` is known to be done. Asks the device, and places a mark when
    /// none would ever tell; a refusal is no answer yet.
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

    /// Keeps something until the device has done the task `ticket` of this driver stream. After a
    /// shutdown nobody asks any more, so the device is waited for.
    pub(crate) fn hold(&self, ticket: u64, thing: Box<dyn Send>) {
        self.marks.hold(ticket, thing);
        if self.lifecycle.is_cancelled() {
            self.finish_held(self.progress.retired());
        }
    }

    /// Drops what the device is done with; true when nothing is held any more. A mark that is on
    /// its way is enough, whoever placed it: what stands behind it gets the next one.
    pub(crate) fn poll_held(&self) -> bool {
        if let Some(ticket) = self.marks.held_until() {
            let _ = self.marks.poll();
            if self.marks.is_empty() {
                self.poll_ticket(ticket.min(self.progress.retired()));
            }
            // A driver's callback only moves the counter.
            self.marks.drop_passed();
        }
        self.marks.held_until().is_none()
    }

    /// Waits for the device, if something is held, and drops what is held for tasks up to `until`.
    /// Where the device cannot be waited for, that stays with the driver: it may still be used.
    pub(super) fn finish_held(&self, until: u64) {
        if self.marks.held_until().is_none() {
            return;
        }
        match caught(|| self.wait_idle()) {
            Ok(Ok(())) => self.marks.reached(until),
            _ => self.marks.abandon_held(),
        }
    }

    /// Blocks until the device executes nothing of what was submitted: it is done, or it is lost. A
    /// driver that refuses to wait for the stream is asked to wait for a mark.
    pub(super) fn wait_idle(&self) -> Result<()> {
        let by_mark = |_| self.handle.mark(false)?.wait();
        let waited = while_blocked(|| self.handle.synchronize().or_else(by_mark));
        waited.or_else(|refusal| match refusal {
            Error::DeviceLost { .. } => Ok(()),
            refusal => Err(refusal),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn markers_are_one_run_in_whatever_order_their_threads_come() {
        for order in [[4, 5, 6], [6, 5, 4], [5, 6, 4], [5, 4, 6]] {
            let mut run = MarkerRun::EMPTY;
            for ticket in order {
                run.add(ticket);
            }
            let found = [(3, 6), (4, 6), (2, 6), (3, 7), (3, 5)]
                .map(|(retired, pushed)| run.is_all_behind(retired, pushed));
            assert_eq!(found, [true, true, false, false, false], "{order:?}");
        }
        let mut run = MarkerRun::EMPTY;
        run.add(4);
        run.add(6);
        assert!(!run.is_all_behind(3, 6) && run.is_all_behind(5, 6), "5 stands between");
        run.add(4);
        assert!(!run.is_all_behind(3, 6), "5 still does");
    }
}
