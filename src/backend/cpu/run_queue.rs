//! The run queue of one cpu device: runnable work by priority, and its workers' states.
//!
//! A worker is *looking*, *running* or *asleep*. One lock covers the work, the counts and the list
//! of sleepers, so a worker that goes to sleep and a producer that adds work cannot miss each
//! other. Work that arrives while no worker looks wakes one sleeper, which counts as looking from
//! that moment, or asks for one more worker. A worker that takes work and leaves more behind does
//! the same when no other worker looks. So each idle→runnable edge costs at most one wake.
//!
//! Urgent work goes first; so that a flood of it does not starve the rest for ever, one dequeue in
//! 61 takes the least urgent work there is.
//!
//! Work that a waiting thread has executed meanwhile stays until a worker comes, or until the queue
//! is full: unneeded work is then removed before the queue grows.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::sync::{AtomicU64, LockRank, Mutex, Ordering, Sleeper, Thread};

/// Priorities of the cpu device: index 0 is the most urgent.
pub(crate) const LEVELS: usize = 3;

/// One dequeue in this many takes the least urgent work. A prime, as in Go's scheduler, so that it
/// does not run in step with periodic work.
const FAIR_PERIOD: u64 = 61;

/// Least capacity for the work of one level.
const LEAST_ROOM: usize = 16;

/// Work waiting for a worker.
pub(crate) struct RunQueue<W> {
    /// Bit per level with work. Written under the lock; a hint without it.
    levels_with_work: AtomicU64,
    state: Mutex<State<W>>,
}

struct State<W> {
    levels: [VecDeque<W>; LEVELS],
    takings: u64,
    looking: usize,
    asleep: Vec<Arc<Sleeper>>,
    /// Workers that exist or are being started.
    workers: usize,
    /// Workers blocked inside tasks: as many more may exist.
    blocked: Vec<Thread>,
    worker_limit: usize,
    is_closed: bool,
}

/// The caller's task after a change, without the lock.
#[must_use]
pub(crate) enum Help {
    /// Nothing: a worker is looking.
    None,
    /// Wake this worker.
    Wake(Arc<Sleeper>),
    /// Start one more worker, which begins by looking.
    Start,
    /// None could be started. Unpark these workers, which block inside tasks and have time to
    /// [try again](RunQueue::ask_again).
    Owe(Vec<Thread>),
}

/// Why work was not added. It is given back.
#[derive(Debug)]
pub(crate) enum Unpushed<W> {
    /// The queue is closed.
    Closed(W),
    /// There is no room: see [`RunQueue::make_room`].
    Full(W),
}

/// The result of a worker's look.
pub(crate) enum NextWork<W> {
    /// Work of a level; the worker is running now.
    Work(W, usize, Help),
    /// Nothing.
    Nothing,
    /// The worker ends: the queue is closed and empty, or there are more workers than needed.
    End,
}

impl<W> RunQueue<W> {
    pub(crate) fn new(worker_limit: usize) -> Self {
        let state = State {
            levels: std::array::from_fn(|_| VecDeque::with_capacity(LEAST_ROOM)),
            takings: 0,
            looking: 0,
            asleep: Vec::new(),
            workers: 0,
            blocked: Vec::new(),
            worker_limit,
            is_closed: false,
        };
        let state = Mutex::new(LockRank::RunQueue, state);
        Self { levels_with_work: AtomicU64::new(0), state }
    }

    /// Adds work. Gives it back after the close, and where there is no room.
    pub(crate) fn push(&self, level: usize, work: W) -> Result<Help, Unpushed<W>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Unpushed::Closed(work));
        }
        let queue = &state.levels[level];
        if queue.len() == queue.capacity() {
            return Err(Unpushed::Full(work));
        }
        state.levels[level].push_back(work);
        self.update_hint(&state);
        Ok(state.help())
    }

    /// Makes room on a level, for as much as is needed there now. Returns the unneeded work, to be
    /// dropped without the lock.
    #[cold]
    pub(crate) fn make_room(&self, level: usize, is_needed: impl Fn(&W) -> bool) -> VecDeque<W> {
        let mut state = self.state.lock();
        let queue = &mut state.levels[level];
        let (mut needed, unneeded): (VecDeque<W>, VecDeque<W>) =
            queue.drain(..).partition(is_needed);
        needed.reserve(needed.len().max(LEAST_ROOM));
        *queue = needed;
        self.update_hint(&state);
        unneeded
    }

    /// A looking worker asks for work.
    pub(crate) fn take(&self) -> NextWork<W> {
        let mut state = self.state.lock();
        // The last looking worker stays while there is work: no other worker was woken for it.
        if state.has_surplus_workers() && (state.looking > 1 || !state.has_work()) {
            return state.end_looking_worker();
        }
        let Some((work, level)) = state.pop() else {
            return if state.is_closed { state.end_looking_worker() } else { NextWork::Nothing };
        };
        self.update_hint(&state);
        state.looking -= 1;
        let help = if state.has_work() { state.help() } else { Help::None };
        NextWork::Work(work, level, help)
    }

    /// A worker that ran something looks again.
    pub(crate) fn look(&self) {
        self.state.lock().looking += 1;
    }

    /// A looking worker goes on with the work it has.
    pub(crate) fn stop_looking(&self) -> Help {
        let mut state = self.state.lock();
        state.looking -= 1;
        if state.has_work() { state.help() } else { Help::None }
    }

    /// A looking worker goes to sleep, unless there is work or the queue is closed. True when it
    /// must sleep on `sleeper` now; when woken, it is looking.
    pub(crate) fn begin_sleep(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut state = self.state.lock();
        let sleeps = !state.has_work() && !state.is_closed && !state.has_surplus_workers();
        if sleeps {
            state.looking -= 1;
            state.asleep.push(Arc::clone(sleeper));
        }
        sleeps
    }

    /// A worker looks again after a timed sleep; false when another thread is about to wake it.
    pub(crate) fn end_sleep(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut state = self.state.lock();
        let place = state.asleep.iter().position(|one| Arc::ptr_eq(one, sleeper));
        if let Some(place) = place {
            state.asleep.remove(place);
            state.looking += 1;
        }
        place.is_some()
    }

    /// A running worker, the calling thread, blocks inside a task.
    pub(crate) fn begin_block(&self, worker: &Thread) -> Help {
        let mut state = self.state.lock();
        state.blocked.push(worker.clone());
        if state.has_work() { state.help() } else { Help::None }
    }

    /// It goes on. Where a start was refused it may have been the only one that tried again.
    pub(crate) fn end_block(&self, worker: &Thread) -> Help {
        let mut state = self.state.lock();
        let place = state.blocked.iter().rposition(|one| one.id() == worker.id());
        state.blocked.remove(place.expect("it has begun to block"));
        if state.has_work() { state.help() } else { Help::None }
    }

    /// A worker that blocks inside a task asks for help that is owed: none, unless a start was
    /// refused and the work that needed it is still there.
    pub(crate) fn ask_again(&self) -> Help {
        let mut state = self.state.lock();
        if state.has_work() { state.help() } else { Help::None }
    }

    /// One more worker is being started, and begins by looking. False after the close.
    pub(crate) fn add_worker(&self) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.workers += 1;
            state.looking += 1;
        }
        !state.is_closed
    }

    /// A worker that [`Help::Start`] or [`RunQueue::add_worker`] counted could not be started. One
    /// that is asleep takes the work instead; else it is owed.
    pub(crate) fn start_failed(&self) -> Help {
        let mut state = self.state.lock();
        state.workers -= 1;
        state.looking -= 1;
        if !state.has_work() {
            return Help::None;
        }
        match state.wake() {
            Help::None => Help::Owe(state.blocked.clone()),
            wake => wake,
        }
    }

    /// No more work. The caller wakes the sleepers.
    pub(crate) fn close(&self) -> Vec<Arc<Sleeper>> {
        let mut state = self.state.lock();
        state.is_closed = true;
        let asleep = std::mem::take(&mut state.asleep);
        state.looking += asleep.len();
        asleep
    }

    /// True when there may be work; a hint.
    #[inline]
    pub(crate) fn may_have_work(&self) -> bool {
        // Relaxed, here and below: a hint; decisions are made under the lock.
        self.levels_with_work.load(Ordering::Relaxed) != 0
    }

    /// True when there may be work more urgent than a level; a hint.
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

    fn end_looking_worker(&mut self) -> NextWork<W> {
        self.looking -= 1;
        self.workers -= 1;
        NextWork::End
    }

    fn pop(&mut self) -> Option<(W, usize)> {
        let has_work = |level: &usize| !self.levels[*level].is_empty();
        let is_fair_turn = (self.takings + 1).is_multiple_of(FAIR_PERIOD);
        let level = if is_fair_turn {
            (0..LEVELS).rev().find(has_work)?
        } else {
            (0..LEVELS).find(has_work)?
        };
        self.takings += 1;
        self.levels[level].pop_front().map(|work| (work, level))
    }

    /// Finds a worker for the work. A worker that is woken or started counts as looking from now
    /// on.
    fn help(&mut self) -> Help {
        if self.looking > 0 {
            return Help::None;
        }
        if !self.asleep.is_empty() {
            return self.wake();
        }
        if self.workers < self.worker_limit + self.blocked.len() {
            self.workers += 1;
            self.looking += 1;
            return Help::Start;
        }
        Help::None
    }
}

impl<W> State<W> {
    /// Takes one sleeper, if there is one.
    fn wake(&mut self) -> Help {
        let Some(sleeper) = self.asleep.pop() else { return Help::None };
        self.looking += 1;
        Help::Wake(sleeper)
    }
}

impl<W> std::fmt::Debug for RunQueue<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("RunQueue")
            .field("waiting", &state.levels.each_ref().map(VecDeque::len))
            .field("looking", &state.looking)
            .field("asleep", &state.asleep.len())
            .field("workers", &state.workers)
            .finish_non_exhaustive()
    }
}
