//! The longest waits of streams and of threads, and what they waited for.

use std::cmp::Reverse;

use accelrt::Device;
use accelrt::internal::RecordKind;

use crate::profiler::occupancy::ms;
use crate::profiler::timeline::Timeline;

/// What waited.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitedBy {
    /// A stream, which executed nothing meanwhile.
    Stream(Device, u64),
    /// A thread of the host, with its name; true when it slept, false when it spun.
    Thread(String, bool),
}

/// One wait, and what it waited for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LongWait {
    /// What waited.
    pub waiter: WaitedBy,
    /// How long.
    pub ms: f64,
    /// The device of the stream that was waited for.
    pub device: Device,
    /// The id of the stream that was waited for.
    pub stream_id: u64,
    /// The last task before the place that was waited for, by its name or operation; `None` when
    /// the profile does not have it.
    pub awaited: Option<String>,
}

pub(super) fn longest(timeline: &Timeline, count: usize) -> Vec<LongWait> {
    let of_streams = timeline.tasks.iter().filter_map(|task| {
        let waiter = || WaitedBy::Stream(task.device, task.stream_id);
        task.source.map(|source| (task.end - task.start, source, waiter()))
    });
    let of_threads = timeline.host_waits.iter().filter_map(|wait| {
        let name = timeline.threads.get(&wait.thread).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("thread {}", wait.thread), ToString::to_string);
        let waiter = WaitedBy::Thread(name, wait.kind == RecordKind::Slept);
        wait.awaited.map(|awaited| (wait.end - wait.start, awaited, waiter))
    });
    let mut waits: Vec<_> = of_streams.chain(of_threads).collect();
    waits.sort_by_key(|(ns, ..)| Reverse(*ns));
    waits.truncate(count);
    let wait = |(ns, awaited, waiter): (i64, _, _)| {
        let work = timeline.work_at(awaited);
        let ((device, stream_id), _) = awaited;
        let awaited = work.map(|task| timeline.key(task.key).to_string());
        LongWait { waiter, ms: ms(ns), device, stream_id, awaited }
    };
    waits.into_iter().map(wait).collect()
}
