//! The shutdown: finish queued work, cancel the rest, join the threads, report losses.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Runtime;
use crate::backend::contract::{Turn, Work};
use crate::base::error::StreamFailure;
use crate::base::fork;
use crate::engine::stream::core::StreamCore;
use crate::engine::stream::frames;
use crate::engine::stream::lifecycle::UnseenErrors;
use crate::runtime::instance::Inner;
use crate::runtime::{current, process};

const PERIOD: Duration = Duration::from_micros(200);

/// The time, after the timeout, for cancelled tasks to retire, and once more for threads to return.
const GRACE: Duration = Duration::from_millis(100);

/// The same for threads when all tasks have ended: a busy machine may not run a thread for a while
/// between the end of its last task and its return.
const GRACE_AFTER_TASKS: Duration = Duration::from_secs(1);

/// The maximum number of errors in the text of a report.
const MAX_REPORTED_ERRORS: usize = 16;

/// The maximum number of characters of an error's text in a report.
const MAX_LINE_CHARACTERS: usize = 1_000;

/// The tasks and errors that a shutdown lost, and the threads that it could not join.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Users' tasks that the shutdown retired without running them, or that will never run.
    pub num_cancelled_tasks: u64,
    /// Threads that did not return from a task.
    pub num_busy_threads: usize,
    /// Errors of streams that no call has raised or returned.
    pub unseen_errors: Vec<Arc<StreamFailure>>,
    /// The number of unseen errors missing in `unseen_errors`: each device retains only the newest
    /// 16 errors of its dropped streams, and each pooled stream those of its earlier holders.
    pub num_forgotten_errors: u64,
}

impl ShutdownReport {
    /// True when no task was cancelled, every thread returned and a call has received every error.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.num_cancelled_tasks == 0
            && self.num_busy_threads == 0
            && self.unseen_errors.is_empty()
            && self.num_forgotten_errors == 0
    }
}

impl fmt::Display for ShutdownReport {
    /// Writes a line about unrun tasks, one for each of the first 16 unseen errors, and one with
    /// the number of the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num_cancelled_tasks > 0 || self.num_busy_threads > 0 {
            let tasks = with_noun(self.num_cancelled_tasks, "task");
            let threads = with_noun(self.num_busy_threads as u64, "thread");
            writeln!(
                f,
                "accelrt: exit left {tasks} not run and {threads} inside a task; the exit status \
                 does not tell, because handlers of an exit cannot change it"
            )?;
        }
        for error in self.unseen_errors.iter().take(MAX_REPORTED_ERRORS) {
            let line = first_line(&error.to_string());
            writeln!(f, "accelrt: an error that no call has received: {line}")?;
        }
        let num_omitted = self.unseen_errors.len().saturating_sub(MAX_REPORTED_ERRORS) as u64;
        let num_more = num_omitted + self.num_forgotten_errors;
        if num_more > 0 {
            let noun = if num_more == 1 { "error" } else { "errors" };
            writeln!(f, "accelrt: and {num_more} more {noun}")?;
        }
        Ok(())
    }
}

/// The first line of a text, at most 1,000 characters of it, without control characters.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.chars().take(MAX_LINE_CHARACTERS);
    cut.map(|it| if it.is_control() || it == '\u{2028}' { ' ' } else { it }).collect()
}

fn with_noun(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Shuts down a runtime that already refuses new work.
fn run(inner: &Inner, timeout: Duration) -> ShutdownReport {
    let deadline = Instant::now() + timeout;
    let streams = inner.streams();
    // Waits for all streams at once: a running stream may still enqueue work on a finished one.
    wait_until(deadline, || {
        while inner.lifecycle.step() && Instant::now() < deadline {}
        streams.iter().all(is_done)
    });
    let num_running = if inner.is_of_process { process::num_running() } else { 0 };
    inner.lifecycle.cancel();
    let grace = Instant::now() + GRACE;
    wait_until(grace, || streams.iter().filter(|stream| !retire(stream)).count() == 0);
    // Streams drop the values that they held for tasks of the device. After the grace period, the
    // driver keeps the memory that the device still uses.
    wait_until(grace, || streams.iter().all(|stream| stream.poll_held()));
    if inner.is_of_process {
        process::end();
    }
    for allocator in inner.all_allocators() {
        allocator.close();
    }
    let all_ended = streams.iter().all(is_done);
    let end = Instant::now() + if all_ended { GRACE_AFTER_TASKS } else { GRACE };
    let busy_threads: usize =
        inner.registry.backends().map(|backend| backend.shutdown(end).busy_threads).sum();
    let never_run: u64 = streams.iter().map(unrun_tasks).sum();
    let ended = inner.lifecycle.retired_counts();
    let unseen = inner.lifecycle.take_all_unseen();
    let cancelled: u64 = streams.iter().map(|it| it.batch_state.counters.read().cancelled).sum();
    let of_dropped = unseen.iter().flat_map(|one| one.errors.iter().cloned());
    let of_streams = streams.iter().flat_map(|stream| stream.failures.unraised().errors);
    let unseen_errors = unique_origins(&of_dropped.chain(of_streams).collect::<Vec<_>>());
    // An error that was dropped from its own log may be here as the origin of another: the report
    // shows it, so that it no longer counts as dropped.
    for error in &unseen_errors {
        error.set_raised();
    }
    let num_dropped: u64 = unseen.iter().map(UnseenErrors::num_forgotten).sum();
    let num_forgotten = |stream: &Arc<StreamCore>| stream.failures.unraised().num_forgotten;
    let num_forgotten_errors = num_dropped + streams.iter().map(num_forgotten).sum::<u64>();
    ShutdownReport {
        // Tasks that run on threads of a binding are cancelled, but they have begun.
        num_cancelled_tasks: (ended.cancelled + cancelled + never_run)
            .saturating_sub(num_running as u64),
        num_busy_threads: busy_threads + num_running,
        unseen_errors,
        num_forgotten_errors,
    }
}

/// True when every task is retired, or when this thread is inside a task of the stream.
fn is_done(stream: &Arc<StreamCore>) -> bool {
    stream.progress.retired() >= stream.pushed() || frames::is_inside(stream.key())
}

/// Retires a cancelled stream's tasks on this thread. False while another thread executes one.
fn retire(stream: &Arc<StreamCore>) -> bool {
    if let Some(parking) = stream.consumer_lock.parking() {
        stream.unpark(parking);
    }
    Arc::clone(stream).run(&Turn::unshared());
    is_done(stream)
}

/// Counts the users' tasks that will never run: all unretired ones, except one being executed.
fn unrun_tasks(stream: &Arc<StreamCore>) -> u64 {
    let is_executed = !stream.consumer_lock.is_idle() && stream.consumer_lock.parking().is_none();
    stream.unretired_user_task_count().saturating_sub(u64::from(is_executed))
}

/// Replaces inherited errors by their origins. Drops duplicates and seen errors.
fn unique_origins(errors: &[Arc<StreamFailure>]) -> Vec<Arc<StreamFailure>> {
    let mut seen = BTreeSet::new();
    let origin = |error: &Arc<StreamFailure>| error.inherited_from().unwrap_or(error).clone();
    let origins = errors.iter().map(origin);
    origins.filter(|error| !error.is_raised() && seen.insert(Arc::as_ptr(error))).collect()
}

fn wait_until(deadline: Instant, is_over: impl Fn() -> bool) {
    while !is_over() && Instant::now() < deadline {
        std::thread::sleep(PERIOD);
    }
}

impl Runtime {
    /// Shuts the runtime down: refuses new work, finishes queued work for at most the configured
    /// time, cancels the rest, and joins the threads that return. Returns at once if the runtime
    /// was shut down before, and in a forked child.
    #[expect(
        clippy::must_use_candidate,
        reason = "called for its effect; the report is a courtesy"
    )]
    pub fn shutdown(&self) -> ShutdownReport {
        self.inner.shutdown(self.inner.config.exit_timeout)
    }

    /// As [`Runtime::shutdown`], and prints the report on standard error, for the end of a process.
    pub fn shutdown_and_report(&self) {
        unclean_shutdown(&self.shutdown());
    }
}

impl Inner {
    fn shutdown(&self, timeout: Duration) -> ShutdownReport {
        if fork::is_child() || !self.lifecycle.stop() {
            return ShutdownReport::default();
        }
        if self.is_of_process {
            process::run_end_handler();
        }
        run(self, timeout)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Only a candidate that lost the race in `of_process` gets here with true. It must not run
        // the process's end handler.
        self.is_of_process = false;
        unclean_shutdown(&self.shutdown(self.config.exit_timeout));
        current::forget(self.lifecycle.runtime);
    }
}

fn unclean_shutdown(report: &ShutdownReport) {
    if !report.is_clean() {
        let _ = write!(std::io::stderr(), "{report}");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::config::Config;
    use crate::base::sync::Ordering;
    use crate::base::sync::unmodelled::AtomicBool;
    use crate::runtime::process::register_end_handler;

    #[test]
    fn reported_text_is_one_short_line() {
        assert_eq!(first_line("a\u{1b}[0mb\u{2028}\u{b}c\nnext"), "a [0mb  c");
        assert_eq!(first_line(&"x".repeat(2_000)), "x".repeat(1_000));
        assert_eq!(first_line(""), "");
    }

    #[test]
    fn a_report_of_any_loss_is_not_clean_and_says_what_was_lost() {
        let report = ShutdownReport::default;
        assert!(report().is_clean() && report().to_string().is_empty());
        for (lost, text) in [
            (ShutdownReport { num_cancelled_tasks: 1, ..report() }, "1 task not run"),
            (ShutdownReport { num_busy_threads: 2, ..report() }, "2 threads inside a task"),
            (ShutdownReport { num_forgotten_errors: 3, ..report() }, "and 3 more errors"),
        ] {
            assert!(!lost.is_clean() && lost.to_string().contains(text), "{lost}");
        }
    }

    static HAS_ENDED: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_losing_candidate_for_the_process_runtime_does_not_run_its_end_handler() {
        // Relaxed, both accesses: only this thread uses the flag.
        register_end_handler(|| HAS_ENDED.store(true, Ordering::Relaxed));
        drop(Runtime::build(Config::default(), [], true).unwrap());
        assert!(!HAS_ENDED.load(Ordering::Relaxed));
    }
}
