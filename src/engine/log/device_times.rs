//! The tasks of drivers that are not known to be done, with the marks that tell their times.
//!
//! A mark before and a mark behind each task are placed with the task, and asked later: when a
//! subscription is read, and at each 256th task, so that unread tasks do not pile up. No thread
//! waits for a device. Times are counted from the first task of the device that was done, because
//! drivers tell only differences; a reader finds that origin on the host's clock by the times at
//! which tasks were enqueued.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::backend::contract::owned::OwnedMark;
use crate::base::device::Device;
use crate::base::error::Result;
use crate::base::sync::{LockRank, Mutex};
use crate::engine::log::record::{LogRecord, RecordKind};

/// The number of tasks after which their consumer asks for the times.
const TASKS_PER_POLL: usize = 256;

/// A task, from its submission until its times are known.
#[derive(Clone)]
pub(crate) struct TimedTask {
    /// Complete but for its times.
    pub(crate) record: LogRecord,
    pub(crate) device: Device,
    pub(crate) begin: Arc<OwnedMark>,
    pub(crate) end: Arc<OwnedMark>,
}

/// The key of a stream: the runtime as records have it, the device, and the stream's id.
type StreamId = (u32, Device, u64);

/// The tasks of each stream in their order.
type Pending = BTreeMap<StreamId, VecDeque<TimedTask>>;

/// For each device of a runtime the mark from which its times count.
type Origins = BTreeMap<(u32, Device), Arc<OwnedMark>>;

#[derive(Default)]
struct DeviceTimes {
    pending: Pending,
    origins: Origins,
    /// The number of tasks ever added.
    count: usize,
}

fn with_times<R>(act: impl FnOnce(&mut DeviceTimes) -> R) -> R {
    #[cfg(not(loom))] // models have no log
    static TIMES: Mutex<Option<DeviceTimes>> = Mutex::new(LockRank::Marks, None);
    #[cfg(loom)]
    #[expect(non_snake_case, reason = "a static elsewhere")]
    let TIMES = Mutex::new(LockRank::Marks, None::<DeviceTimes>);
    act(TIMES.lock().get_or_insert_default())
}

/// Adds a task of a stream, behind the stream's earlier ones. The caller holds no lock, and polls
/// when this returns true.
pub(super) fn add(task: TimedTask) -> bool {
    with_times(|times| {
        let key = (task.record.runtime, task.device, task.record.stream_id);
        times.pending.entry(key).or_default().push_back(task);
        times.count += 1;
        times.count.is_multiple_of(TASKS_PER_POLL)
    })
}

/// Asks for the times of pending tasks, and passes the records of those that are done to `take`.
/// True while some are not.
pub(super) fn poll(take: impl Fn(&LogRecord)) -> bool {
    let streams: Vec<StreamId> = with_times(|times| times.pending.keys().copied().collect());
    for stream in &streams {
        while hand_over_first(stream, &take) {}
    }
    with_times(|times| !times.pending.is_empty())
}

/// Hands over the record of a stream's first task. False when there is none, or it is not done.
fn hand_over_first(stream: &StreamId, take: &impl Fn(&LogRecord)) -> bool {
    let first = |times: &mut DeviceTimes| times.pending.get(stream)?.front().cloned();
    let Some(task) = with_times(first) else { return false };
    // Without the lock, because none may be held while a driver is asked.
    let Some(record) = finished(&task) else { return false };
    let handed_over = with_times(|times| {
        let tasks = times.pending.get_mut(stream)?;
        // Another thread that asked meanwhile may have been earlier.
        if !tasks.front().is_some_and(|first| Arc::ptr_eq(&first.end, &task.end)) {
            return None;
        }
        take(&record); // under the lock: who finds the task gone finds its record
        let handed_over = tasks.pop_front();
        if tasks.is_empty() {
            times.pending.remove(stream);
        }
        handed_over
    });
    drop(handed_over); // releases the marks, without the lock
    true
}

/// The record of a task that is done; `None` while it is not. A task whose driver refuses to answer
/// has the times of its submission: one without any would move those of all others.
fn finished(task: &TimedTask) -> Option<LogRecord> {
    let times = task.end.is_done().and_then(|is_done| is_done.then(|| times_of(task)).transpose());
    Some(match times {
        Ok(None) => return None,
        Ok(Some((start, end))) => {
            LogRecord { start: start.cast_unsigned(), end: end.cast_unsigned(), ..task.record }
        }
        Err(_) => LogRecord { kind: RecordKind::Ended, ..task.record },
    })
}

fn times_of(task: &TimedTask) -> Result<(i64, i64)> {
    let key = (task.record.runtime, task.device);
    let origin = with_times(|times| {
        Arc::clone(times.origins.entry(key).or_insert_with(|| Arc::clone(&task.begin)))
    });
    let start =
        if Arc::ptr_eq(&origin, &task.begin) { 0 } else { origin.elapsed_ns(&task.begin)? };
    Ok((start, start + task.begin.elapsed_ns(&task.end)?))
}

/// Forgets the tasks and origins of runtimes that no subscription asks for any more.
pub(super) fn forget_all_but(is_wanted: impl Fn(u32) -> bool) {
    let forgotten: (Pending, Origins) = with_times(|times| {
        let DeviceTimes { pending, origins, .. } = times;
        let (wanted, unwanted) = mem::take(pending).into_iter().partition(|it| is_wanted(it.0.0));
        *pending = wanted;
        let (wanted, unwanted_origins) =
            mem::take(origins).into_iter().partition(|it| is_wanted(it.0.0));
        *origins = wanted;
        (unwanted, unwanted_origins)
    });
    drop(forgotten); // releases the marks, without the lock
}
