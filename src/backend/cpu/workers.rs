//! The worker threads of one cpu device: each runs work, searches for more, then sleeps.
//!
//! Workers start on demand. Their limit is the configured number, plus one for each worker that
//! blocks inside a task. They mask signals, so that the application's threads handle them.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::contract::{Leftover, Turn, Work};
#[cfg(all(test, not(loom)))]
use crate::backend::cpu::faults;
use crate::backend::cpu::properties::LastProcessor;
use crate::backend::cpu::run_queue::{DeferredWork, NextWork, PushError, RunQueue, WorkerRequest};
use crate::base::fork;
use crate::base::size::to_usize;
use crate::base::sync::unmodelled::{AtomicBool, AtomicU64};
use crate::base::sync::{
    LockRank, Mutex, MutexGuard, Ordering, Sleeper, Thread, current_thread, spin_hint, yield_now,
};
use crate::base::thread::{BlockingHook, WORKER_STACK_BYTES, set_hook, with_signals_blocked};

/// Longest search for work before a sleep; also the first search after a worker has run work.
const LONGEST_SEARCH: Duration = Duration::from_micros(50);

/// Shortest search. Each search without a result halves the next one, down to this.
const SHORTEST_SEARCH: Duration = Duration::from_micros(6);

/// A worker searches instead of sleeping if deferred work is due within this time.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);

/// Longest linger at an empty stream: the time per task of a typical producer in a pipeline.
const LONGEST_LINGER: Duration = Duration::from_micros(5);

/// Spins between two clock readings.
const SPINS_PER_READING: u32 = 16;

type Item = Arc<dyn Work>;

/// Work that no worker will run; the caller owns it again.
#[derive(Debug)]
pub(crate) enum SubmitError {
    /// The workers were shut down.
    Closed(Item),
    /// No worker exists, and the system has refused to start one.
    NoThread(Item, io::Error),
}

#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    queue: RunQueue<Item>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True after the first worker has started. At least one then exists until the shutdown.
    has_worker: AtomicBool,
    may_spin: bool,
    wakes: AtomicU64,
    started: AtomicU64,
    /// Workers inside a turn.
    running: AtomicU64,
    worker_limit: usize,
    /// The processor of the last submitting thread.
    submitter: LastProcessor,
}

impl Workers {
    /// Starts no thread; the first submission starts one.
    pub(crate) fn new(name: String, worker_limit: usize, cpu_count: usize) -> Self {
        let shared = Shared {
            name,
            queue: RunQueue::new(worker_limit),
            threads: Mutex::new(LockRank::Workers, Vec::new()),
            has_worker: AtomicBool::new(false),
            may_spin: cpu_count > 1,
            wakes: AtomicU64::new(0),
            started: AtomicU64::new(0),
            running: AtomicU64::new(0),
            worker_limit,
            submitter: LastProcessor::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Submits work to the workers; level 0 is the most urgent. Fails after the shutdown, and when
    /// no worker exists and none can be started. The next call then retries the start.
    pub(crate) fn submit(&self, level: usize, work: Item) -> Result<(), SubmitError> {
        Shared::submit(&self.shared, level, work)
    }

    /// The number of wakes of sleeping workers, and of workers started beyond the limit.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // Relaxed: statistics order nothing.
        let started = self.shared.started.load(Ordering::Relaxed);
        let spare = started.saturating_sub(self.shared.worker_limit as u64);
        (self.shared.wakes.load(Ordering::Relaxed), spare)
    }

    /// Closes the queue; workers end after the queued work. Returns the number of workers still
    /// inside a task at the deadline. Neither waits for nor counts the calling thread.
    pub(crate) fn shutdown(&self, deadline: Instant) -> Leftover {
        for sleeper in self.shared.queue.close() {
            sleeper.wake();
        }
        let own = thread::current().id();
        let threads = std::mem::take(&mut *self.shared.threads.lock());
        let (own, mut left): (Vec<_>, Vec<_>) =
            threads.into_iter().partition(|one| one.thread().id() == own);
        loop {
            let (finished, busy): (Vec<_>, Vec<_>) =
                left.into_iter().partition(JoinHandle::is_finished);
            for worker in finished {
                // The result is ignored: work never panics, since the engine catches users' panics.
                let _ = worker.join();
            }
            if busy.is_empty() {
                return Leftover::default();
            }
            if Instant::now() >= deadline {
                // Relaxed: a statistic, which excludes workers outside tasks.
                let running = to_usize(self.shared.running.load(Ordering::Relaxed));
                let left = Leftover { busy_threads: running.saturating_sub(own.len()) };
                self.shared.threads.lock().extend(busy); // for a later shutdown
                return left;
            }
            left = busy;
            thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Shared {
    fn submit(this: &Arc<Self>, level: usize, work: Item) -> Result<(), SubmitError> {
        this.submitter.record_current();
        // Acquire: pairs with the release store in `start_first`.
        let starting = if this.has_worker.load(Ordering::Acquire) {
            None
        } else {
            match Self::start_first(this) {
                Ok(threads) => Some(threads),
                Err(refusal) => return Err(SubmitError::NoThread(work, refusal)),
            }
        };
        let pushed = match this.queue.push(level, work) {
            Err(PushError::Full(work)) => this.push_to_full(level, work),
            pushed => pushed,
        };
        drop(starting);
        match pushed {
            Ok(request) => Self::fulfil(this, request),
            Err(PushError::Closed(work) | PushError::Full(work)) => {
                return Err(SubmitError::Closed(work));
            }
        }
        Ok(())
    }

    /// Adds work to a full queue. First drops the queued work that waiting threads have executed
    /// while all workers were inside long tasks.
    #[cold]
    fn push_to_full(&self, level: usize, mut work: Item) -> Result<WorkerRequest, PushError<Item>> {
        loop {
            // While the caller holds `threads` for a first start, the queue is empty, so this drops
            // nothing: `give_up` could wait for that lock.
            for unneeded in self.queue.purge(level, |work| work.is_needed()) {
                unneeded.give_up();
            }
            match self.queue.push(level, work) {
                Err(PushError::Full(same)) => work = same, // other threads filled it
                pushed => return pushed,
            }
        }
    }

    /// Starts the first worker before any work is queued, because queued work would depend on a
    /// thread that may fail to start. While the caller holds the returned lock, other submitters
    /// wait for the outcome, and the new worker waits for the first work instead of sleeping.
    #[cold]
    fn start_first(this: &Arc<Self>) -> io::Result<MutexGuard<'_, Vec<JoinHandle<()>>>> {
        let mut threads = this.threads.lock();
        // Relaxed: threads store it only under the lock, which this thread holds.
        if !this.has_worker.load(Ordering::Relaxed) && this.queue.add_worker() {
            match Self::spawn(this) {
                Ok(thread) => threads.push(thread),
                Err(refusal) => {
                    let _ = this.queue.start_failed(); // no request: nothing is queued yet
                    return Err(refusal);
                }
            }
            // Release: pairs with the acquire load in `submit`.
            this.has_worker.store(true, Ordering::Release);
        }
        Ok(threads)
    }

    fn fulfil(this: &Arc<Self>, request: WorkerRequest) {
        match request {
            WorkerRequest::None => {}
            WorkerRequest::Wake(sleeper) => {
                // Relaxed: a statistic orders nothing.
                this.wakes.fetch_add(1, Ordering::Relaxed);
                sleeper.wake();
            }
            WorkerRequest::Start => Self::fulfil(this, Self::start(this)),
            WorkerRequest::RetryStart(blocked) => blocked.iter().for_each(Thread::unpark),
        }
    }

    fn spawn(this: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        #[cfg(all(test, not(loom)))]
        if faults::should_fail() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        // Relaxed: a statistic orders nothing; the name needs only a unique number.
        let number = this.started.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(this);
        let name = format!("{}-{number}", this.name);
        let builder = thread::Builder::new().name(name).stack_size(WORKER_STACK_BYTES);
        with_signals_blocked(|| builder.spawn(move || Worker::new(shared).work_until_idle()))
            .inspect_err(|_| {
                this.started.fetch_sub(1, Ordering::Relaxed);
            })
    }

    /// Starts one more worker. If the thread cannot be started, a worker that wakes or ends its
    /// task takes the work. A blocked worker retries the start, as does the next submission while
    /// no worker is searching.
    fn start(this: &Arc<Self>) -> WorkerRequest {
        match Self::spawn(this) {
            Ok(thread) => {
                let mut threads = this.threads.lock();
                // Workers that have ended need no join.
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                WorkerRequest::None
            }
            Err(_) => this.queue.start_failed(),
        }
    }

    /// A worker that blocks inside a task calls this to retry a failed start if work is queued.
    /// True when the start fails again and no other worker can take the work.
    fn retry_start(this: &Arc<Self>) -> bool {
        let request = match this.queue.retry_start() {
            WorkerRequest::Start => Self::start(this),
            request => request,
        };
        // Wakes no other blocked worker: each retries by itself.
        let must_retry = matches!(request, WorkerRequest::RetryStart(_));
        if !must_retry {
            Self::fulfil(this, request);
        }
        must_retry
    }

    /// False when a search would delay the submitting thread: the system may have woken this worker
    /// on the submitter's processor, where the submitter cannot run during the search.
    fn may_search(&self) -> bool {
        self.may_spin && !self.submitter.is_current()
    }

    fn run(&self, work: Item, turn: &Turn<'_>) {
        // Relaxed, here and below: a statistic for `shutdown`.
        self.running.fetch_add(1, Ordering::Relaxed);
        work.run(turn);
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Polls, for at most [`LONGEST_LINGER`], for tasks of this turn's work and for other work.
    /// True when this turn's work has more. After false, the worker still counts as searching.
    fn linger(this: &Arc<Self>, has_more: &dyn Fn() -> bool) -> bool {
        if fork::is_child() {
            return false; // the task has forked, and this worker is about to end
        }
        this.queue.begin_search();
        let started = Instant::now();
        loop {
            for _ in 0..SPINS_PER_READING {
                if has_more() {
                    Self::fulfil(this, this.queue.stop_searching());
                    return true;
                }
                if this.queue.may_have_work() {
                    return false;
                }
                spin_hint();
            }
            if started.elapsed() >= LONGEST_LINGER {
                return false;
            }
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    sleeper: Arc<Sleeper>,
    search_time: Duration,
    /// Work that waiting threads may execute. Empty while this worker executes work.
    deferred: DeferredWork,
}

impl Worker {
    fn new(shared: Arc<Shared>) -> Self {
        set_hook(Arc::new(Hook(Arc::clone(&shared), current_thread())));
        let sleeper = Sleeper::new();
        Self { shared, sleeper, search_time: LONGEST_SEARCH, deferred: DeferredWork::default() }
    }

    fn work_until_idle(mut self) {
        let shared = Arc::clone(&self.shared);
        drop(shared.threads.lock()); // `start_first` holds the lock until the first work is queued
        // If a task forks, this is the child's only thread; the worker then ends.
        while !fork::is_child() {
            if let Some((level, work)) = self.deferred.take_due() {
                match self.defer_or_return(level, work) {
                    Some(work) if work.is_needed() => {
                        Shared::fulfil(&shared, shared.queue.stop_searching());
                        let search_time = self.search_time;
                        self.run(level, work);
                        self.search_time = search_time; // deferred work does not lengthen it
                    }
                    Some(work) => {
                        work.give_up(); // waiting threads have executed all of it, and went on
                        self.search_time = Duration::ZERO; // nothing to expect: sleeps at once
                    }
                    None => {}
                }
                continue;
            }
            match shared.queue.take() {
                NextWork::End => return self.requeue_deferred(),
                NextWork::Work(work, level, request) => {
                    Shared::fulfil(&shared, request);
                    match self.defer_or_return(level, work) {
                        Some(work) => self.run(level, work),
                        None => shared.queue.begin_search(),
                    }
                }
                NextWork::Nothing if self.search() => {}
                NextWork::Nothing => self.sleep(),
            }
        }
    }

    /// Returns the work, or defers it for a while in favour of waiting threads.
    fn defer_or_return(&mut self, level: usize, work: Item) -> Option<Item> {
        match work.leave_for() {
            None => Some(work),
            Some(period) => {
                self.deferred.defer(level, work, period);
                None
            }
        }
    }

    /// Runs work in a turn that may linger. The worker then counts as searching.
    fn run(&mut self, level: usize, work: Item) {
        self.requeue_deferred(); // for other workers, since the run may take long
        let shared = &self.shared;
        let must_yield = || shared.queue.may_have_more_urgent(level);
        let others_wait = || shared.queue.may_have_work();
        let is_searching = Cell::new(false);
        let linger = |has_more: &dyn Fn() -> bool| {
            is_searching.set(shared.may_search() && !Shared::linger(shared, has_more));
            !is_searching.get()
        };
        let turn = Turn::new(&must_yield, &others_wait).with_linger(&linger);
        shared.run(work, &turn);
        if !is_searching.get() && !fork::is_child() {
            shared.queue.begin_search();
        }
        self.search_time = LONGEST_SEARCH;
    }

    /// Returns the deferred work to the run queue.
    fn requeue_deferred(&mut self) {
        for (level, work) in self.deferred.take_all() {
            if let Err(SubmitError::Closed(work) | SubmitError::NoThread(work, _)) =
                Shared::submit(&self.shared, level, work)
            {
                self.shared.run(work, &Turn::unshared()); // no worker will run it
            }
        }
    }

    /// Spins for a limited time. True when work may be queued or deferred work is due.
    fn search(&self) -> bool {
        if !self.shared.may_search() {
            return self.yield_processor();
        }
        let started = Instant::now();
        let mut end = started + self.search_time;
        if let Some(due) = self.deferred.next_due() {
            // A sleep until `due` would last longer than requested: search until then instead.
            end = if due - started <= SHORTEST_SLEEP { due } else { due.min(end) };
        }
        while Instant::now() < end {
            for _ in 0..SPINS_PER_READING {
                if self.shared.queue.may_have_work() {
                    return true;
                }
                spin_hint();
            }
        }
        self.deferred.next_due().is_some_and(|due| due <= end)
    }

    /// Replaces a search that would delay the submitter. With deferred work, yields the processor,
    /// because a short sleep would end in the submitter's time slice. True when another thread ran.
    fn yield_processor(&self) -> bool {
        if self.deferred.next_due().is_none() {
            return false;
        }
        let started = Instant::now();
        yield_now();
        started.elapsed() >= SHORTEST_SLEEP
    }

    /// Sleeps until work arrives or deferred work is due.
    fn sleep(&mut self) {
        self.search_time = (self.search_time / 2).max(SHORTEST_SEARCH);
        let (queue, sleeper) = (&self.shared.queue, &self.sleeper);
        if !queue.begin_sleep(sleeper) {
            return;
        }
        match self.deferred.next_due() {
            Some(due) if sleeper.sleep_until(due) || queue.end_sleep(sleeper) => {}
            _ => sleeper.sleep(), // ends soon if another thread is waking this worker
        }
    }
}

/// Informs the run queue when a worker blocks inside a task.
struct Hook(Arc<Shared>, Thread);

impl BlockingHook for Hook {
    fn begin(&self) {
        debug_assert_eq!(current_thread().id(), self.1.id());
        Shared::fulfil(&self.0, self.0.queue.begin_block(&self.1));
    }

    fn end(&self) {
        Shared::fulfil(&self.0, self.0.queue.end_block(&self.1));
    }

    fn try_again(&self) -> bool {
        // Makes no retry in a forked child, where a thread of the parent may hold a lock for ever.
        !fork::is_child() && Shared::retry_start(&self.0)
    }
}
