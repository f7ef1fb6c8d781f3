//! The end: finish queued work, cancel the rest, join the threads, report losses.
#![expect(unsafe_code, reason = "registers a handler with the C library")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::contract::{Turn, Work};
use crate::base::contain::contain;
use crate::base::error::StreamFailure;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::frames;
use crate::runtime::instance::Inner;

/// Polling period for work that still runs.
const PERIOD: Duration = Duration::from_micros(200);

/// How long threads have to retire cancelled work and to end, after the configured time.
const GRACE: Duration = Duration::from_millis(100);

/// The work that a shutdown left undone.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Tasks that were retired without running, or never will.
    pub num_cancelled_tasks: u64,
    /// Threads that were left inside a task.
    pub num_busy_threads: usize,
    /// Errors of streams that no synchronise raised.
    pub unseen_errors: Vec<Arc<StreamFailure>>,
    /// How many more there were, of streams that are gone: only the newest of each device are kept.
    pub num_forgotten_errors: u64,
}

impl ShutdownReport {
    /// True when everything ran and every error was seen.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.num_cancelled_tasks == 0
            && self.num_busy_threads == 0
            && self.unseen_errors.is_empty()
            && self.num_forgotten_errors == 0
    }
}

impl fmt::Display for ShutdownReport {
    /// One line about work that did not run, one per unseen error; nothing when clean.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num_cancelled_tasks > 0 || self.num_busy_threads > 0 {
            let tasks = counted(self.num_cancelled_tasks, "task");
            let threads = counted(self.num_busy_threads as u64, "thread");
            writeln!(
                f,
                "accelrt: exit left {tasks} not run and {threads} inside a task; the exit status \
                 does not tell, because handlers of an exit cannot change it"
            )?;
        }
        for error in &self.unseen_errors {
            writeln!(f, "accelrt: an error that nobody synchronised with: {error}")?;
        }
        if self.num_forgotten_errors > 0 {
            let count = self.num_forgotten_errors;
            writeln!(f, "accelrt: and {count} more of streams that were dropped, not kept")?;
        }
        Ok(())
    }
}

/// A number with its noun.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Shuts a runtime down that already refuses new work.
pub(super) fn run(inner: &Inner, timeout: Duration) -> ShutdownReport {
    let deadline = Instant::now() + timeout;
    let streams = inner.streams();
    // Not each stream by itself: one that is done may still get work from one that is not.
    wait_until(deadline, || streams.iter().all(is_done));
    inner.lifecycle.cancel();
    let grace = Instant::now() + GRACE;
    wait_until(grace, || streams.iter().filter(|stream| !retire(stream)).count() == 0);
    // Memory that a device still uses is freed when the device is done with it, or stays with the
    // driver.
    wait_until(grace, || streams.iter().all(|stream| stream.poll_held()));
    for allocator in inner.all_allocators() {
        allocator.close();
    }
    let end = Instant::now() + GRACE;
    let busy_threads = inner.backends().map(|backend| backend.shutdown(end).busy_threads).sum();
    let never_run: u64 = streams.iter().map(unrun_tasks).sum();
    let kept = inner.lifecycle.retired_counts();
    let gone = inner.lifecycle.take_all_unseen();
    let num_forgotten_errors = gone.iter().map(|unseen| unseen.num_forgotten).sum();
    let mut unseen_errors: Vec<_> = gone.into_iter().flat_map(|unseen| unseen.errors).collect();
    let cancelled: u64 =
        streams.iter().map(|stream| stream.figures.counters.read().cancelled).sum();
    unseen_errors.extend(streams.iter().filter_map(|stream| stream.unseen_error()));
    ShutdownReport {
        num_cancelled_tasks: kept.cancelled + cancelled + never_run,
        num_busy_threads: busy_threads,
        unseen_errors: only_origins(&unseen_errors),
        num_forgotten_errors,
    }
}

/// True when every task is retired, or this thread is inside one: it cannot wait for itself.
fn is_done(stream: &Arc<StreamCore>) -> bool {
    stream.progress.retired() >= stream.pushed() || frames::is_inside(stream.key())
}

/// True when a thread executes the stream or will.
fn is_runnable(stream: &Arc<StreamCore>) -> bool {
    !stream.turnstile.is_idle() && stream.turnstile.parking().is_none()
}

/// Retires a cancelled stream here; false while another thread is inside one of its tasks.
fn retire(stream: &Arc<StreamCore>) -> bool {
    if let Some(parking) = stream.turnstile.parking() {
        stream.unpark(parking);
    }
    Arc::clone(stream).run(&Turn::unshared());
    is_done(stream)
}

/// Tasks behind one that a thread is still inside of.
fn unrun_tasks(stream: &Arc<StreamCore>) -> u64 {
    stream.unretired_users_tasks().saturating_sub(u64::from(is_runnable(stream)))
}

/// Each failure once: drops errors inherited from another one that is reported.
fn only_origins(errors: &[Arc<StreamFailure>]) -> Vec<Arc<StreamFailure>> {
    let mut seen = BTreeSet::new();
    let origin = |error: &Arc<StreamFailure>| error.inherited_from().unwrap_or(error).clone();
    let origins = errors.iter().map(origin);
    origins.filter(|error| !error.is_seen() && seen.insert(Arc::as_ptr(error))).collect()
}

fn wait_until(deadline: Instant, is_over: impl Fn() -> bool) {
    while !is_over() && Instant::now() < deadline {
        std::thread::sleep(PERIOD);
    }
}

/// Called at the end of the process's runtime, before anything is freed.
static BEFORE_END: OnceLock<fn()> = OnceLock::new();

/// Registers a function that the shutdown of the process's runtime calls first: a library above the
/// runtime stops using its memory then. The first registration stays.
#[cfg(not(loom))] // as the host heap, which registers
pub(crate) fn before_end_of_process(handler: fn()) {
    BEFORE_END.get_or_init(|| handler);
}

/// Calls the registered function.
pub(super) fn begin_of_process() {
    if let Some(handler) = BEFORE_END.get() {
        handler();
    }
}

/// Calls `handler` once when the process exits by `exit` or by the end of `main`.
pub(super) fn at_exit(handler: fn()) {
    static HANDLER: OnceLock<fn()> = OnceLock::new();
    extern "C" fn call() {
        if let Some(handler) = HANDLER.get() {
            contain(handler);
        }
    }
    if HANDLER.set(handler).is_ok() {
        // SAFETY: `call` is a function of this library without arguments. A library that
        // registered one stays loaded: the C library calls it when the library is closed.
        let refused = unsafe { libc::atexit(call) };
        assert_eq!(refused, 0, "atexit fails only without memory");
    }
}
