//! The host threads: the pool that calls the Python callables of `launch_host`.
//!
//! A callable is queued when it reaches the head of its stream, which keeps the stream's order. One
//! thread *serves* the queue while its callables end soon, because several that compute would only
//! compete for the GIL. A second thread *watches* it. When no callable has ended for a while, and
//! no host thread waits for the GIL, the serving thread counts as *blocked*, and the watcher serves
//! in its place. So a callable that sleeps holds back its own stream alone, up to the number of
//! threads. Threads that find nothing to do rest, and end after a while, except one.
//!
//! A thread takes the GIL for a batch of callables. Callables and destructors on host threads must
//! not wait for unfinished work, because other threads wait for host threads. The reaper, not a
//! host thread, drops parked objects.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};
use std::{io, thread};

use accelrt::internal::{LockRank, Mutex, Sleeper, WORKER_STACK_BYTES, fork};
use accelrt::{Completion, Runtime};
use crossbeam_queue::SegQueue;
use pyo3::prelude::*;

use crate::launch::event_callback::{self, EventCallback};
use crate::launch::host_task::HostTask;
use crate::support::deferred_drops::drop_parked;
use crate::support::host_thread::forbid_waits;
use crate::support::reaper;
use crate::support::turns::Turns;

/// A thread releases the GIL after this many callables, because a callable in C may not do so.
const BATCH: usize = 64;
/// The time without the end of a callable after which the serving thread counts as blocked.
const PATIENCE: Duration = Duration::from_millis(1);
/// The time after which a resting thread ends.
const REST: Duration = Duration::from_secs(1);
/// The default number of threads is the number of cores and this, within these bounds.
const MORE_THAN_CORES: usize = 4;
const DEFAULT_THREADS: RangeInclusive<usize> = 8..=32;

static TURNS: Turns = Turns::new();
static READY: SegQueue<Ready> = SegQueue::new();
static POOL: Mutex<Pool> = Mutex::new(LockRank::Bindings, Pool::new());
static LIMIT: OnceLock<usize> = OnceLock::new();

/// True when a thread will look at the queue after this moment: a woken one, or a watcher.
static IS_ATTENDED: AtomicBool = AtomicBool::new(false);
/// The number of callables that ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// How often a serving thread was declared blocked. Changes under the lock of the pool.
static BLOCKED: AtomicU64 = AtomicU64::new(1);
/// The number of the service whose thread is inside a callable; 0 while no thread is. A number
/// other than the current service's has no meaning: see [`Service::is_calling`].
static CALLING: AtomicU64 = AtomicU64::new(0);
/// The threads that wait for the GIL before a batch.
static ATTACHING: AtomicUsize = AtomicUsize::new(0);

/// What a host thread calls.
enum Ready {
    Task(HostTask, Completion),
    /// The record may be done.
    Callback(EventCallback),
}

struct Pool {
    threads: usize,
    /// True while a thread serves the queue that is not blocked.
    is_served: bool,
    is_watched: bool,
    /// The threads that were woken or started, and have no part yet.
    waking: usize,
    /// The resting threads, the last one on top.
    resting: Vec<Arc<Sleeper>>,
}

/// The service of one thread: the value of [`BLOCKED`] at its begin, above 0. Another value means
/// that the thread was declared blocked.
#[derive(Clone, Copy, PartialEq)]
struct Service(u64);

impl Service {
    fn current() -> Self {
        Self(BLOCKED.load(Ordering::Relaxed)) // changes under the pool's lock; else a hint
    }

    /// Calls a callable. Meanwhile another thread looks at the queue.
    fn call<T>(self, callable: impl FnOnce() -> T) -> T {
        // SeqCst: this thread stores its number and then reads the queue. A posting thread pushes
        // to the queue and then reads the number in `is_calling`. At least one of the two therefore
        // sees the other's write.
        CALLING.store(self.0, Ordering::SeqCst);
        if !READY.is_empty() {
            attend();
        }
        let outcome = callable();
        // Relaxed, both: a reader that sees the old number only wakes a thread without need. After
        // this thread was declared blocked, the exchange fails if the next service has stored its
        // number, which must stay.
        let _ = CALLING.compare_exchange(self.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        outcome
    }

    /// True when the serving thread is inside a callable. If it is not, it reads the queue before
    /// it next calls a callable or rests.
    fn is_calling() -> bool {
        // SeqCst: pairs with `call`.
        CALLING.load(Ordering::SeqCst) == Self::current().0
    }
}

impl Pool {
    const fn new() -> Self {
        Self { threads: 0, is_served: false, is_watched: false, waking: 0, resting: Vec::new() }
    }

    /// Makes the calling thread serve.
    fn begin_service(&mut self) -> Part {
        self.is_served = true;
        Part::Serve(Service::current())
    }

    /// Returns the part of a woken or started thread.
    fn enter(&mut self, sleeper: &Arc<Sleeper>) -> Part {
        self.waking -= 1;
        self.choose_part(sleeper)
    }

    /// Returns what a thread does that has no part so far, while a callable may be ready.
    fn choose_part(&mut self, sleeper: &Arc<Sleeper>) -> Part {
        if !self.is_served {
            return self.begin_service();
        }
        if self.is_watched {
            return self.begin_rest(sleeper);
        }
        self.is_watched = true;
        Part::Watch
    }

    fn begin_rest(&mut self, sleeper: &Arc<Sleeper>) -> Part {
        self.resting.push(Arc::clone(sleeper));
        Part::Rest
    }
}

/// What a host thread does next.
enum Part {
    Serve(Service),
    Watch,
    Rest,
    End,
}

/// Starts the first thread at the first call. The caller holds the GIL, which prevents a second
/// start. `limit` is the setting for the number of threads.
pub(crate) fn ensure_started(limit: Option<usize>) -> io::Result<()> {
    if LIMIT.get().is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (least, most) = DEFAULT_THREADS.into_inner();
        let default = (cores + MORE_THAN_CORES).clamp(least, most);
        start()?;
        let _ = LIMIT.set(limit.unwrap_or(default));
    }
    Ok(())
}

fn start() -> io::Result<()> {
    let count = |change: fn(&mut usize)| {
        let mut pool = POOL.lock();
        change(&mut pool.threads);
        change(&mut pool.waking);
    };
    count(|threads| *threads += 1);
    let builder = Builder::new().name("accelrt-python".to_owned()).stack_size(WORKER_STACK_BYTES);
    let started = builder.spawn(run);
    if started.is_err() {
        count(|threads| *threads -= 1);
    }
    started.map(drop)
}

/// Queues a callable that has reached the head of its stream. The thread that executes the stream
/// calls this, with or without the GIL.
pub(crate) fn post(task: HostTask, completion: Completion) {
    READY.push(Ready::Task(task, completion));
    attend();
}

/// Queues a callback whose record may be done. Any thread calls this, with or without the GIL.
pub(crate) fn post_callback(callback: EventCallback) {
    READY.push(Ready::Callback(callback));
    attend();
}

/// Makes sure that a thread looks at the queue after this call.
fn attend() {
    // AcqRel: pairs with the swaps in `unattend`: a thread that clears the flag finds what was
    // queued before this swap.
    if IS_ATTENDED.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut pool = POOL.lock();
    if pool.waking > 0 || pool.is_served && pool.is_watched {
        return; // that thread attends
    }
    if pool.is_served && !Service::is_calling() {
        return unattend();
    }
    if let Some(resting) = pool.resting.pop() {
        pool.waking += 1;
        drop(pool); // before the woken thread takes the lock
        return resting.wake();
    }
    let may_start = LIMIT.get().is_some_and(|limit| pool.threads < *limit);
    drop(pool);
    if !may_start || start().is_err() {
        unattend(); // a thread that ends its callable looks at the queue
    }
}

fn unattend() {
    IS_ATTENDED.swap(false, Ordering::AcqRel); // AcqRel: pairs with `attend`
}

/// The life of a host thread.
fn run() {
    forbid_waits();
    let sleeper = Sleeper::new();
    let mut part = POOL.lock().enter(&sleeper);
    loop {
        part = match part {
            Part::Serve(service) => serve(&sleeper, service),
            Part::Watch => watch(&sleeper),
            Part::Rest => rest(&sleeper),
            Part::End => return,
        };
    }
}

/// Calls callables until the queue is empty, or until this thread was declared blocked.
fn serve(sleeper: &Arc<Sleeper>, service: Service) -> Part {
    unattend();
    while !READY.is_empty() && Service::current() == service {
        if !TURNS.begin() {
            return Part::End;
        }
        ATTACHING.fetch_add(1, Ordering::Relaxed); // a hint, as below
        Python::attach(|py| {
            ATTACHING.fetch_sub(1, Ordering::Relaxed);
            run_batch(py, service);
        });
        // A callable may have forked: the child process ends with its only thread.
        if fork::is_child() || !TURNS.end() {
            return Part::End;
        }
        reaper::wake();
    }
    let mut pool = POOL.lock();
    pool.is_served &= Service::current() != service;
    if !pool.is_served {
        unattend(); // although a thread may watch: the next callable wakes one that serves
    }
    if READY.is_empty() { pool.begin_rest(sleeper) } else { pool.choose_part(sleeper) }
}

/// Watches the serving thread until it has emptied the queue, or until this thread is to serve.
fn watch(sleeper: &Arc<Sleeper>) -> Part {
    // Relaxed, here and below: threads that find the flag true go on; the lock of the pool orders
    // its loss (`unattend`). The counts are hints.
    IS_ATTENDED.store(true, Ordering::Relaxed);
    loop {
        let ended = ENDED.load(Ordering::Relaxed);
        thread::sleep(PATIENCE); // no park: an earlier wake would end it early
        let mut pool = POOL.lock();
        if READY.is_empty() {
            unattend();
        }
        // Looks again: a callable that was queued before that found the queue attended.
        if READY.is_empty() {
            pool.is_watched = false;
            return pool.begin_rest(sleeper);
        }
        // Relaxed: as above; `Service` changes under the lock.
        IS_ATTENDED.store(true, Ordering::Relaxed);
        let has_ended = ENDED.load(Ordering::Relaxed) != ended;
        if !has_ended && ATTACHING.load(Ordering::Relaxed) == 0 {
            BLOCKED.fetch_add(1, Ordering::Relaxed);
            pool.is_served = false;
        }
        if !pool.is_served {
            pool.is_watched = false;
            return pool.begin_service();
        }
    }
}

/// Rests until the thread is woken, or long enough to end.
fn rest(sleeper: &Arc<Sleeper>) -> Part {
    loop {
        let is_woken = sleeper.sleep_until(Instant::now() + REST);
        let mut pool = POOL.lock();
        if is_woken {
            return pool.enter(sleeper);
        }
        let place = pool.resting.iter().position(|resting| Arc::ptr_eq(resting, sleeper));
        if let Some(place) = place.filter(|_| pool.threads > 1) {
            pool.resting.remove(place);
            pool.threads -= 1;
            return Part::End;
        }
    }
}

fn run_batch(py: Python<'_>, service: Service) {
    for _ in 0..BATCH {
        if !TURNS.is_open() || Service::current() != service {
            return;
        }
        match READY.pop() {
            Some(Ready::Task(task, completion)) => {
                let outcome = service.call(|| task.run(py));
                ENDED.fetch_add(1, Ordering::Relaxed); // a hint
                if fork::is_child() {
                    return std::mem::forget(completion); // only the parent may use the stream
                }
                completion.finish_with(outcome);
            }
            Some(Ready::Callback(callback)) => {
                if let Some(done) = callback.poll() {
                    service.call(|| event_callback::run(done, py));
                }
                ENDED.fetch_add(1, Ordering::Relaxed); // a hint
            }
            None => return,
        }
    }
}

/// Shuts the runtime down at interpreter exit; prints unfinished tasks and unraised errors.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) {
    // Malformed settings leave no runtime to shut down. An earlier call has raised their error.
    if let Ok(runtime) = Runtime::global() {
        // Releases the GIL, because the shutdown waits for callables that need the GIL.
        py.detach(|| {
            runtime.shutdown_and_report();
            TURNS.close();
            reaper::TURNS.close();
        });
        drop_pending(py);
    }
}

fn drop_pending(py: Python<'_>) {
    if fork::is_child() {
        return;
    }
    while let Some(ready) = READY.pop() {
        match ready {
            Ready::Task(task, completion) => {
                task.release(py);
                drop(completion);
            }
            Ready::Callback(callback) => callback.value.release(py),
        }
    }
    drop_parked(py);
}
