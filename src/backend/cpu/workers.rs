//! The worker threads of one cpu device: look, run, look, sleep.
//!
//! Workers are started as work asks for them, up to the configured number, and one more for each
//! that blocks inside a task. They block signals, which are the main thread's business.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::contract::{Leftover, Turn, Work};
#[cfg(all(test, not(loom)))]
use crate::backend::cpu::faults;
use crate::backend::cpu::left_work::LeftWork;
use crate::backend::cpu::processor::LastProcessor;
use crate::backend::cpu::run_queue::{Help, NextWork, RunQueue, Unpushed};
use crate::base::blocking::{BlockingHook, set_hook};
use crate::base::fork;
use crate::base::signals::with_signals_blocked;
use crate::base::size::to_usize;
use crate::base::stack::WORKER_STACK_BYTES;
use crate::base::sync::unmodelled::{AtomicBool, AtomicU64};
use crate::base::sync::{LockRank, Mutex, MutexGuard, Ordering, Sleeper, Thread};
use crate::base::sync::{current_thread, spin_hint, yield_now};

/// Longest time that a worker looks for work before it sleeps.
const LONGEST_LOOK: Duration = Duration::from_micros(50);

/// Shortest such time, for a worker whose recent looks found nothing.
const SHORTEST_LOOK: Duration = Duration::from_micros(6);

/// A worker stays awake for entries that are due within this time.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);

/// Longest linger at a stream that has run empty: the time a pipeline's producer needs per task.
const LONGEST_LINGER: Duration = Duration::from_micros(5);

/// Spins between two readings of the clock.
const SPINS_PER_READING: u32 = 16;

type Item = Arc<dyn Work>;

/// Work that no worker will run, given back.
#[derive(Debug)]
pub(crate) enum Unsubmitted {
    /// The workers were shut down.
    Closed(Item),
    /// There is no worker, and the system starts none.
    NoThread(Item, io::Error),
}

/// The workers of one device.
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    queue: RunQueue<Item>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True when the first worker was started: from then on there is one, until the shutdown.
    has_worker: AtomicBool,
    may_spin: bool,
    wakes: AtomicU64,
    started: AtomicU64,
    /// Workers inside a turn.
    running: AtomicU64,
    worker_limit: usize,
    /// The processor that submitted work last.
    submitter: LastProcessor,
}

impl Workers {
    /// No thread is started before there is work.
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

    /// Has work run by a worker; a level of 0 goes first. Gives it back after the shutdown, and
    /// while there is no worker at all and none can be started: the next call tries again.
    pub(crate) fn submit(&self, level: usize, work: Item) -> Result<(), Unsubmitted> {
        Shared::submit(&self.shared, level, work)
    }

    /// Sleeping workers woken so far, and workers started beyond the limit.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // Relaxed: figures order nothing.
        let started = self.shared.started.load(Ordering::Relaxed);
        let spare = started.saturating_sub(self.shared.worker_limit as u64);
        (self.shared.wakes.load(Ordering::Relaxed), spare)
    }

    /// Ends the workers after the work that is queued. Those inside user code at the deadline are
    /// left alone and counted; the calling thread is neither waited for nor counted.
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
                // Work never panics: the code that runs user code catches.
                let _ = worker.join();
            }
            if busy.is_empty() {
                return Leftover::default();
            }
            if Instant::now() >= deadline {
                // Relaxed: a figure. A worker that is only slow to end is not inside a task.
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
    fn submit(this: &Arc<Self>, level: usize, work: Item) -> Result<(), Unsubmitted> {
        this.submitter.note();
        // Acquire: pairs with `start_first`.
        let starting = if this.has_worker.load(Ordering::Acquire) {
            None
        } else {
            match Self::start_first(this) {
                Ok(threads) => Some(threads),
                Err(refusal) => return Err(Unsubmitted::NoThread(work, refusal)),
            }
        };
        let pushed = match this.queue.push(level, work) {
            Err(Unpushed::Full(work)) => this.push_to_full(level, work),
            pushed => pushed,
        };
        drop(starting);
        match pushed {
            Ok(help) => Self::give(this, help),
            Err(Unpushed::Closed(work) | Unpushed::Full(work)) => {
                return Err(Unsubmitted::Closed(work));
            }
        }
        Ok(())
    }

    /// Adds work when the queue is full. While the workers are inside long tasks, waiting threads
    /// execute other streams, which may be gone by now: the queue then drops their work.
    #[cold]
    fn push_to_full(&self, level: usize, mut work: Item) -> Result<Help, Unpushed<Item>> {
        loop {
            // Not while the first worker is being started, under a lock: nothing is there yet.
            for unneeded in self.queue.make_room(level, |work| work.is_needed()) {
                unneeded.give_up();
            }
            match self.queue.push(level, work) {
                Err(Unpushed::Full(same)) => work = same, // others were faster
                pushed => return pushed,
            }
        }
    }

    /// Starts the first worker before there is work: work that others submit meanwhile would count
    /// on a thread that may not come. They wait until this worker is there or refused, and the
    /// worker waits until the lock is released: it would find nothing, and sleep.
    #[cold]
    fn start_first(this: &Arc<Self>) -> io::Result<MutexGuard<'_, Vec<JoinHandle<()>>>> {
        let mut threads = this.threads.lock();
        // Relaxed: written under the lock.
        if !this.has_worker.load(Ordering::Relaxed) && this.queue.add_worker() {
            match Self::spawn(this) {
                Ok(thread) => threads.push(thread),
                Err(refusal) => {
                    let _ = this.queue.start_failed(); // nothing is queued yet
                    return Err(refusal);
                }
            }
            // Release: pairs with `submit`.
            this.has_worker.store(true, Ordering::Release);
        }
        Ok(threads)
    }

    fn give(this: &Arc<Self>, help: Help) {
        match help {
            Help::None => {}
            Help::Wake(sleeper) => {
                // Relaxed: a figure orders nothing.
                this.wakes.fetch_add(1, Ordering::Relaxed);
                sleeper.wake();
            }
            Help::Start => Self::give(this, Self::start(this)),
            Help::Owe(blocked) => blocked.iter().for_each(Thread::unpark),
        }
    }

    fn spawn(this: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        #[cfg(all(test, not(loom)))]
        if faults::is_due() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        // Relaxed: a figure orders nothing, and a name needs only be unique.
        let number = this.started.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(this);
        let name = format!("{}-{number}", this.name);
        let builder = thread::Builder::new().name(name).stack_size(WORKER_STACK_BYTES);
        with_signals_blocked(|| builder.spawn(move || Worker::new(shared).work_until_idle()))
            .inspect_err(|_| {
                this.started.fetch_sub(1, Ordering::Relaxed);
            })
    }

    /// Starts one more worker. When that is refused, the existing workers do the work: one that is
    /// asleep, one that comes out of its task, or one that a blocked worker starts when it tries
    /// again. The next work that no worker looks for asks again, too.
    fn start(this: &Arc<Self>) -> Help {
        match Self::spawn(this) {
            Ok(thread) => {
                let mut threads = this.threads.lock();
                // Workers that ended on their own need no join.
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                Help::None
            }
            Err(_) => this.queue.start_failed(),
        }
    }

    /// For a worker that blocks inside a task: starts a worker that was refused, if work still
    /// waits for it. True when it is refused again.
    fn start_again(this: &Arc<Self>) -> bool {
        let help = match this.queue.ask_again() {
            Help::Start => Self::start(this),
            help => help,
        };
        // The other blocked workers try by themselves.
        let is_owed = matches!(help, Help::Owe(_));
        if !is_owed {
            Self::give(this, help);
        }
        is_owed
    }

    /// True when looking keeps no thread from submitting. The system wakes a worker on the
    /// submitter's own processor when others seem busy; that thread then waits until the worker
    /// sleeps.
    fn may_look(&self) -> bool {
        self.may_spin && !self.submitter.is_current()
    }

    /// Executes work.
    fn run(&self, work: Item, turn: &Turn<'_>) {
        // Relaxed, here and below: a figure that a shutdown reads.
        self.running.fetch_add(1, Ordering::Relaxed);
        work.run(turn);
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Looks, in the middle of a turn, for more of the same work and for other work. False when the
    /// worker goes on looking: it found nothing, or there is other work.
    fn linger(this: &Arc<Self>, has_more: &dyn Fn() -> bool) -> bool {
        this.queue.look();
        let started = Instant::now();
        loop {
            for _ in 0..SPINS_PER_READING {
                if has_more() {
                    Self::give(this, this.queue.stop_looking());
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

/// One worker, on its thread.
struct Worker {
    shared: Arc<Shared>,
    sleeper: Arc<Sleeper>,
    /// For how long it looks before a sleep.
    look: Duration,
    /// Work that it leaves to waiting threads. It executes nothing while it has any.
    left: LeftWork,
}

impl Worker {
    fn new(shared: Arc<Shared>) -> Self {
        set_hook(Arc::new(Hook(Arc::clone(&shared), current_thread())));
        let sleeper = Sleeper::new();
        Self { shared, sleeper, look: LONGEST_LOOK, left: LeftWork::default() }
    }

    /// Looks, runs, looks, sleeps.
    fn work_until_idle(mut self) {
        let shared = Arc::clone(&self.shared);
        drop(shared.threads.lock()); // the first one's work is on its way
        // A child that a task forked has this thread alone, and ends with it.
        while !fork::is_child() {
            if let Some((level, work)) = self.left.take_due() {
                if let Some(work) = self.unless_left(level, work) {
                    Shared::give(&shared, shared.queue.stop_looking());
                    let look = self.look;
                    self.run(level, work);
                    self.look = look; // the other threads have stopped: no more work is expected
                }
                continue;
            }
            match shared.queue.take() {
                NextWork::End => return self.give_back(),
                NextWork::Work(work, level, help) => {
                    Shared::give(&shared, help);
                    match self.unless_left(level, work) {
                        Some(work) => self.run(level, work),
                        None => shared.queue.look(),
                    }
                }
                NextWork::Nothing if self.look() => {}
                NextWork::Nothing => self.sleep(),
            }
        }
    }

    /// Returns the work, unless it is left to waiting threads for a while.
    fn unless_left(&mut self, level: usize, work: Item) -> Option<Item> {
        match work.leave_for() {
            None => Some(work),
            Some(period) => {
                self.left.keep(level, work, period);
                None
            }
        }
    }

    /// Runs work, then looks.
    fn run(&mut self, level: usize, work: Item) {
        self.give_back(); // it may take long
        let shared = &self.shared;
        let must_yield = || shared.queue.may_have_more_urgent(level);
        let others_wait = || shared.queue.may_have_work();
        let is_looking = Cell::new(false);
        let linger = |has_more: &dyn Fn() -> bool| {
            is_looking.set(shared.may_look() && !Shared::linger(shared, has_more));
            !is_looking.get()
        };
        let turn = Turn::new(&must_yield, &others_wait).with_linger(&linger);
        shared.run(work, &turn);
        if !is_looking.get() {
            shared.queue.look();
        }
        self.look = LONGEST_LOOK;
    }

    /// Returns the work that it leaves to waiting threads to the run queue.
    fn give_back(&mut self) {
        for (level, work) in self.left.take_all() {
            if let Err(Unsubmitted::Closed(work) | Unsubmitted::NoThread(work, _)) =
                Shared::submit(&self.shared, level, work)
            {
                self.shared.run(work, &Turn::unshared()); // the queue is closed
            }
        }
    }

    /// Looks for work; true when there may be some.
    fn look(&self) -> bool {
        if !self.shared.may_look() {
            return self.give_way();
        }
        let started = Instant::now();
        let mut end = started + self.look;
        if let Some(due) = self.left.next_due() {
            // A sleep until then would be longer.
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
        self.left.next_due().is_some_and(|due| due <= end)
    }

    /// Where it may not look: yields to the thread that submits, if that has this processor. A
    /// sleep would end in the middle of that thread's turn. False when no thread went on.
    fn give_way(&self) -> bool {
        if self.left.next_due().is_none() {
            return false;
        }
        let started = Instant::now();
        yield_now();
        started.elapsed() >= SHORTEST_SLEEP
    }

    /// Sleeps until there is work, or until an entry is due.
    fn sleep(&mut self) {
        self.look = (self.look / 2).max(SHORTEST_LOOK);
        let (queue, sleeper) = (&self.shared.queue, &self.sleeper);
        if !queue.begin_sleep(sleeper) {
            return;
        }
        match self.left.next_due() {
            Some(due) if sleeper.sleep_until(due) || queue.end_sleep(sleeper) => {}
            _ => sleeper.sleep(), // also where a wake is on its way
        }
    }
}

/// Told when a worker blocks inside a task.
struct Hook(Arc<Shared>, Thread);

impl BlockingHook for Hook {
    fn begin(&self) {
        debug_assert_eq!(current_thread().id(), self.1.id());
        Shared::give(&self.0, self.0.queue.begin_block(&self.1));
    }

    fn end(&self) {
        Shared::give(&self.0, self.0.queue.end_block(&self.1));
    }

    fn try_again(&self) -> bool {
        // In a child that a task forked, a thread that is not there may hold a lock.
        !fork::is_child() && Shared::start_again(&self.0)
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("queue", &self.shared.queue).finish_non_exhaustive()
    }
}
