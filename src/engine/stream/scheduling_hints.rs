//! Hints for the choice of the thread that executes a stream: recent task times and executors.
//!
//! A waiting thread executes short tasks itself; a worker lingers at a stream that no host thread
//! executes.
//!
//! Reading a clock around every task would cost more than an empty task. A drain reads it at one
//! batch in 64 while tasks are short, and at every batch while they are long or unknown.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::{AtomicU32, AtomicU64};

/// The longest time of a short task. Executing a short task costs less than waking a worker.
const SHORT_NS: u64 = 20_000;

/// Batches between two readings of the clock, while tasks are short: two readings cost as much as
/// an empty task.
const SAMPLED_BATCHES: u32 = 64;

/// The `recent_ns` of a stream before its first measured batch.
const UNKNOWN: u64 = u64::MAX;

/// The number of turns with tasks that workers need, after host threads have executed the stream,
/// before workers linger at it again.
const TURNS_AFTER_HELP: u32 = 8;

/// The value of `turns_after_help` after a worker found a waiting thread executing the stream.
const COLLIDED: u32 = TURNS_AFTER_HELP + 1;

/// The time for which a worker first leaves a stream to host threads: about the time between two
/// round trips. `leave_for` doubles it up to about the cost of a worker's wake.
const FIRST_LEAVE: Duration = Duration::from_micros(4);
const LEAVE_DOUBLINGS: u32 = 4;

/// The hints of one stream, which the consumer and waiting threads update.
#[derive(Debug)]
pub(crate) struct SchedulingHints {
    recent_ns: AtomicU64,
    /// Remaining worker turns before workers linger at this stream.
    turns_after_help: AtomicU32,
    /// The number of tasks retired when a worker last left the stream to host threads.
    left_at: AtomicU64,
    /// How often in a row workers have left the stream to host threads.
    times_left: AtomicU32,
    /// The time, by [`now_ns`], when a worker found a waiting thread executing the stream.
    collided_ns: AtomicU64,
}

impl SchedulingHints {
    pub(crate) fn new() -> Self {
        Self {
            recent_ns: AtomicU64::new(UNKNOWN),
            turns_after_help: AtomicU32::new(0),
            left_at: AtomicU64::new(0),
            times_left: AtomicU32::new(0),
            collided_ns: AtomicU64::new(0),
        }
    }

    /// Notes that a host thread executes the stream now or soon. Workers then leave it to that
    /// thread.
    #[inline]
    pub(crate) fn note_helper(&self) {
        // Relaxed, here and below: these numbers only guide heuristics and order nothing.
        if self.turns_after_help.load(Ordering::Relaxed) != TURNS_AFTER_HELP {
            self.turns_after_help.store(TURNS_AFTER_HELP, Ordering::Relaxed);
        }
    }

    /// Counts a turn in which a worker executed tasks: workers linger again after some such turns.
    #[inline]
    pub(crate) fn note_worker(&self) {
        let turns = self.turns_after_help.load(Ordering::Relaxed);
        if turns != 0 {
            self.turns_after_help.store(turns - 1, Ordering::Relaxed);
        }
    }

    /// True when host threads have executed this stream lately.
    #[inline]
    pub(crate) fn is_run_by_host(&self) -> bool {
        self.turns_after_help.load(Ordering::Relaxed) != 0
    }

    /// Notes that a worker arrived while another thread executed the stream. The next thread that
    /// helps removes the note by [`SchedulingHints::note_helper`].
    #[cold]
    pub(crate) fn note_collision(&self) {
        if self.is_run_by_host() {
            self.collided_ns.store(now_ns(), Ordering::Relaxed);
            self.turns_after_help.store(COLLIDED, Ordering::Relaxed);
        }
    }

    /// Called after a waiting thread has executed one task. The task counts as long if a worker
    /// arrived at least `MAX_HELP_TIME` ago.
    #[inline]
    pub(crate) fn end_help(&self) {
        if self.turns_after_help.load(Ordering::Relaxed) == COLLIDED {
            self.learn_since_collision();
        }
    }

    #[cold]
    fn learn_since_collision(&self) {
        let collided_ns = self.collided_ns.load(Ordering::Relaxed);
        let elapsed = Duration::from_nanos(now_ns().saturating_sub(collided_ns));
        if elapsed >= MAX_HELP_TIME {
            self.learn(elapsed, 1);
        }
    }

    /// How long a worker leaves the stream to host threads: longer after each period in which they
    /// retired a task. `None` when they retired none or have not executed the stream lately.
    pub(crate) fn leave_for(&self, retired: u64) -> Option<Duration> {
        let times = self.times_left.load(Ordering::Relaxed);
        let made_no_progress = times > 0 && self.left_at.load(Ordering::Relaxed) == retired;
        let is_left = self.is_run_by_host() && !made_no_progress;
        self.left_at.store(retired, Ordering::Relaxed);
        self.times_left.store(if is_left { times.saturating_add(1) } else { 0 }, Ordering::Relaxed);
        is_left.then(|| FIRST_LEAVE * (1 << times.min(LEAVE_DOUBLINGS)))
    }

    /// Makes a drain check its turn after each task, and keeps waiting threads from helping. The
    /// tasks count as long for this purpose, until some batches of short tasks were measured.
    pub(crate) fn request_single_steps(&self) {
        self.recent_ns.store(64 * SHORT_NS, Ordering::Relaxed);
    }

    /// True when the recent task time exceeds `SHORT_NS`.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        let recent_ns = self.recent_ns();
        recent_ns != UNKNOWN && recent_ns > SHORT_NS
    }

    /// True when no batch was measured yet. Waiting threads then execute no calls of C functions.
    #[inline]
    pub(crate) fn is_unknown(&self) -> bool {
        self.recent_ns() == UNKNOWN
    }

    #[inline]
    fn recent_ns(&self) -> u64 {
        self.recent_ns.load(Ordering::Relaxed)
    }

    /// Averages the mean task time of a batch with the recent time, each with weight one half.
    fn learn(&self, elapsed: Duration, tasks: u64) {
        let mean_ns = u64::try_from(elapsed.as_nanos() / u128::from(tasks)).unwrap_or(UNKNOWN - 1);
        let old = self.recent_ns();
        let recent_ns = if old == UNKNOWN { mean_ns } else { old / 2 + mean_ns / 2 };
        self.recent_ns.store(recent_ns.min(UNKNOWN - 1), Ordering::Relaxed);
    }
}

/// Nanoseconds since the first call of this function in the process.
fn now_ns() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let elapsed = FIRST.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// How long a waiting thread executes tasks between two interrupt checks. A task of this length
/// makes the hints report long tasks. Unlimited in models, which have no clock.
pub(crate) const MAX_HELP_TIME: Duration =
    if cfg!(loom) { Duration::MAX } else { Duration::from_millis(50) };

/// Measures how long a waiting thread executes tasks of a stream, and finds long tasks.
#[derive(Debug)]
pub(crate) struct HelpTimer {
    began: Instant,
    task_began: Instant,
}

impl HelpTimer {
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, task_began: now }
    }

    /// Called after each task. True when the thread has to run its interrupt check. One task of at
    /// least `MAX_HELP_TIME` makes the hints report long tasks; threads then no longer help.
    pub(crate) fn is_over(&mut self, hints: &SchedulingHints) -> bool {
        let now = Instant::now();
        let task = now - self.task_began;
        self.task_began = now;
        if task >= MAX_HELP_TIME {
            hints.learn(task, 1);
        }
        now - self.began >= MAX_HELP_TIME
    }
}

/// Measures the task times of some batches, and passes them to the hints.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    batches_to_skip: u32,
    /// The start of the current batch and the task before it; `None` for an unmeasured batch.
    started: Option<(Instant, u64)>,
}

impl Stopwatch {
    /// Begins a batch after the task `consumed`. Reads the clock only if the batch is measured.
    #[inline]
    pub(crate) fn start(&mut self, consumed: u64) {
        match self.batches_to_skip.checked_sub(1) {
            Some(rest) => self.batches_to_skip = rest,
            None => self.started = Some((Instant::now(), consumed)),
        }
    }

    /// Ends the batch with the task `consumed`.
    #[inline]
    pub(crate) fn stop(&mut self, consumed: u64, hints: &SchedulingHints) {
        if self.started.is_some() {
            self.measure(consumed, hints);
        }
    }

    #[cold]
    fn measure(&mut self, consumed: u64, hints: &SchedulingHints) {
        if let Some((started, first)) = self.started.take()
            && consumed > first
        {
            // Zero in models: loom cannot replay a path that depends on a clock.
            let elapsed = if cfg!(loom) { Duration::ZERO } else { started.elapsed() };
            hints.learn(elapsed, consumed - first);
            if !hints.is_long() {
                self.batches_to_skip = SAMPLED_BATCHES - 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_a_measurement_is_unknown_and_not_long() {
        let hints = SchedulingHints::new();
        assert!(!hints.is_long() && hints.is_unknown());
    }

    #[test]
    fn a_measurement_replaces_unknown_and_decays_by_halves() {
        let hints = SchedulingHints::new();
        hints.learn(Duration::from_millis(1), 1);
        assert!(hints.is_long());
        for _ in 0..10 {
            hints.learn(Duration::from_nanos(640), 64);
        }
        assert!(!hints.is_long() && !hints.is_unknown());
    }

    #[test]
    fn a_batch_counts_by_its_mean_with_weight_one_half() {
        let hints = SchedulingHints::new();
        hints.learn(Duration::from_micros(1), 10);
        assert_eq!(hints.recent_ns(), 100);
        hints.learn(Duration::from_micros(3), 10);
        assert_eq!(hints.recent_ns(), 200);
    }

    #[test]
    fn a_stream_is_left_to_host_threads_longer_until_it_makes_no_progress() {
        let hints = SchedulingHints::new();
        assert_eq!(hints.leave_for(0), None, "only workers execute it");
        hints.note_helper();
        let periods: Vec<_> = (0..7).map(|retired| hints.leave_for(retired).unwrap()).collect();
        assert!(periods.is_sorted() && periods[0] < periods[4] && periods[4] == periods[6]);
        assert_eq!(hints.leave_for(6), None, "no thread went on");
        assert_eq!(hints.leave_for(6), Some(periods[0]), "asked anew");
        assert_eq!(hints.leave_for(6), None);
    }

    /// Runs one batch of short tasks; true when it was measured.
    fn is_measured(stopwatch: &mut Stopwatch, hints: &SchedulingHints) -> bool {
        stopwatch.start(0);
        let is_measured = stopwatch.started.is_some();
        stopwatch.stop(1_000_000_000, hints);
        is_measured
    }

    #[test]
    fn short_batches_are_sampled_and_long_ones_all_measured() {
        let (mut stopwatch, hints) = (Stopwatch::default(), SchedulingHints::new());
        assert!(is_measured(&mut stopwatch, &hints));
        let batches = 0..2 * SAMPLED_BATCHES;
        assert_eq!(batches.filter(|_| is_measured(&mut stopwatch, &hints)).count(), 2);
        hints.learn(Duration::from_secs(1), 1);
        stopwatch.batches_to_skip = 0;
        stopwatch.start(0);
        stopwatch.stop(1, &hints);
        assert!(is_measured(&mut stopwatch, &hints));
    }

    #[test]
    fn workers_linger_again_after_some_turns_without_a_helper() {
        let hints = SchedulingHints::new();
        assert!(!hints.is_run_by_host());
        hints.note_helper();
        for _ in 0..TURNS_AFTER_HELP {
            assert!(hints.is_run_by_host());
            hints.note_worker();
        }
        assert!(!hints.is_run_by_host());
    }
}
