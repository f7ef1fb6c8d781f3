//! The phase of a runtime, from running to cancelled, which all its streams read.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::base::device::Device;
use crate::base::error::{Error, Result, RuntimeError, StreamFailure};
use crate::base::fork;
use crate::base::sync::unmodelled::{AtomicBool, AtomicU64, AtomicUsize};
use crate::base::sync::{LockRank, Mutex, Ordering};
use crate::engine::log::immediate::Immediate;
use crate::engine::log::record::LogRecord;
use crate::engine::stream::failures::{UnraisedErrors, without_details};
use crate::engine::stream::schedule::Scheduler;
use crate::engine::stream::task::Details;

/// The report about one executed task, for immediate subscriptions.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// As the log gets it: the times are the host's.
    pub record: LogRecord,
    /// The addresses and sizes that the task has.
    pub details: Details,
    /// Of a driver's task, the device's.
    pub time: Duration,
}

/// A watch of the tasks of one runtime, which ends with its drop. See `Lifecycle::watch`.
#[must_use = "the drop ends the watch"]
pub struct TaskWatch {
    lifecycle: Arc<Lifecycle>,
    subscription: Option<u64>,
}

impl fmt::Debug for TaskWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskWatch").finish_non_exhaustive()
    }
}

impl TaskWatch {
    fn new(lifecycle: Arc<Lifecycle>, subscription: Option<u64>) -> Self {
        Self { lifecycle, subscription }
    }
}

impl Drop for TaskWatch {
    fn drop(&mut self) {
        // In a forked child no task runs, and a thread that the child lacks may hold the lock.
        if !fork::is_child() {
            self.lifecycle.unwatch(self.subscription);
        }
    }
}

const RUNNING: usize = 0;
const STOPPED: usize = 1;
const CANCELLED: usize = 2;
/// Added to `RUNNING` or `STOPPED` for each watch of the tasks. So one comparison per task detects
/// a watch or a cancellation, and one per enqueue a watch or a stop.
const WATCHED: usize = 4;

/// The state of a runtime that all its streams share.
///
/// `phase` only grows: running, stopped (no new work, queued tasks run), cancelled (users'
/// queued tasks are retired without running). Watches are counted only before the last phase.
#[derive(Debug)]
pub struct Lifecycle {
    /// Identifies the runtime in this process.
    pub runtime: u64,
    phase: AtomicUsize,
    /// The number of tasks queued in one stream above which enqueueing helps or waits.
    pub(crate) stream_task_limit: u64,
    /// The counters of all dropped streams, summed.
    retired_counters: StreamCounters,
    /// Told of each executed task that is not internal.
    pub(crate) task_reports: Immediate<TaskReport>,
    /// Errors of dropped streams that no synchronise has raised.
    unseen: Mutex<BTreeMap<Device, UnseenErrors>>,
    is_scheduled: AtomicBool,
    /// Only there while a watch of its own is.
    scheduler: Mutex<Option<Arc<dyn Scheduler>>>,
}

/// The maximum number of unseen errors per device.
const MAX_UNSEEN: usize = 16;

/// Never-raised errors of dropped streams: the newest ones, and the number of older ones.
#[derive(Debug, Default)]
pub(crate) struct UnseenErrors {
    pub(crate) errors: VecDeque<Arc<StreamFailure>>,
    /// The number of errors that the streams had dropped.
    dropped_before: u64,
    /// The number of errors that were dropped here and that no call has raised since.
    dropped: Arc<AtomicU64>,
    /// Is raised for dropped errors when there are no others.
    without_details: Option<Arc<StreamFailure>>,
}

impl UnseenErrors {
    /// Appends later errors. Returns the oldest errors above the maximum, which the caller must
    /// drop without a lock, because they are users' values.
    #[must_use = "it is a user's"]
    fn add(&mut self, later: Self) -> Vec<Arc<StreamFailure>> {
        self.dropped_before += later.num_forgotten();
        self.without_details = self.without_details.take().or(later.without_details);
        self.errors.extend(later.errors);
        let beyond = self.errors.len().saturating_sub(MAX_UNSEEN);
        let dropped: Vec<_> = self.errors.drain(..beyond).collect();
        for error in &dropped {
            error.count_dropped(&self.dropped);
            self.without_details.get_or_insert_with(|| without_details(error));
        }
        dropped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty() && self.num_forgotten() == 0
    }

    /// Adds the errors that a synchronise has taken of other streams.
    pub(crate) fn before(self, taken: UnraisedErrors) -> UnraisedErrors {
        let num_forgotten = self.num_forgotten() + taken.num_forgotten;
        let without_details = self.without_details.or(taken.without_details);
        let errors = self.errors.into_iter().chain(taken.errors).collect();
        UnraisedErrors { errors, num_forgotten, without_details }
    }

    /// The number of errors that are not in `errors`.
    pub(crate) fn num_forgotten(&self) -> u64 {
        self.dropped_before + self.dropped.load(Ordering::Relaxed) // Relaxed: a statistic
    }
}

/// Counts of helped, skipped and cancelled tasks, of one stream or of all dropped streams.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    helped: AtomicU64,
    skipped: AtomicU64,
    cancelled: AtomicU64,
}

/// The values read from [`StreamCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamCounts {
    pub(crate) helped: u64,
    pub(crate) skipped: u64,
    pub(crate) cancelled: u64,
}

impl StreamCounters {
    pub(crate) fn add(&self, counts: StreamCounts) {
        // Relaxed: counters order nothing.
        for (counter, count) in [
            (&self.helped, counts.helped),
            (&self.skipped, counts.skipped),
            (&self.cancelled, counts.cancelled),
        ] {
            if count != 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Adds helped tasks. Called only by the consumer; an atomic add would cost too much here.
    #[inline]
    pub(crate) fn add_helped(&self, count: u64) {
        // Relaxed, and two steps: only the consumer writes this counter of its stream.
        let helped = self.helped.load(Ordering::Relaxed);
        self.helped.store(helped + count, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> StreamCounts {
        // Relaxed: counters order nothing.
        StreamCounts {
            helped: self.helped.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            cancelled: self.cancelled.load(Ordering::Relaxed),
        }
    }
}

impl Lifecycle {
    pub(crate) fn new(runtime: u64, stream_task_limit: u64) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            phase: AtomicUsize::new(RUNNING),
            stream_task_limit,
            retired_counters: StreamCounters::default(),
            task_reports: Immediate::new(),
            unseen: Mutex::new(LockRank::ErrorLog, BTreeMap::new()),
            is_scheduled: AtomicBool::new(false),
            scheduler: Mutex::new(LockRank::Backend, None),
        })
    }

    /// True when the runtime accepts new work and no task is watched.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        // Relaxed: a call that races with a shutdown or a watch may go either way.
        !fork::is_child() && self.phase.load(Ordering::Relaxed) == RUNNING
    }

    /// Fails when the runtime accepts no new work: in a forked child and after the stop.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_plain() { Ok(()) } else { self.check_phase() }
    }

    #[cold]
    fn check_phase(&self) -> Result<()> {
        fork::check()?;
        // Relaxed: as in `is_plain`.
        let is_running = self.phase.load(Ordering::Relaxed) % WATCHED == RUNNING;
        if is_running { Ok(()) } else { Err(Error::Runtime(RuntimeError::ShutDown)) }
    }

    /// Fails when an object, described by `what`, belongs to another runtime.
    #[inline]
    pub fn check_same_runtime(&self, what: &'static str, given: u64) -> Result<()> {
        let own = self.runtime;
        if given == own {
            Ok(())
        } else {
            Err(Error::Runtime(RuntimeError::OtherRuntime { what, given, own }))
        }
    }

    /// Makes the runtime refuse new work; queued tasks still run. False after an earlier stop.
    pub(crate) fn stop(&self) -> bool {
        // Relaxed: of two shutdowns one is the first, and the other has no effect.
        let stopped = |phase| (phase % WATCHED == RUNNING).then_some(phase | STOPPED);
        self.phase.fetch_update(Ordering::Relaxed, Ordering::Relaxed, stopped).is_ok()
    }

    /// Makes every stream retire users' queued tasks without running them.
    pub(crate) fn cancel(&self) {
        // Relaxed, here and below: the phase publishes no other memory. The shutdown polls each
        // stream, for a limited time, through the stream's own atomics and locks.
        self.phase.store(CANCELLED, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == CANCELLED
    }

    #[inline]
    pub(crate) fn is_watched_or_cancelled(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= CANCELLED
    }

    /// Begins a watch: until its drop the tasks of all streams take the way on which the log is
    /// told. Then `subscription` to the task reports ends too.
    pub fn watch(self: &Arc<Self>, subscription: Option<u64>) -> TaskWatch {
        // The result is ignored: after a cancellation no task is told of.
        let more = |phase| (phase % WATCHED < CANCELLED).then_some(phase + WATCHED);
        let _ = self.phase.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        TaskWatch::new(Arc::clone(self), subscription)
    }

    /// Ends a watch, and its subscription.
    fn unwatch(&self, subscription: Option<u64>) {
        // Relaxed: a task that races with this call may be told of or not.
        let fewer = |phase: usize| phase.checked_sub(WATCHED);
        let _ = self.phase.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        if let Some(id) = subscription {
            self.task_reports.unsubscribe(id);
        }
    }

    /// True while a watch of the order is on for this runtime.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= WATCHED
    }

    /// The scheduler of the streams of host kinds; `None` after a cancellation and in a forked
    /// child.
    #[inline]
    pub fn scheduler(&self) -> Option<Arc<dyn Scheduler>> {
        // Relaxed: the lock orders what the scheduler has.
        if self.is_scheduled.load(Ordering::Relaxed) { self.find_scheduler() } else { None }
    }

    #[cold]
    fn find_scheduler(&self) -> Option<Arc<dyn Scheduler>> {
        if self.is_watched() && !fork::is_child() { self.scheduler.lock().clone() } else { None }
    }

    /// Sets the scheduler, or removes it. The caller watches the tasks before, and until after; and
    /// the scheduler that was removed, which the caller drops, has no stream any more.
    pub fn set_scheduler(&self, scheduler: Option<Arc<dyn Scheduler>>) {
        self.is_scheduled.store(scheduler.is_some(), Ordering::Relaxed);
        *self.scheduler.lock() = scheduler;
    }

    /// Adds the counts and unseen errors of a dropped stream. Returns the surplus errors.
    #[must_use = "they are a user's"]
    pub(crate) fn add_dropped(
        &self,
        counts: StreamCounts,
        device: Device,
        unraised: UnraisedErrors,
    ) -> Vec<Arc<StreamFailure>> {
        self.retired_counters.add(counts);
        let UnraisedErrors { errors, num_forgotten, without_details } = unraised;
        if errors.is_empty() && num_forgotten == 0 {
            return Vec::new();
        }
        let (errors, dropped_before, dropped) = (errors.into(), num_forgotten, Arc::default());
        let later = UnseenErrors { errors, dropped_before, dropped, without_details };
        self.unseen.lock().entry(device).or_default().add(later)
    }

    /// Reads the summed counters of all dropped streams.
    pub(crate) fn retired_counts(&self) -> StreamCounts {
        self.retired_counters.read()
    }

    /// Takes the never-raised errors of a device's dropped streams.
    pub(crate) fn take_unseen(&self, device: Device) -> UnseenErrors {
        self.unseen.lock().remove(&device).unwrap_or_default()
    }

    /// Takes the never-raised errors of all devices.
    pub(crate) fn take_all_unseen(&self) -> Vec<UnseenErrors> {
        std::mem::take(&mut *self.unseen.lock()).into_values().collect()
    }

    /// Puts back errors that the caller took and could not raise, before any newer ones.
    pub(crate) fn put_back(&self, device: Device, mut earlier: UnseenErrors) {
        let forgotten = {
            let mut unseen = self.unseen.lock();
            let kept = unseen.entry(device).or_default();
            let forgotten = earlier.add(std::mem::take(kept));
            *kept = earlier;
            forgotten
        };
        drop(forgotten);
    }
}

impl Lifecycle {
    /// Makes a step of the schedule, if there is one. True when a task may have run.
    pub fn step(&self) -> bool {
        self.scheduler().is_some_and(|scheduler| scheduler.step())
    }

    /// As [`Lifecycle::step`], before a poll with this waker. Nothing else runs tasks, so the waker
    /// is woken for the next poll.
    pub(crate) fn step_for(&self, waker: &Waker) {
        if let Some(scheduler) = self.scheduler() {
            scheduler.step();
            waker.wake_by_ref();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::FailureCause;

    fn add_errors(lifecycle: &Lifecycle, device: Device, ids: std::ops::Range<u64>) {
        for id in ids {
            let error = StreamFailure::new(device, id, None, FailureCause::Unfinished);
            let errors = UnraisedErrors { errors: vec![error], ..Default::default() };
            drop(lifecycle.add_dropped(StreamCounts::default(), device, errors));
        }
    }

    fn ids(unseen: &UnseenErrors) -> Vec<u64> {
        unseen.errors.iter().map(|error| error.stream_id()).collect()
    }

    #[test]
    fn unseen_errors_count_until_raised() {
        let lifecycle = Lifecycle::new(1, 10);
        let failure = |id| StreamFailure::new(Device::cpu(0), id, None, FailureCause::Unfinished);
        let errors: Vec<_> = (0..20).map(failure).collect();
        let unraised = UnraisedErrors {
            errors: errors.clone(),
            num_forgotten: 2,
            ..UnraisedErrors::default()
        };
        drop(lifecycle.add_dropped(StreamCounts::default(), Device::cpu(0), unraised));
        errors[1].set_raised();
        let unseen = lifecycle.take_unseen(Device::cpu(0));
        assert_eq!((unseen.errors.len(), unseen.num_forgotten()), (16, 2 + 3));
        errors[2].set_raised();
        assert_eq!(unseen.num_forgotten(), 2 + 2);
    }

    #[test]
    fn only_the_newest_unseen_errors_of_a_device_are_retained() {
        let lifecycle = Lifecycle::new(1, 10);
        let devices = [Device::cpu(0), Device::cpu(1)];
        add_errors(&lifecycle, devices[1], 500..503);
        add_errors(&lifecycle, devices[0], 0..40);
        let unseen = lifecycle.take_unseen(devices[0]);
        assert_eq!((ids(&unseen), unseen.num_forgotten()), ((24..40).collect(), 24));
        // The caller could not raise the errors, and streams have added later ones since.
        add_errors(&lifecycle, devices[0], 40..43);
        lifecycle.put_back(devices[0], unseen);
        let unseen = lifecycle.take_unseen(devices[0]);
        assert_eq!((ids(&unseen), unseen.num_forgotten()), ((27..43).collect(), 27));
        let [others] = &lifecycle.take_all_unseen()[..] else { panic!("of one device") };
        assert_eq!((ids(others), others.num_forgotten()), (vec![500, 501, 502], 0));
    }
}
