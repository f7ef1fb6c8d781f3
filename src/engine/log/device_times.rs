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
use crate::engine::log::process;
use crate::engine::log::record::{LogRecord, RecordKind};

/// The number of tasks after which their consumer asks for the times.
const TASKS_PER_POLL: usize = 256;

/// A task, from its submission until its times are known.
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

/// Adds a task of a stream, behind the stream's earlier ones. The caller holds no lock.
pub(crate) fn add(task: TimedTask) {
    let is_due = with_times(|times| {
        let key = (task.record.runtime, task.device, task.record.stream_id);
        times.pending.entry(key).or_default().push_back(task);
        times.count += 1;
        times.count.is_multiple_of(TASKS_PER_POLL)
    });
    if is_due {
        poll();
    }
}

/// Asks for the times of pending tasks, and hands over the records of those that are done. True
/// while some are not.
pub(crate) fn poll() -> bool {
    // Taken out, because no lock may be held while a driver is asked. Another thread that polls
    // meanwhile finds nothing.
    let mut pending = with_times(|times| mem::take(&mut times.pending));
    let mut records = Vec::new();
    for tasks in pending.values_mut() {
        while let Some(record) = tasks.front().and_then(finished) {
            records.push(record);
            tasks.pop_front(); // releases the marks, without the lock
        }
    }
    let is_pending = with_times(|times| {
        for (key, mut tasks) in pending {
            if let Some(newer) = times.pending.remove(&key) {
                tasks.extend(newer);
            }
            if !tasks.is_empty() {
                times.pending.insert(key, tasks);
            }
        }
        !times.pending.is_empty()
    });
    process::add(&records);
    is_pending
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
