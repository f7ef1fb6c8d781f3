//! The consumer's side of a stream: runs the task at the head of its queue and retires it.
//!
//! The drain polls whether a command is ready, runs it, applies its effects, advances the counter
//! and wakes the waiters. Other threads read the counter before they read the effects.
//!
//! A worker that finds its stream empty lingers for a moment, so that tasks pushed meanwhile do not
//! pass through the run queue. The worker does not linger if waiting host threads execute the
//! stream, because a host thread starts a task faster.

use std::any::Any;
use std::sync::Arc;

use crate::backend::contract::Turn;
use crate::base::error::FailureCause;
use crate::base::sync::unmodelled::AtomicBool;
use crate::base::sync::{Ordering, spin_hint, yield_now};
use crate::base::thread;
use crate::engine::stream::core::{Consumer, Stop, StreamCore, TaskContext};
use crate::engine::stream::failures::{Cleared, SyncPoint, discard_skipped};
use crate::engine::stream::frames;
use crate::engine::stream::lifecycle::StreamCounts;
use crate::engine::stream::marks::PlacedMark;
use crate::engine::stream::order_watch::{self, Told};
use crate::engine::stream::scheduling_hints::HelpTimer;
use crate::engine::stream::task::{catch_panic, drop_quietly, panic_cause};
use crate::engine::stream::waiters::Waiter;
use crate::queue::{Class, Entry, Head};

/// The number of tasks that a worker runs before it checks whether other streams wait.
const BATCH_TASKS: u32 = 64;

/// The number of short tasks that a worker runs between two checks for more urgent work.
const TASKS_PER_URGENCY_CHECK: u32 = 8;

/// The maximum number of reads of a slot that a producer has claimed and not published. After these
/// reads the stream returns to the run queue: the producer was probably preempted.
const UNPUBLISHED_READS: u32 = if cfg!(loom) { 1 } else { 200 };

impl StreamCore {
    /// Retires tasks up to `until` on a thread that waits for the stream. Stops before a task that
    /// only a worker may execute. Also stops between two tasks when an interrupt check is due.
    #[inline]
    pub(crate) fn drain_helping(&self, consumer: &mut Consumer, until: u64) -> Stop {
        if consumer.receiver.consumed() + 1 < until {
            self.drain_timed(consumer, until)
        } else {
            // At most one task is left: no interrupt check is needed, and this thread reads no
            // clock.
            let stop = self.drain(consumer, until, None);
            self.batch_state.hints.end_help();
            stop
        }
    }

    #[inline(never)]
    fn drain_timed(&self, consumer: &mut Consumer, until: u64) -> Stop {
        let mut timer = HelpTimer::begin();
        loop {
            let next = consumer.receiver.consumed() + 1;
            let stop = self.drain(consumer, next, None);
            let is_over = timer.is_over(&self.batch_state.hints);
            if stop != Stop::Finished || consumer.receiver.consumed() < next || next >= until {
                return stop;
            }
            if is_over {
                return Stop::TimeIsUp;
            }
        }
    }

    /// Retires tasks up to `until`. `turn` is `None` on a thread that waits for the stream.
    pub(crate) fn drain(
        &self,
        consumer: &mut Consumer,
        until: u64,
        turn: Option<&Turn<'_>>,
    ) -> Stop {
        // A thread that may not help drains only streams whose tasks run on the enqueuing thread:
        // a driver's streams, and all streams of a runtime that is shutting down or has a schedule.
        debug_assert!(
            frames::may_help() || !self.on_host || self.lifecycle.is_watched_or_cancelled()
        );
        let first = consumer.receiver.consumed();
        consumer.stopwatch.start(first);
        let batch = |consumer: &mut Consumer| self.drain_batch(consumer, until, turn);
        let stop = frames::inside(self.key(), || self.run_despite_panics(consumer, batch));
        let last = consumer.receiver.consumed();
        consumer.stopwatch.stop(last, &self.batch_state.hints);
        match turn {
            None => self.batch_state.counters.add_helped(last - first),
            Some(_) if last > first => self.batch_state.hints.note_worker(),
            Some(_) => {}
        }
        stop
    }

    fn drain_batch(&self, consumer: &mut Consumer, until: u64, turn: Option<&Turn<'_>>) -> Stop {
        let first = consumer.receiver.consumed();
        let mut left = BATCH_TASKS;
        let mut unpublished = 0;
        while consumer.receiver.consumed() < until {
            if let Some(turn) = turn
                && !consumer.receiver.is_published()
                && consumer.receiver.consumed() > first
                && !self.linger(consumer, turn)
            {
                return Stop::Finished; // `leave` finds a task pushed at this moment
            }
            let Consumer { receiver, context, .. } = consumer;
            let entry = match receiver.head() {
                Head::Ready(entry) => entry,
                Head::Empty => return Stop::Finished,
                Head::Unpublished if unpublished < UNPUBLISHED_READS || !self.on_host => {
                    unpublished += 1;
                    if unpublished < UNPUBLISHED_READS {
                        spin_hint();
                    } else {
                        yield_now();
                    }
                    continue;
                }
                Head::Unpublished => return Stop::Yield,
            };
            if let Some(stop) = self.execute(entry, context, turn.is_none()) {
                return stop;
            }
            self.retire(receiver.consumed(), context);
            let Some(turn) = turn else { continue };
            left -= 1;
            if left.is_multiple_of(TASKS_PER_URGENCY_CHECK) || self.batch_state.hints.is_long() {
                if turn.must_yield() || left == 0 && turn.others_wait() {
                    return Stop::Yield;
                }
                if left == 0 {
                    left = BATCH_TASKS;
                }
            }
        }
        Stop::Finished
    }

    /// Runs the head or discards it. `Some` when the drain has to stop before the head.
    #[inline]
    fn execute(
        &self,
        entry: Entry<'_, TaskContext>,
        context: &mut TaskContext,
        is_helping: bool,
    ) -> Option<Stop> {
        if self.lifecycle.is_watched_or_cancelled() {
            self.execute_watched_or_cancelled(entry, context, is_helping)
        } else {
            self.execute_as(entry, context, is_helping, false)
        }
    }

    #[inline]
    pub(super) fn execute_as(
        &self,
        mut entry: Entry<'_, TaskContext>,
        context: &mut TaskContext,
        is_helping: bool,
        is_cancelled: bool,
    ) -> Option<Stop> {
        let class = entry.class();
        if class == Class::Internal {
            // A cancelled driver stream asks its driver for no more waits.
            let is_ready = is_cancelled && !context.on_host || entry.is_ready(context);
            if !is_ready {
                if !is_cancelled {
                    return Some(Stop::Blocked);
                }
                // What follows is not behind what this command waits for.
                context.effects().blocked_on = None;
                context.fail(FailureCause::Cancelled);
            }
            entry.run(context);
        } else if is_cancelled || context.error.is_some() {
            self.discard(entry, context, is_cancelled);
        } else if is_helping && !self.is_for_helpers(class) {
            return Some(Stop::Yield);
        } else if entry.is_ready(context) {
            entry.run(context);
        } else {
            context.begun = self.progress.retired() + 1;
            return Some(Stop::Blocked);
        }
        None
    }

    /// Fails the stream before a user's task that a cancel covers, unless the task has begun. The
    /// stream then skips it, as it skips tasks behind any failure.
    pub(super) fn fail_if_cancelled(
        &self,
        entry: &mut Entry<'_, TaskContext>,
        context: &mut TaskContext,
    ) {
        let ticket = self.progress.retired() + 1;
        // Relaxed: a task that races with a cancel may run or not.
        let is_covered = ticket <= self.cancelled_until.load(Ordering::Relaxed);
        let can_begin = entry.class() != Class::Internal && context.begun != ticket;
        if !is_covered || !can_begin {
            return;
        }
        let operation = entry.operation();
        if context.error.is_some() {
            context.cancelled = Some((ticket, operation));
        } else {
            context.operation = operation;
            context.fail(FailureCause::StreamCancelled);
            self.apply_effects(ticket, context);
        }
    }

    /// True when a waiting thread may execute a task of this class. A native function needs a
    /// stream with measured task times and a stack as large as a worker's. Rust checks the stack of
    /// closures, and the runtime's own tasks need little stack.
    #[inline]
    fn is_for_helpers(&self, class: Class) -> bool {
        match class {
            Class::Internal | Class::User => true,
            Class::Ffi => !self.batch_state.hints.is_unknown() && thread::has_worker_size(),
            Class::Blocking => false,
        }
    }

    /// Drops a user's task unrun, and counts it as skipped or cancelled.
    #[cold]
    fn discard(
        &self,
        mut entry: Entry<'_, TaskContext>,
        context: &mut TaskContext,
        is_cancelled: bool,
    ) {
        context.operation = entry.operation();
        if order_watch::is_on() {
            // Reports the skip before the task retires: else a watch counts the task as executed.
            order_watch::tell(Told::Skip(self, self.progress.retired() + 1));
        }
        discard_skipped(context.error.as_ref(), || drop_quietly(|| entry.discard()));
        context.is_marker = true; // the task may have been a marker: wakes its waiters
        let (skipped, cancelled) = if is_cancelled { (0, 1) } else { (1, 0) };
        let counts = StreamCounts { skipped, cancelled, ..StreamCounts::default() };
        self.batch_state.counters.add(counts);
        if let Some(error) = context.error.as_ref().filter(|_| !is_cancelled) {
            error.count_skipped();
        }
        if is_cancelled {
            // Later records report this failure, so a wait for them returns an error.
            context.fail(FailureCause::Cancelled);
        }
    }

    /// Calls `batch` until a call does not panic. Retires each task that panics.
    #[inline]
    pub(super) fn run_despite_panics<R>(
        &self,
        consumer: &mut Consumer,
        batch: impl Fn(&mut Consumer) -> R,
    ) -> R {
        loop {
            match catch_panic(|| batch(consumer)) {
                Ok(outcome) => return outcome,
                Err(panic) => self.skip_panicked(consumer, panic),
            }
        }
    }

    /// Retires the task in which a batch panicked. The backend or the runtime panicked, because
    /// commands catch the panics of users' code.
    #[cold]
    fn skip_panicked(&self, consumer: &mut Consumer, panic: Box<dyn Any + Send>) {
        let receiver = &mut consumer.receiver;
        if receiver.consumed() == self.progress.retired()
            && let Head::Ready(head) = receiver.head()
        {
            // The head's `is_ready` panicked and would panic again, so the head is discarded.
            drop_quietly(|| head.discard());
        }
        self.retire_panicked(consumer, panic);
    }

    /// Retires a task that panicked: the stream fails with the panic, and the waiters are woken.
    #[cold]
    pub(super) fn retire_panicked(&self, consumer: &mut Consumer, panic: Box<dyn Any + Send>) {
        let Consumer { receiver, context, .. } = consumer;
        let ticket = receiver.consumed();
        context.fail(panic_cause(panic));
        context.is_marker = true; // the task may have been a marker: wakes its waiters
        if !self.on_host && context.effects.mark.is_none() {
            // Places a mark: the task may have been a record, which is polled through its mark.
            drop_quietly(|| context.effects.mark = context.bare_mark(false).map(PlacedMark::Sole));
        }
        // If `retire` panics, the second call applies no effects and does not call the backend.
        while self.progress.retired() < ticket {
            drop_quietly(|| self.retire(ticket, context));
        }
    }

    /// Waits a moment for a producer, unless a host thread wants to execute the stream. False when
    /// the turn has to end.
    #[inline(never)]
    fn linger(&self, consumer: &mut Consumer, turn: &Turn<'_>) -> bool {
        let hints = &self.batch_state.hints;
        if !self.on_host || hints.is_run_by_host() {
            return true;
        }
        let Consumer { receiver, stopwatch, .. } = consumer;
        stopwatch.stop(receiver.consumed(), hints); // excludes the idle time from the task times
        let continues = turn.linger(&|| receiver.is_published() || hints.is_run_by_host());
        stopwatch.start(receiver.consumed());
        continues
    }

    /// Retires the task `ticket`. Only a marker or a task with effects needs more than the counter.
    #[inline]
    pub(super) fn retire(&self, ticket: u64, context: &mut TaskContext) {
        if context.is_marker || context.has_effects {
            self.retire_with_waiters(ticket, context);
        } else {
            self.progress.retire(ticket);
        }
    }

    /// Retires a task that may have waiters or effects. Applies the effects before the counter
    /// moves, because other threads read the counter before the effects.
    #[inline]
    fn retire_with_waiters(&self, ticket: u64, context: &mut TaskContext) {
        if context.has_effects {
            self.apply_effects(ticket, context);
        }
        context.is_marker = false;
        self.progress.retire_with_waiters(ticket);
        if let Some(ready) = self.waiters.take_up_to(ticket) {
            wake(ready);
        }
    }

    #[inline(never)]
    pub(super) fn apply_effects(&self, ticket: u64, context: &mut TaskContext) {
        context.has_effects = false;
        // Each effect is checked separately: a record on a driver's stream leaves only a mark.
        if let Some(error) = context.effects.failure.take()
            && context.error.is_none()
            && self.failures.open(ticket, &error)
        {
            context.error = Some(error);
        }
        if let Some(mark) = context.effects.mark.take()
            && !self.on_host
        {
            self.marks.push(ticket, mark);
        }
        if let Some(point) = context.effects.sync.take() {
            self.pass_sync_point(&point, ticket, context);
        }
        if let Some(ended) = context.effects.ended.take() {
            self.end_without_synchronize(&ended, ticket, context);
        }
    }

    /// Clears the stream's error, and adds the error to the sync points of all synchronising
    /// threads. Does nothing when the thread of `point` has abandoned `point`.
    fn pass_sync_point(&self, point: &Arc<SyncPoint>, ticket: u64, context: &mut TaskContext) {
        let mut synchronizing = self.synchronizing.lock();
        let Some(index) = synchronizing.iter().position(|one| Arc::ptr_eq(one, point)) else {
            return;
        };
        let cleared = share_error(context);
        let has_failed = cleared.is_some();
        if let Some(cleared) = cleared {
            // Dropped under the lock, because the last point that gives up has the last handle.
            synchronizing.iter().for_each(|waiting| waiting.add_error(&cleared));
        }
        synchronizing.swap_remove(index);
        drop(synchronizing);
        if has_failed {
            self.failures.clear(ticket);
        }
    }

    /// As [`Self::pass_sync_point`], for a consumer that synchronises. Returns the cleared error.
    #[inline]
    pub(crate) fn clear_error(&self, ticket: u64, context: &mut TaskContext) -> Option<Cleared> {
        if context.error.is_none() { None } else { self.end_open_error(ticket, context) }
    }

    #[cold]
    fn end_open_error(&self, ticket: u64, context: &mut TaskContext) -> Option<Cleared> {
        let cleared = share_error(context)?;
        self.synchronizing.lock().iter().for_each(|waiting| waiting.add_error(&cleared));
        self.failures.clear(ticket);
        Some(cleared)
    }
}

/// Takes the stream's error for the synchronising threads. A permanent error also stays.
fn share_error(context: &mut TaskContext) -> Option<Cleared> {
    context.cancelled = None;
    let error = context.error.take()?;
    if error.is_permanent() {
        context.error = Some(Arc::clone(&error));
    }
    Some(Arc::new((error, AtomicBool::new(false))))
}

#[inline(never)]
fn wake(waiters: Vec<Waiter<StreamCore>>) {
    for waiter in waiters {
        match waiter {
            // Catches panics: a backend that panics at one stream must not stop the other wakes.
            Waiter::Stream(stream, parking) => drop_quietly(|| stream.unpark(parking)),
            Waiter::Thread(sleeper) => sleeper.wake(),
            Waiter::Task(waker) => drop_quietly(|| waker.wake()),
        }
    }
}
