//! The run queue of one cpu device: runnable work by priority, and its workers' states.
//!
//! A worker is *searching*, *running* or *asleep*. One lock covers the work, the counts and the
//! list of sleepers, so a producer that adds work cannot miss a worker that goes to sleep. If no
//! worker is searching, a push wakes a sleeper or requests one more worker, which counts as
//! searching immediately. A worker that takes work and leaves more in the queue also wakes a
//! sleeper or requests a worker. Each push or dequeue thus wakes at most one worker.
//!
//! A dequeue takes the most urgent work. To avoid starvation, one in 61 takes the least urgent.
//!
//! Work that a waiting thread has executed stays queued until a worker takes it or the queue is
//! full. A full queue drops such unneeded work before it grows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::contract::Work;
use crate::base::sync::{AtomicU64, LockRank, Mutex, Ordering, Sleeper, Thread};

/// Priority levels of the cpu device: level 0 is the most urgent.
pub(crate) const LEVELS: usize = 3;

/// Every 61st dequeue takes the least urgent work. A prime number, as in Go's scheduler, does not
/// resonate with periodic work.
const FAIR_PERIOD: u64 = 61;

/// Minimum capacity per level.
const LEAST_CAPACITY: usize = 16;

/// Work that waits for a worker, with the counts of the device's workers.
pub(crate) struct RunQueue<W> {
    /// One bit per level with work. Written under the lock; a hint to readers without the lock.
    levels_with_work: AtomicU64,
    state: Mutex<State<W>>,
}

struct State<W> {
    levels: [VecDeque<W>; LEVELS],
    num_dequeues: u64,
    searching: usize,
    asleep: Vec<Arc<Sleeper>>,
    /// Workers that exist or are starting.
    workers: usize,
    /// Workers blocked inside tasks. As many workers may exist above `worker_limit`.
    blocked: Vec<Thread>,
    worker_limit: usize,
    is_closed: bool,
}

/// What the caller must do, outside the lock, so that a worker takes the queued work.
#[must_use]
pub(crate) enum WorkerRequest {
    /// Nothing to do: a worker is searching, no work is queued, or the workers are at their limit.
    None,
    /// Wake this worker.
    Wake(Arc<Sleeper>),
    /// Start one more worker, which begins by searching.
    Start,
    /// A start failed. Unpark these workers: they are blocked inside tasks and can
    /// [retry](RunQueue::retry_start) the start.
    RetryStart(Vec<Thread>),
}

/// Work that [`RunQueue::push`] did not add, with the reason.
#[derive(Debug)]
pub(crate) enum PushError<W> {
    Closed(W),
    /// The level is at its capacity: see [`RunQueue::purge`].
    Full(W),
}

/// The result of a worker's search.
pub(crate) enum NextWork<W> {
    /// Work, its level, and a request for the caller to fulfil. The worker now counts as running.
    Work(W, usize, WorkerRequest),
    /// No work is queued.
    Nothing,
    /// The worker must end: the queue is closed and empty, or there are too many workers.
    End,
}

impl<W> RunQueue<W> {
    pub(crate) fn new(worker_limit: usize) -> Self {
        let state = State {
            levels: std::array::from_fn(|_| VecDeque::with_capacity(LEAST_CAPACITY)),
            num_dequeues: 0,
            searching: 0,
            asleep: Vec::new(),
            workers: 0,
            blocked: Vec::new(),
            worker_limit,
            is_closed: false,
        };
        let state = Mutex::new(LockRank::RunQueue, state);
        Self { levels_with_work: AtomicU64::new(0), state }
    }

    /// Adds work. A closed or full queue returns the work.
    pub(crate) fn push(&self, level: usize, work: W) -> Result<WorkerRequest, PushError<W>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(PushError::Closed(work));
        }
        let queue = &state.levels[level];
        if queue.len() == queue.capacity() {
            return Err(PushError::Full(work));
        }
        state.levels[level].push_back(work);
        self.update_hint(&state);
        Ok(state.request_worker())
    }

    /// Removes and returns the unneeded work of a level, and reserves capacity for more. The caller
    /// then drops the returned work outside the lock.
    #[cold]
    pub(crate) fn purge(&self, level: usize, is_needed: impl Fn(&W) -> bool) -> VecDeque<W> {
        let mut state = self.state.lock();
        let queue = &mut state.levels[level];
        let (mut needed, unneeded): (VecDeque<W>, VecDeque<W>) =
            queue.drain(..).partition(is_needed);
        needed.reserve(needed.len().max(LEAST_CAPACITY));
        *queue = needed;
        self.update_hint(&state);
        unneeded
    }

    /// Takes work for a searching worker.
    pub(crate) fn take(&self) -> NextWork<W> {
        let mut state = self.state.lock();
        // The last searching worker must not end while work is queued: no other worker was woken.
        if state.has_surplus_workers() && (state.searching > 1 || !state.has_work()) {
            return state.end_searching_worker();
        }
        let Some((work, level)) = state.pop() else {
            return if state.is_closed { state.end_searching_worker() } else { NextWork::Nothing };
        };
        self.update_hint(&state);
        state.searching -= 1;
        let request = if state.has_work() { state.request_worker() } else { WorkerRequest::None };
        NextWork::Work(work, level, request)
    }

    /// Counts a running worker as searching, so pushes wake no other worker.
    pub(crate) fn begin_search(&self) {
        self.state.lock().searching += 1;
    }

    /// Counts a searching worker as running again, because it already holds work.
    pub(crate) fn stop_searching(&self) -> WorkerRequest {
        let mut state = self.state.lock();
        state.searching -= 1;
        if state.has_work() { state.request_worker() } else { WorkerRequest::None }
    }

    /// Counts a searching worker as asleep, unless work is queued, the queue is closed or there are
    /// too many workers. If true, the worker must now sleep on `sleeper`; its waker counts it as
    /// searching again.
    pub(crate) fn begin_sleep(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut state = self.state.lock();
        let sleeps = !state.has_work() && !state.is_closed && !state.has_surplus_workers();
        if sleeps {
            state.searching -= 1;
            state.asleep.push(Arc::clone(sleeper));
        }
        sleeps
    }

    /// Counts a worker as searching after a timed sleep. False if its waker has done so already.
    pub(crate) fn end_sleep(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut state = self.state.lock();
        let place = state.asleep.iter().position(|one| Arc::ptr_eq(one, sleeper));
        if let Some(place) = place {
            state.asleep.remove(place);
            state.searching += 1;
        }
        place.is_some()
    }

    /// A running worker calls this before it blocks inside a task. One more worker may then exist.
    pub(crate) fn begin_block(&self, worker: &Thread) -> WorkerRequest {
        let mut state = self.state.lock();
        state.blocked.push(worker.clone());
        if state.has_work() { state.request_worker() } else { WorkerRequest::None }
    }

    /// Removes a worker that no longer blocks from the blocked workers. That worker no longer
    /// retries failed worker starts, so this call requests a worker if work is queued.
    pub(crate) fn end_block(&self, worker: &Thread) -> WorkerRequest {
        let mut state = self.state.lock();
        let place = state.blocked.iter().rposition(|one| one.id() == worker.id());
        state.blocked.remove(place.expect("it has begun to block"));
        if state.has_work() { state.request_worker() } else { WorkerRequest::None }
    }

    /// A worker that blocks inside a task calls this to retry a failed start. Requests nothing if
    /// no work is queued or a worker is searching.
    pub(crate) fn retry_start(&self) -> WorkerRequest {
        let mut state = self.state.lock();
        if state.has_work() { state.request_worker() } else { WorkerRequest::None }
    }

    /// Counts a new worker, which begins by searching. False when the queue is closed.
    pub(crate) fn add_worker(&self) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.workers += 1;
            state.searching += 1;
        }
        !state.is_closed
    }

    /// Undoes the count of a worker whose start failed. For queued work, requests the wake of a
    /// sleeper or, if none sleeps, retries of the start by the blocked workers.
    pub(crate) fn start_failed(&self) -> WorkerRequest {
        let mut state = self.state.lock();
        state.workers -= 1;
        state.searching -= 1;
        if !state.has_work() {
            return WorkerRequest::None;
        }
        match state.wake() {
            WorkerRequest::None => WorkerRequest::RetryStart(state.blocked.clone()),
            wake => wake,
        }
    }

    /// Closes the queue to new work. The caller wakes the returned sleepers.
    pub(crate) fn close(&self) -> Vec<Arc<Sleeper>> {
        let mut state = self.state.lock();
        state.is_closed = true;
        let asleep = std::mem::take(&mut state.asleep);
        state.searching += asleep.len();
        asleep
    }

    /// Reads a hint, without the lock, whether work is queued.
    #[inline]
    pub(crate) fn may_have_work(&self) -> bool {
        // Relaxed, here and below: a hint. Every decision reads the queue under the lock.
        self.levels_with_work.load(Ordering::Relaxed) != 0
    }

    /// Reads a hint, without the lock, whether work more urgent than `level` is queued.
    #[inline]
    pub(crate) fn may_have_more_urgent(&self, level: usize) -> bool {
        self.levels_with_work.load(Ordering::Relaxed) & ((1 << level) - 1) != 0
    }

    fn update_hint(&self, state: &State<W>) {
        let bits = state.levels.iter().enumerate();
        let hint = bits.fold(0, |hint, (level, work)| hint | u64::from(!work.is_empty()) << level);
        self.levels_with_work.store(hint, Ordering::Relaxed);
    }
}

impl<W> State<W> {
    fn has_work(&self) -> bool {
        self.levels.iter().any(|level| !level.is_empty())
    }

    fn has_surplus_workers(&self) -> bool {
        self.workers > self.worker_limit + self.blocked.len()
    }

    fn end_searching_worker(&mut self) -> NextWork<W> {
        self.searching -= 1;
        self.workers -= 1;
        NextWork::End
    }

    fn pop(&mut self) -> Option<(W, usize)> {
        let has_work = |level: &usize| !self.levels[*level].is_empty();
        let is_fair_turn = (self.num_dequeues + 1).is_multiple_of(FAIR_PERIOD);
        let level = if is_fair_turn {
            (0..LEVELS).rev().find(has_work)?
        } else {
            (0..LEVELS).find(has_work)?
        };
        self.num_dequeues += 1;
        self.levels[level].pop_front().map(|work| (work, level))
    }

    /// Finds a worker for queued work. Counts the woken or started worker as searching.
    fn request_worker(&mut self) -> WorkerRequest {
        if self.searching > 0 {
            return WorkerRequest::None;
        }
        if !self.asleep.is_empty() {
            return self.wake();
        }
        if self.workers < self.worker_limit + self.blocked.len() {
            self.workers += 1;
            self.searching += 1;
            return WorkerRequest::Start;
        }
        WorkerRequest::None
    }

    /// Takes a sleeper, if any, off the list and counts it as searching. The caller must wake it.
    fn wake(&mut self) -> WorkerRequest {
        let Some(sleeper) = self.asleep.pop() else { return WorkerRequest::None };
        self.searching += 1;
        WorkerRequest::Wake(sleeper)
    }
}

impl<W> std::fmt::Debug for RunQueue<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("RunQueue")
            .field("waiting", &state.levels.each_ref().map(VecDeque::len))
            .field("searching", &state.searching)
            .field("asleep", &state.asleep.len())
            .field("workers", &state.workers)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) struct DeferredWork(Vec<Deferred>);

#[derive(Debug)]
struct Deferred {
    due: Instant,
    level: usize,
    work: Arc<dyn Work>,
}

impl DeferredWork {
    pub(super) fn defer(&mut self, level: usize, work: Arc<dyn Work>, period: Duration) {
        self.0.push(Deferred { due: Instant::now() + period, level, work });
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.iter().map(|entry| entry.due).min()
    }

    /// Removes work whose deferral is over. Returns the work and its level in the run queue.
    pub(super) fn take_due(&mut self) -> Option<(usize, Arc<dyn Work>)> {
        if self.0.is_empty() {
            return None; // saves a clock reading
        }
        let now = Instant::now();
        let place = self.0.iter().position(|entry| entry.due <= now)?;
        let Deferred { level, work, .. } = self.0.swap_remove(place);
        Some((level, work))
    }

    /// Removes all deferred work, each with its level in the run queue.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (usize, Arc<dyn Work>)> {
        self.0.drain(..).map(|Deferred { level, work, .. }| (level, work))
    }
}
