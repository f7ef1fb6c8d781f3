//! The engine of a stream, the same for every kind: its state, scheduling, parking and resuming.
//!
//! The path of a task: [`StreamCore::enqueue`] pushes it onto the queue and hands an idle stream to
//! the backend. A worker (on a driver kind: the enqueuing thread) calls [`Work::run`], which drains
//! the queue (`drain`). `run` then leaves, parks or reschedules the stream, depending on why the
//! drain stopped.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::backend::contract::owned::{BareMark, OwnedMark, OwnedStream};
use crate::backend::contract::{Backend, Turn, Work};
use crate::base::device::Device;
use crate::base::error::{Error, FailureCause, Result, StreamFailure};
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering};
use crate::engine::frontier::{History, Point, Progress};
use crate::engine::stream::consumer_lock::{ConsumerGuard, ConsumerLock, Next, Parking};
use crate::engine::stream::failures::{FailureEnd, Failures, SyncPoint};
use crate::engine::stream::latch::Latch;
use crate::engine::stream::lifecycle::{Lifecycle, StreamCounters};
use crate::engine::stream::marks::{Marks, PlacedMark};
use crate::engine::stream::schedule::ScheduledStream;
use crate::engine::stream::scheduling_hints::{SchedulingHints, Stopwatch};
use crate::engine::stream::task::{Details, OperationKind, catch_panic, drop_quietly};
use crate::engine::stream::waiters::{MarkerRun, Waiter, Waiters};
use crate::queue::{CommandContext, Receiver, Sender, channel};

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

/// The state that only the draining thread touches.
pub(crate) struct Consumer {
    pub(crate) receiver: Receiver<TaskContext>,
    pub(crate) context: TaskContext,
    pub(crate) stopwatch: Stopwatch,
}

/// The reason why a drain stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The queue is empty, or the wanted task was retired.
    Finished,
    /// Other streams need the thread, or a producer is slow to publish.
    Yield,
    /// A waiting thread has executed tasks for `MAX_HELP_TIME`, and its interrupt check is due.
    TimeIsUp,
    /// The head is not ready. The context contains the head's blocker.
    Blocked,
}

/// The consumer's first read of a task: the task's ticket, and the time.
pub(crate) type FirstRead = Option<(u64, u64)>;

/// The state of one stream that its commands read and change. Only the consumer has access.
pub struct TaskContext {
    pub(crate) device: Device,
    pub(crate) stream_id: u64,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) handle: Arc<OwnedStream>,
    pub(crate) on_host: bool,
    /// The stream's uncleared error. While an error is set, the consumer skips users' tasks.
    pub(crate) error: Option<Arc<StreamFailure>>,
    /// The ticket and operation of the last task that a cancel covers and another error skipped.
    /// The cancel fails the stream in its turn when a receipt ends that error.
    pub(crate) cancelled: Option<(u64, OperationKind)>,
    /// The effects that the stream applies when it retires the command; most commands have none.
    /// Stored inline, so that a record on a driver's stream allocates no memory for its mark.
    pub(crate) effects: Effects,
    pub(crate) has_effects: bool,
    /// The operation of the task that began last.
    pub(crate) operation: OperationKind,
    /// The consumer's first read of the head, while the tasks are watched.
    pub(crate) since: FirstRead,
    /// The ticket of a user's task that has begun without being over, as deferred tasks do.
    pub(crate) begun: u64,
    /// True when threads and streams may wait for the command: its retirement wakes them.
    pub is_marker: bool,
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}

/// The effects of a command, which the stream applies when it retires the command.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) failure: Option<Arc<StreamFailure>>,
    /// The mark that the task placed on its driver stream.
    pub(crate) mark: Option<PlacedMark>,
    pub(crate) sync: Option<Arc<SyncPoint>>,
    /// The end of the stream's error at a receipt or a reissue.
    pub(crate) ended: Option<FailureEnd>,
    /// The blocker of a task that is not ready.
    pub(crate) blocked_on: Option<Blocker>,
}

/// The condition that the head of a queue waits for before it is ready.
pub(crate) enum Blocker {
    /// The stream has to retire the marker with this ticket.
    Retired(Arc<StreamCore>, u64),
    /// The driver has to reach a mark of this stream at or behind this ticket.
    Reached(Arc<StreamCore>, u64),
    /// Another thread has to open the latch.
    Latch(Arc<Latch<StreamCore>>),
}

impl CommandContext for TaskContext {
    type Operation = OperationKind;
    type Details = Details;

    #[inline]
    fn begin(&mut self, operation: OperationKind) {
        self.operation = operation;
    }
}

impl TaskContext {
    pub(crate) fn effects(&mut self) -> &mut Effects {
        self.has_effects = true;
        &mut self.effects
    }

    /// Queues work for another thread of the stream's device, to share the running task. On kinds
    /// that run tasks on the host such work may start late or never.
    pub fn resume(&self, work: Arc<dyn Work>) {
        self.handle.resume(work);
    }

    /// Fails the task, and with it the stream.
    #[cold]
    pub fn fail(&mut self, cause: FailureCause) {
        let error = StreamFailure::new(self.device, self.stream_id, self.operation.name(), cause);
        self.fail_with(error);
    }

    /// As [`TaskContext::fail`], with an error that the task's handle shares.
    #[cold]
    pub(crate) fn fail_with(&mut self, error: Arc<StreamFailure>) {
        self.effects().failure.get_or_insert(error);
    }

    /// Fails the running task with the failure of a task that it waited for.
    #[cold]
    pub(crate) fn inherit(&mut self, from: &Arc<StreamFailure>) {
        let error = StreamFailure::inherited(self.device, self.stream_id, from);
        self.effects().failure.get_or_insert(error);
    }

    /// Places a mark behind all submitted work. A refusal becomes the stream's error.
    pub(crate) fn mark(&mut self, timed: bool) -> Option<Arc<OwnedMark>> {
        let marked = self.handle.mark(timed);
        self.fail_if_refused(marked)
    }

    /// As `mark`, for a caller that is the mark's only owner and releases it.
    #[inline]
    pub(crate) fn bare_mark(&mut self, timed: bool) -> Option<BareMark> {
        let placed = self.handle.bare_mark(timed);
        self.fail_if_refused(placed)
    }

    #[inline]
    fn fail_if_refused<T>(&mut self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|refusal| self.fail(FailureCause::Backend(refusal))).ok()
    }

    /// The error that covers the running task: the stream's uncleared error, or the task's own.
    pub(crate) fn failure(&self) -> Option<&Arc<StreamFailure>> {
        self.error.as_ref().or(self.effects.failure.as_ref())
    }
}

/// A handle of a stream. Until it is dropped, the stream's log of errors retains cleared errors.
pub(crate) struct RetainingStream(Arc<StreamCore>);

impl RetainingStream {
    pub(crate) fn new(stream: &Arc<StreamCore>) -> Self {
        stream.failures.retain_cleared();
        Self(Arc::clone(stream))
    }
}

impl Deref for RetainingStream {
    type Target = Arc<StreamCore>;

    fn deref(&self) -> &Arc<StreamCore> {
        &self.0
    }
}

impl Drop for RetainingStream {
    fn drop(&mut self) {
        self.0.failures.release_cleared();
    }
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
            cancelled: None,
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

    /// Records that this stream's task `ticket` waits for the task `until` of the stream `source`.
    /// Work that is ordered before `until` is therefore ordered before this stream's later tasks.
    /// The caller has announced the wait ([`History::announce`]).
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

    /// Gives the stream to the scheduler. False without one.
    fn add_to_schedule(self: &Arc<Self>) -> bool {
        let scheduler = self.lifecycle.scheduler().filter(|_| self.on_host);
        scheduler.map(|it| it.add(Arc::clone(self) as Arc<dyn ScheduledStream>)).is_some()
    }

    /// True when no thread runs the stream or has it in its queue.
    #[doc(hidden)]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.consumer_lock.is_idle()
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

impl ScheduledStream for StreamCore {
    fn key(&self) -> u64 {
        Self::key(self)
    }

    fn priority(&self) -> i32 {
        self.identity.priority
    }

    fn parked_behind(&self) -> Vec<Arc<dyn ScheduledStream>> {
        let mut parked = Vec::new();
        self.waiters.each(|waiter| {
            if let Waiter::Stream(stream, _) = waiter {
                parked.push(Arc::clone(stream) as Arc<dyn ScheduledStream>);
            }
        });
        parked
    }

    fn request_single_steps(&self) {
        self.batch_state.hints.request_single_steps();
    }

    fn submit(self: Arc<Self>) {
        Self::submit(&self);
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
