//! A stream's engine, the same for every kind: push, drain, settle, park, resume.
//!
//! A task's way: [`StreamCore::push`] claims a place and publishes it; an idle stream is handed to
//! the backend, whose worker (or the pushing thread, for a driver kind) calls [`Work::run`]; the
//! drain asks each command whether it is ready, runs it, and advances the counter; effects that
//! others must see before the counter moves are settled first, waiters are woken after it moved.

use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::backend::contract::{Backend, StreamHandle, Turn, Work};
use crate::device::Device;
use crate::error::{FailureCause, Result, StreamError};
use crate::frontier::{History, Progress};
use crate::queue::{Class, Command, Front, Pushed, Receiver, Sender, channel};
use crate::stream::commands::drop_quietly;
use crate::stream::context::{Blocker, Effects, TaskContext};
use crate::stream::failures::Failures;
use crate::stream::frames::{self, Frame};
use crate::stream::lifecycle::{Lifecycle, StreamCounters, StreamCounts};
use crate::stream::marks::Marks;
use crate::stream::pace::{Pace, Stopwatch};
use crate::stream::synchronize::SyncPoint;
use crate::stream::turnstile::{Next, Parking, Pass, Turnstile};
use crate::stream::waiters::{Waiter, Waiters};
use crate::sync::unmodelled::AtomicU64;
use crate::sync::{LockRank, Mutex, Ordering, spin_hint, yield_now};

/// Tasks that a worker runs before it looks whether other streams wait.
const BATCH_TASKS: u32 = 64;

/// Short tasks between two looks at what is more urgent.
const TASKS_BETWEEN_LOOKS: u32 = 8;

/// Looks at a place that its producer has claimed and not published, before the stream goes back to
/// the run queue: the producer lost its processor.
const UNPUBLISHED_LOOKS: u32 = 200;

/// What identifies a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: Device,
    /// Unique on its device, never reused; 0 is the default stream.
    pub(crate) id: u64,
    pub(crate) priority: i32,
    /// True for a stream outside the pools, which ends with its last handle.
    pub(crate) is_dedicated: bool,
}

/// One stream. Shared by its handles, by events recorded on it and by whoever is responsible for it
/// (the run queue, a drain, or who will resume it), so that queued work keeps it alive.
pub(crate) struct StreamCore {
    pub(crate) identity: Identity,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) handle: StreamHandle,
    /// True when a task that returned is done.
    pub(crate) on_host: bool,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) history: History,
    pub(crate) failures: Failures,
    pub(crate) marks: Marks,
    pub(crate) pace: Pace,
    pub(crate) waiters: Waiters<StreamCore>,
    /// Threads inside a synchronise of this stream.
    pub(crate) synchronizing: Mutex<Vec<Arc<SyncPoint>>>,
    pub(crate) counters: StreamCounters,
    sender: Sender<TaskContext>,
    pub(crate) turnstile: CachePadded<Turnstile<Consumer>>,
}

/// What only the draining thread touches.
pub(crate) struct Consumer {
    pub(crate) receiver: Receiver<TaskContext>,
    pub(crate) context: TaskContext,
    stopwatch: Stopwatch,
}

/// Why a drain stopped.
pub(crate) enum Stop {
    /// The queue is empty, or the wanted task was retired.
    Here,
    /// Others should have the thread, or a producer is slow to publish.
    Yield,
    /// The head is not ready.
    Blocked(Blocker),
}

impl StreamCore {
    pub(crate) fn new(
        identity: Identity,
        backend: Arc<dyn Backend>,
        handle: StreamHandle,
        lifecycle: Arc<Lifecycle>,
    ) -> Arc<Self> {
        static KEYS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only uniqueness matters.
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        let on_host = backend.runs_on_host();
        let progress = Progress::new(key, on_host);
        let (sender, receiver) = channel();
        let context = TaskContext {
            device: identity.device,
            stream_id: identity.id,
            backend: Arc::clone(&backend),
            handle,
            on_host,
            error: None,
            effects: None,
            is_marker: false,
        };
        let consumer = Consumer { receiver, context, stopwatch: Stopwatch::default() };
        Arc::new(Self {
            identity,
            handle,
            on_host,
            lifecycle,
            history: History::new(Arc::clone(&progress)),
            failures: Failures::new(),
            marks: Marks::new(&backend, &progress),
            pace: Pace::new(),
            waiters: Waiters::new(),
            synchronizing: Mutex::new(LockRank::ErrorLog, Vec::new()),
            counters: StreamCounters::default(),
            sender,
            turnstile: CachePadded::new(Turnstile::new(consumer)),
            backend,
            progress,
        })
    }

    pub(crate) fn key(&self) -> u64 {
        self.progress.stream_key()
    }

    /// How many tasks were enqueued.
    pub(crate) fn pushed(&self) -> u64 {
        self.sender.pushed()
    }

    /// Enqueues a command and has the stream scheduled; its ticket. Fails after a stop and in a
    /// forked child. May help or wait when the stream's limit is exceeded.
    #[inline]
    pub(crate) fn push<T: Command<TaskContext>>(self: &Arc<Self>, command: T) -> Result<u64> {
        self.lifecycle.check()?;
        let pushed = self.sender.push(command);
        self.published(pushed);
        Ok(pushed.ticket)
    }

    /// Enqueues a command without having the stream scheduled: the caller holds a lock and calls
    /// [`StreamCore::published`] when it gave it back.
    #[inline]
    pub(crate) fn push_unscheduled<T: Command<TaskContext>>(&self, command: T) -> Pushed {
        self.sender.push(command)
    }

    /// Schedules the stream unless somebody is responsible for it; now and then looks at its limit.
    #[inline]
    pub(crate) fn published(self: &Arc<Self>, pushed: Pushed) {
        if self.turnstile.schedule_if_idle() == Next::Schedule {
            self.submit();
        }
        if pushed.is_first_of_segment {
            self.throttle(pushed.ticket);
        }
    }

    /// Hands the stream, which the caller is responsible for, to the backend.
    #[cold]
    #[inline(never)]
    pub(super) fn submit(self: &Arc<Self>) {
        if self.lifecycle.is_cancelled() {
            // The workers are ending: what arrives this late is retired here, without running.
            return Arc::clone(self).run(&Turn::unshared());
        }
        self.backend.submit(self.handle, Arc::clone(self) as Arc<dyn Work>);
    }

    /// The head that the stream parked on can go on. Called by completers, so nothing is executed
    /// here: a chain of streams that wait for each other would grow one stack.
    pub(crate) fn unpark(self: &Arc<Self>, parking: Parking) {
        if self.turnstile.unpark(parking) == Next::Schedule && !self.lifecycle.is_cancelled() {
            self.backend.resume(self.handle, Arc::clone(self) as Arc<dyn Work>);
        }
        // When cancelled, the shutdown looks at every stream until all are retired.
    }

    /// Retires tasks up to `until`. `turn` is `None` on a thread that waits for the stream, which
    /// stops before tasks that may be long.
    pub(crate) fn drain(
        &self,
        consumer: &mut Consumer,
        until: u64,
        turn: Option<&Turn<'_>>,
    ) -> Stop {
        // Deeper only where nobody helps: a driver's streams run where they are pushed to, and so
        // do those of a runtime that ends.
        debug_assert!(frames::may_help() || !self.on_host || self.lifecycle.is_cancelled());
        let _frame = Frame::enter(self.key());
        let batch = consumer.stopwatch.start();
        let first = consumer.receiver.consumed();
        let stop = self.drain_batch(consumer, until, turn);
        let tasks = consumer.receiver.consumed() - first;
        consumer.stopwatch.finish(&batch, tasks, &self.pace);
        match turn {
            None => self.counters.add_helped(tasks),
            Some(turn) if tasks > 0 => turn.note_progress(),
            Some(_) => {}
        }
        stop
    }

    fn drain_batch(&self, consumer: &mut Consumer, until: u64, turn: Option<&Turn<'_>>) -> Stop {
        let Consumer { receiver, context, .. } = consumer;
        let mut left = BATCH_TASKS;
        let mut unpublished = 0;
        while receiver.consumed() < until {
            let mut entry = match receiver.front() {
                Front::Ready(entry) => entry,
                Front::Empty => return Stop::Here,
                Front::Unpublished if unpublished < UNPUBLISHED_LOOKS || !self.on_host => {
                    unpublished += 1;
                    if unpublished < UNPUBLISHED_LOOKS {
                        spin_hint();
                    } else {
                        yield_now();
                    }
                    continue;
                }
                Front::Unpublished => return Stop::Yield,
            };
            let class = entry.class();
            let is_cancelled = self.lifecycle.is_cancelled();
            if class != Class::Own && (is_cancelled || context.error.is_some()) {
                drop_quietly(|| entry.discard());
                context.is_marker = true; // it may have been one: who waits for it is woken
                self.count_unrun(is_cancelled);
                if is_cancelled {
                    // Who waits for what stands behind is told that it did not run.
                    context.fail(FailureCause::Cancelled);
                }
            } else if turn.is_none() && self.pace.expects_long(class) {
                return Stop::Yield;
            } else if is_cancelled || entry.is_ready(context) {
                entry.run(context);
            } else {
                let blocker = context.effects().blocked_on.take();
                return Stop::Blocked(blocker.expect("who is not ready says what it waits for"));
            }
            if class == Class::Own {
                self.counters.add_own();
            }
            let ticket = receiver.consumed();
            if context.is_marker || context.effects.is_some() {
                self.settle(ticket, context);
            } else {
                self.progress.retire(ticket);
            }
            left = left.saturating_sub(1);
            if left.is_multiple_of(TASKS_BETWEEN_LOOKS) || self.pace.is_long() {
                let is_over =
                    |turn: &Turn<'_>| turn.must_yield() || left == 0 && turn.others_wait();
                if turn.is_some_and(is_over) {
                    return Stop::Yield;
                }
            }
        }
        Stop::Here
    }

    fn count_unrun(&self, is_cancelled: bool) {
        let (skipped, cancelled) = if is_cancelled { (0, 1) } else { (1, 0) };
        let counts = StreamCounts { skipped, cancelled, ..StreamCounts::default() };
        self.counters.add(counts);
    }

    /// Retires a task that has effects or that somebody may wait for. What others may ask once they
    /// see the counter is done before it moves.
    fn settle(self: &StreamCore, ticket: u64, context: &mut TaskContext) {
        if let Some(effects) = context.effects.take() {
            let Effects { failure, mark, sync, .. } = *effects;
            if let Some(error) = failure
                && context.error.is_none()
            {
                self.failures.open(ticket, Arc::clone(&error));
                context.error = Some(error);
            }
            if let Some(mark) = mark
                && !self.on_host
            {
                self.marks.push(ticket, mark);
            }
            if let Some(point) = sync {
                self.pass(&point, ticket, context);
            }
        }
        context.is_marker = false;
        self.progress.settle(ticket);
        for waiter in self.waiters.served(ticket) {
            match waiter {
                Waiter::Stream(stream, parking) => stream.unpark(parking),
                Waiter::Thread(sleeper) => sleeper.wake(),
            }
        }
    }

    /// The queue passes a synchronise: ends the open error and hands it to every thread that is
    /// inside a synchronise now. A point that was given up ends nothing.
    fn pass(&self, point: &Arc<SyncPoint>, ticket: u64, context: &mut TaskContext) {
        let mut synchronizing = self.synchronizing.lock();
        let Some(place) = synchronizing.iter().position(|one| Arc::ptr_eq(one, point)) else {
            return;
        };
        let error = context.error.take();
        for waiting in synchronizing.iter() {
            if let Some(error) = &error {
                waiting.give(error);
            }
        }
        synchronizing.swap_remove(place);
        drop(synchronizing);
        if error.is_some() {
            self.failures.end(ticket);
        }
    }

    /// As [`Self::pass`], for a thread that stands at this place itself.
    pub(crate) fn end_error(
        &self,
        ticket: u64,
        context: &mut TaskContext,
    ) -> Option<Arc<StreamError>> {
        let error = context.error.take()?;
        self.synchronizing.lock().iter().for_each(|waiting| waiting.give(&error));
        self.failures.end(ticket);
        Some(error)
    }

    /// Gives the right to drain back as the drain's end demands. [`Next::Schedule`] leaves the
    /// stream in the caller's responsibility, to be put into the run queue.
    pub(crate) fn leave(self: &Arc<Self>, pass: Pass<'_, Consumer>, stop: Stop) -> Next {
        match stop {
            Stop::Here => {
                let consumed = pass.receiver.consumed();
                let is_left_behind = pass.leave() && self.sender.pushed() != consumed;
                if is_left_behind { self.turnstile.schedule_if_idle() } else { Next::Nothing }
            }
            Stop::Yield => pass.leave_with_work(),
            Stop::Blocked(blocker) => {
                let parking = pass.park();
                self.await_blocker(blocker, parking);
                Next::Nothing
            }
        }
    }

    /// Has the parked stream resumed when its blocker is gone.
    fn await_blocker(self: &Arc<Self>, blocker: Blocker, parking: Parking) {
        match blocker {
            Blocker::Retired(source, ticket) => {
                let waiter = Waiter::Stream(Arc::clone(self), parking);
                if source.waiters.register(ticket, waiter, &source.progress).is_err() {
                    self.unpark(parking);
                }
            }
            Blocker::Reached(source, ticket) => {
                let Some(mark) = source.marks.at(ticket) else { return self.unpark(parking) };
                let (own, reached) = (Arc::clone(self), Arc::clone(&source));
                let resume = Box::new(move || {
                    reached.progress.reach(ticket);
                    own.unpark(parking);
                });
                if source.backend.when_done(mark.mark(), resume).is_err() {
                    // The driver refuses to tell: the wait's second look asks it again.
                    self.unpark(parking);
                }
            }
            Blocker::Gate(gate) if gate.wait(Arc::clone(self), parking) => {}
            Blocker::Gate(_) => self.unpark(parking),
        }
    }

    /// Leaves, and puts the stream into the run queue if it has work left.
    pub(crate) fn leave_and_submit(self: &Arc<Self>, pass: Pass<'_, Consumer>, stop: Stop) {
        if self.leave(pass, stop) == Next::Schedule {
            self.submit();
        }
    }

    /// Users' tasks that were not retired, the one that a thread may be inside of included.
    pub(crate) fn unretired_users_tasks(&self) -> u64 {
        let retired = self.progress.retired() - self.counters.own();
        self.sender.users_pushed().saturating_sub(retired)
    }

    /// The error that stays open and that nobody saw.
    pub(crate) fn unseen_error(&self) -> Option<Arc<StreamError>> {
        self.failures.current().filter(|error| !error.is_seen() && !error.is_cancellation())
    }
}

impl Work for StreamCore {
    fn run(self: Arc<Self>, turn: &Turn<'_>) {
        while let Some(mut pass) = self.turnstile.enter_from_run_queue() {
            let stop = self.drain(&mut pass, u64::MAX, Some(turn));
            if self.leave(pass, stop) == Next::Nothing {
                return;
            }
            if self.on_host && !self.lifecycle.is_cancelled() {
                // To the back of the run queue: other streams go first.
                return self.submit();
            }
            // A driver kind's streams run where they are: no recursion through the backend.
        }
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        self.lifecycle.keep(self.counters.read(), self.unseen_error());
        // Nobody executes it any more: what was not submitted will not be.
        self.finish_held(u64::MAX);
        // A refusal leaves nothing to do: nobody has the stream any more.
        let _ = self.backend.stream_destroy(self.handle);
    }
}

impl fmt::Debug for StreamCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCore")
            .field("identity", &self.identity)
            .field("pushed", &self.sender.pushed())
            .field("retired", &self.progress.retired())
            .field("state", &*self.turnstile)
            .finish_non_exhaustive()
    }
}
