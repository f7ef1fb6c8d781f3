//! The engine of a stream, the same for every kind: scheduling, leaving, parking and resuming.
//!
//! The path of a task: [`StreamCore::enqueue`] pushes it onto the queue and hands an idle stream to
//! the backend. A worker (on a driver kind: the enqueuing thread) calls [`Work::run`], which drains
//! the queue (`drain`). `run` then leaves, parks or reschedules the stream, depending on why the
//! drain stopped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::backend::contract::owned::OwnedStream;
use crate::backend::contract::{Backend, Turn, Work};
use crate::base::device::Device;
use crate::base::error::Error;
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering};
use crate::engine::frontier::{History, Point, Progress};
use crate::engine::stream::commands::{OperationKind, catch_panic, drop_quietly};
use crate::engine::stream::consumer_lock::{ConsumerGuard, ConsumerLock, Next, Parking};
use crate::engine::stream::context::{Blocker, Effects, TaskContext};
use crate::engine::stream::drain::{Consumer, Stop};
use crate::engine::stream::failures::Failures;
use crate::engine::stream::internal::MarkerRun;
use crate::engine::stream::lifecycle::{Lifecycle, StreamCounters};
use crate::engine::stream::marks::Marks;
use crate::engine::stream::scheduling_hints::{SchedulingHints, Stopwatch};
use crate::engine::stream::synchronize::SyncPoint;
use crate::engine::stream::waiters::{Waiter, Waiters};
use crate::queue::{Sender, channel};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: Device,
    /// Unique on its device, never reused; 0 is the default stream.
    pub(crate) id: u64,
    pub(crate) priority: i32,
    /// True for a dedicated stream, which ends with its last handle and its last task.
    pub(crate) is_dedicated: bool,
}

/// One stream, shared by its handles, by recorded events and by the component that will execute it
/// next: the run queue, a drain, or the completer that will resume it. So queued work keeps the
/// stream alive.
pub struct StreamCore {
    pub(crate) identity: Identity,
    /// The backend of the stream's device.
    pub backend: Arc<dyn Backend>,
    /// The backend's stream, shared with the context of its tasks.
    pub handle: Arc<OwnedStream>,
    /// True when tasks run on the machine's own cores.
    pub on_host: bool,
    /// The runtime that the stream belongs to.
    pub lifecycle: Arc<Lifecycle>,
    /// The tasks that are retired and done.
    pub progress: Arc<Progress>,
    pub(crate) history: Arc<History>,
    /// The failures that no call has ended yet.
    pub failures: Failures,
    pub(crate) marks: Marks,
    pub(crate) waiters: Waiters<StreamCore>,
    /// Markers that waiting threads have pushed behind the last task.
    pub(super) markers: Mutex<MarkerRun>,
    /// The last ticket that a cancel covers. Read only while the tasks are watched.
    pub(crate) cancelled_until: AtomicU64,
    /// The sync points of the threads that are synchronising with this stream.
    pub(crate) synchronizing: Mutex<Vec<Arc<SyncPoint>>>,
    pub(crate) batch_state: CachePadded<BatchState>,
    pub(super) sender: Sender<TaskContext>,
    /// The highest ticket within the stream's task limit, as last computed; it may be too low.
    pub(super) below_limit_until: AtomicU64,
    pub(crate) consumer_lock: CachePadded<ConsumerLock<Consumer>>,
}

/// Fields written at each batch, on cache lines that producers do not read.
pub(crate) struct BatchState {
    pub(crate) counters: StreamCounters,
    pub(crate) hints: SchedulingHints,
}

impl StreamCore {
    pub(crate) fn new(
        identity: Identity,
        backend: Arc<dyn Backend>,
        handle: Arc<OwnedStream>,
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
            handle: Arc::clone(&handle),
            on_host,
            error: None,
            effects: Effects::default(),
            has_effects: false,
            operation: OperationKind::Internal,
            since: None,
            begun: 0,
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
            waiters: Waiters::new(),
            markers: Mutex::new(LockRank::Waiters, MarkerRun::EMPTY),
            cancelled_until: AtomicU64::new(0),
            synchronizing: Mutex::new(LockRank::ErrorLog, Vec::new()),
            batch_state: CachePadded::new(BatchState {
                counters: StreamCounters::default(),
                hints: SchedulingHints::new(),
            }),
            sender,
            below_limit_until: AtomicU64::new(0),
            consumer_lock: CachePadded::new(ConsumerLock::new(consumer)),
            backend,
            progress,
        })
    }

    /// Notes that this stream's queue has a wait, `ticket`, for the task `until` of the stream
    /// `source`: what is ordered before that task is ordered before the later tasks here. The
    /// caller has announced it ([`History::announce`]).
    pub(crate) fn note_wait(&self, ticket: u64, source: &Self, until: u64) {
        let point = Point { progress: Arc::clone(&source.progress), ticket: until };
        self.history.join(ticket, &point, source.history.at(until).as_deref());
    }

    /// The device and the number of the stream.
    #[must_use]
    pub fn name(&self) -> (Device, u64) {
        (self.identity.device, self.identity.id)
    }

    /// A number that no other stream of this process has.
    pub fn key(&self) -> u64 {
        self.progress.stream_key()
    }

    /// The number of all tasks ever enqueued.
    pub fn pushed(&self) -> u64 {
        self.sender.pushed()
    }

    /// Hands the stream to the backend, after the consumer lock has returned `Next::Schedule`.
    #[cold]
    #[inline(never)]
    pub fn submit(self: &Arc<Self>) {
        if self.lifecycle.is_watched_or_cancelled() {
            if self.lifecycle.is_cancelled() {
                // The workers are ending: this thread runs the stream, which retires late tasks.
                return Arc::clone(self).run(&Turn::unshared());
            }
            if self.add_to_schedule() {
                return;
            }
        }
        let work = Arc::clone(self) as Arc<dyn Work>;
        if let Err(panic) = catch_panic(|| self.handle.submit(work)) {
            self.retire_unaccepted("submit", panic);
        }
    }

    /// Resumes the stream after its head was unblocked. Executes no tasks: streams that wait for
    /// each other in a chain would nest on the completer's stack.
    pub(crate) fn unpark(self: &Arc<Self>, parking: Parking) {
        if self.consumer_lock.unpark(parking) == Next::Schedule
            && !(self.lifecycle.is_watched_or_cancelled()
                && (self.lifecycle.is_cancelled() || self.add_to_schedule()))
        {
            let work = Arc::clone(self) as Arc<dyn Work>;
            if let Err(panic) = catch_panic(|| self.handle.resume(work)) {
                self.retire_unaccepted("resume", panic);
            }
        }
        // After a cancellation the shutdown itself retires the tasks of the resumed stream.
    }

    /// Releases the right to consume: leaves, reschedules or parks, depending on `stop`. On
    /// [`Next::Schedule`] the caller must put the stream into the run queue.
    #[inline]
    pub(crate) fn leave(self: &Arc<Self>, guard: ConsumerGuard<'_, Consumer>, stop: Stop) -> Next {
        match stop {
            Stop::Finished => {
                let consumed = guard.receiver.consumed();
                let is_left_behind = guard.leave() && self.sender.pushed() != consumed;
                if is_left_behind { self.consumer_lock.schedule_if_idle() } else { Next::Nothing }
            }
            Stop::Yield | Stop::TimeIsUp => guard.leave_with_work(),
            Stop::Blocked => self.leave_blocked(guard),
        }
    }

    #[cold]
    fn leave_blocked(self: &Arc<Self>, mut guard: ConsumerGuard<'_, Consumer>) -> Next {
        let blocker = guard.context.effects().blocked_on.take();
        let parking = guard.park();
        if self.lifecycle.is_cancelled() {
            // A shutdown resumes parked streams for a limited time, which may be over. So this
            // thread ends the parking, and the caller submits the stream.
            return self.consumer_lock.unpark(parking);
        }
        self.await_blocker(blocker.expect("a command that is not ready has a blocker"), parking);
        Next::Nothing
    }

    /// Registers the parked stream with its blocker, which later resumes the stream.
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
                    reached.progress.advance_device_done(ticket);
                    own.unpark(parking);
                });
                let registered = catch_panic(|| mark.when_done(resume));
                if !matches!(registered, Ok(Ok(()))) {
                    // Without a callback the stream resumes at once and polls the command again.
                    self.unpark(parking);
                }
            }
            Blocker::Latch(latch) if latch.wait(Arc::clone(self), parking) => {}
            Blocker::Latch(_) => self.unpark(parking),
        }
    }

    /// Calls [`StreamCore::leave`], and hands the stream to the backend after [`Next::Schedule`].
    pub(crate) fn leave_and_submit(
        self: &Arc<Self>,
        guard: ConsumerGuard<'_, Consumer>,
        stop: Stop,
    ) {
        if self.leave(guard, stop) == Next::Schedule {
            self.submit();
        }
    }

    /// The number of users' tasks not yet retired, including one that is being executed.
    pub(crate) fn unretired_user_task_count(&self) -> u64 {
        self.sender.users_behind(self.progress.retired())
    }
}

impl Work for StreamCore {
    fn run(self: Arc<Self>, turn: &Turn<'_>) {
        loop {
            let Some(mut guard) = self.consumer_lock.enter_from_run_queue() else {
                return self.batch_state.hints.note_collision();
            };
            let stop = self.drain(&mut guard, u64::MAX, Some(turn));
            if self.leave(guard, stop) == Next::Nothing {
                return;
            }
            if self.on_host && !self.lifecycle.is_cancelled() {
                // Puts the stream at the back of the run queue: other streams run first.
                return self.submit();
            }
            // A driver's stream continues in this loop: `submit` would call this function again.
        }
    }

    fn is_needed(&self) -> bool {
        // A producer counts its task before it reads the consumer lock, where it finds the stream
        // queued. `give_up` reads the counter again, so a task that this read misses is not lost.
        self.sender.pushed() != self.progress.retired()
    }

    fn give_up(self: Arc<Self>) {
        if let Some(guard) = self.consumer_lock.enter_from_run_queue() {
            self.leave_and_submit(guard, Stop::Finished);
        }
        drop_quietly(|| drop(self)); // the stream's error may be a user's value, whose drop panics
    }

    fn refuse(self: Arc<Self>, reason: &Error) {
        self.retire_refused(reason);
    }

    fn leave_for(&self) -> Option<Duration> {
        let may_help = self.on_host && !self.lifecycle.is_cancelled();
        if may_help { self.batch_state.hints.leave_for(self.progress.retired()) } else { None }
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        let counts = self.batch_state.counters.read();
        let unraised = self.failures.unraised();
        let forgotten = self.lifecycle.add_dropped(counts, self.identity.device, unraised);
        self.progress.end();
        drop(forgotten); // after `end`, because a user's drop may list all streams
        // No thread executes the stream any more, so no further task will be submitted.
        self.finish_held(u64::MAX);
        if self.marks.has_abandoned() {
            self.progress.abandon();
        } else {
            self.progress.finish();
        }
    }
}

impl fmt::Debug for StreamCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCore")
            .field("identity", &self.identity)
            .field("pushed", &self.sender.pushed())
            .field("retired", &self.progress.retired())
            .field("state", &*self.consumer_lock)
            .finish_non_exhaustive()
    }
}
