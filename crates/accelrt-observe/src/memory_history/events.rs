//! The history of a runtime's allocators: its subscription, and the events that it has collected.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use accelrt::allocator::snapshot::{TraceAction, TraceEntry};
use accelrt::internal::{
    Keeps, LockRank, MemoryAction, MemoryRecord, MemoryWatch, Moment, Mutex, ProcessSubscription,
    StackId, Taken, Wants, fork, process_log as process,
};
use accelrt::{CachingAllocator, Device, PoolId, Runtime};

/// What the allocators of a runtime's devices do, from the start on; the newest of it.
///
/// Requests and frees take a slower path while a history is there. Memory of the host, and what
/// devices share with it, is not recorded.
///
/// ```
/// use accelrt::{Config, Device, Runtime};
/// use accelrt_observe::memory_history::MemoryHistory;
///
/// let runtime = Runtime::new(Config::default())?;
/// let history = MemoryHistory::start(&runtime, 1000);
/// drop(runtime.empty(512, Device::cpu(0))?);
/// assert!(!history.events(Device::cpu(0)).is_empty());
/// assert_eq!(history.num_dropped_events(), 0);
/// history.clear();
/// # Ok::<(), accelrt::Error>(())
/// ```
pub struct MemoryHistory {
    subscription: ProcessSubscription,
    began: SystemTime,
    most_events: usize,
    collected: Mutex<Collected>,
    /// Dropped behind the subscription, which wants nothing by then.
    _recording: MemoryWatch,
}

#[derive(Debug, Default)]
struct Collected {
    records: VecDeque<MemoryRecord>,
    num_dropped: u64,
}

impl Collected {
    /// Adds what a subscription has taken, in the order of time.
    fn add(&mut self, taken: &Taken) {
        let records = taken.records.iter().filter_map(MemoryRecord::of_log);
        self.records.extend(records.flat_map(MemoryRecord::events));
        // Each thread has a ring of its own: a record may come behind later ones of another thread.
        let records = self.records.make_contiguous();
        records.sort_by_key(|record| record.time.cast_signed());
        self.num_dropped += taken.dropped;
    }

    /// Drops the oldest records beyond a number.
    fn limit(&mut self, most_events: usize) {
        let beyond = self.records.len().saturating_sub(most_events);
        self.records.drain(..beyond);
        self.num_dropped += beyond as u64;
    }
}

/// An event of a history.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryEvent {
    /// What happened, as snapshots have it.
    pub event: TraceEntry,
    /// The size of the block; else as `event.bytes`.
    pub block_bytes: usize,
    /// True for a request for which the device was asked.
    pub is_miss: bool,
    /// The tag of the thread, or of the block that is freed; empty for none.
    pub tag: Arc<str>,
    /// When it was.
    pub time: SystemTime,
    /// The call stack of the event.
    #[doc(hidden)]
    pub stack: StackId,
}

impl MemoryHistory {
    /// Starts a history that keeps the newest `most_events` events of all devices together; at
    /// least one. Each takes 64 bytes.
    #[must_use = "the drop ends the history"]
    pub fn start(runtime: &Runtime, most_events: usize) -> Self {
        let most_events = most_events.max(1);
        let subscription =
            process::subscribe(Wants::MEMORY, Some(runtime.id()), most_events, Keeps::Newest);
        let began = SystemTime::now();
        let collected = Mutex::new(LockRank::Runtime, Collected::default());
        Self { subscription, began, most_events, collected, _recording: runtime.log_memory() }
    }

    /// Forgets the events so far.
    pub fn clear(&self) {
        if fork::is_child() {
            return; // a thread that the child lacks may hold the lock
        }
        let mut collected = self.collected.lock();
        drop(self.subscription.take());
        *collected = Collected::default();
    }

    /// The number of events that are lost: newer ones have replaced them.
    #[must_use]
    pub fn num_dropped_events(&self) -> u64 {
        self.collect(|collected| collected.num_dropped)
    }

    /// The events of a device that are kept, oldest first. A move of pages from one place of a
    /// device to another is a `SegmentUnmap` and a `SegmentMap`.
    #[must_use]
    pub fn events(&self, device: Device) -> Vec<MemoryEvent> {
        self.collect(|collected| {
            let of_device = collected.records.iter().filter(|record| record.device == device);
            of_device.map(|record| self.event(record)).collect()
        })
    }

    /// The segments of allocators, and for each the events of its device that led to them; then how
    /// many older events are lost. Up to the moment of the first allocator, all devices together
    /// have as many events as the history keeps, the newest.
    ///
    /// While this runs, other threads may use the allocators, but must call no method of this
    /// history: their call could take events that belong to the result.
    #[doc(hidden)]
    pub fn moments(
        &self,
        allocators: &[&CachingAllocator],
    ) -> (Vec<(Moment, Vec<MemoryEvent>)>, u64) {
        static MARKERS: AtomicU64 = AtomicU64::new(1);
        if fork::is_child() {
            return (Vec::new(), 0);
        }
        let taken: Vec<_> = allocators
            .iter()
            .map(|allocator| {
                // Relaxed: only uniqueness matters.
                let marker = MARKERS.fetch_add(1, Ordering::Relaxed);
                let mut taken = Taken::default();
                let then = || taken = self.subscription.take_written();
                (allocator.moment(Some(marker), then), marker, taken)
            })
            .collect();
        let mut collected = self.collected.lock();
        for (_, _, taken) in &taken {
            collected.add(taken);
        }
        let records = &collected.records;
        let end_of = |marker: u64| {
            let is_marker = |record: &MemoryRecord| {
                record.action == MemoryAction::Snapshot && record.bytes as u64 == marker
            };
            // Another thread may have collected later ones meanwhile.
            records.iter().rposition(is_marker).map_or(records.len(), |index| index + 1)
        };
        let ends: Vec<_> = taken.iter().map(|(_, marker, _)| end_of(*marker)).collect();
        let first_end = ends.iter().copied().min().unwrap_or(records.len());
        let begin = first_end.saturating_sub(self.most_events);
        let moments = taken.into_iter().zip(allocators).zip(ends);
        let moments = moments.map(|(((moment, _, _), allocator), end)| {
            let of_device = |record: &&MemoryRecord| record.device == allocator.device();
            let events = records.range(begin..end).filter(of_device);
            (moment, events.map(|record| self.event(record)).collect())
        });
        let moments = moments.collect();
        let num_lost = collected.num_dropped + begin as u64;
        collected.limit(self.most_events);
        (moments, num_lost)
    }

    /// Calls `with` with all records up to now; with none in a forked child.
    fn collect<T>(&self, with: impl FnOnce(&Collected) -> T) -> T {
        if fork::is_child() {
            return with(&Collected::default());
        }
        let mut collected = self.collected.lock();
        collected.add(&self.subscription.take());
        collected.limit(self.most_events);
        with(&collected)
    }

    fn event(&self, record: &MemoryRecord) -> MemoryEvent {
        let MemoryRecord { action, address, requested_bytes: bytes, stream_id: stream, .. } =
            *record;
        let action = match action {
            MemoryAction::Hit | MemoryAction::Miss => TraceAction::Alloc,
            MemoryAction::FreeRequested | MemoryAction::Freed => TraceAction::FreeRequested,
            MemoryAction::FreeCompleted => TraceAction::FreeCompleted,
            MemoryAction::SegmentAllocated => TraceAction::SegmentAlloc,
            MemoryAction::SegmentFreed => TraceAction::SegmentFree,
            MemoryAction::PagesMapped | MemoryAction::PagesMovedHere => TraceAction::SegmentMap,
            MemoryAction::PagesUnmapped | MemoryAction::PagesMovedAway => TraceAction::SegmentUnmap,
            MemoryAction::OutOfMemory => TraceAction::OutOfMemory,
            MemoryAction::Snapshot => TraceAction::Snapshot,
        };
        let pool = PoolId(0, u64::from(record.pool));
        MemoryEvent {
            event: TraceEntry { action, address, bytes, stream, pool },
            // A snapshot's record has its number there.
            block_bytes: if action == TraceAction::Snapshot { bytes } else { record.bytes },
            is_miss: record.action == MemoryAction::Miss,
            tag: record.context.tag.text(),
            time: self.time(record.time.cast_signed()),
            stack: record.context.stack,
        }
    }

    fn time(&self, since_began_ns: i64) -> SystemTime {
        let distance = Duration::from_nanos(since_began_ns.unsigned_abs());
        if since_began_ns < 0 { self.began - distance } else { self.began + distance }
    }
}

impl fmt::Debug for MemoryHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryHistory")
            .field("most_events", &self.most_events)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use accelrt::Config;

    use super::*;

    #[test]
    fn an_event_is_as_many_nanoseconds_from_the_begin_as_its_record() {
        let history = MemoryHistory::start(&Runtime::new(Config::default()).unwrap(), 1);
        let began = history.began;
        let nanoseconds = Duration::from_nanos(1500);
        assert_eq!(history.time(1500).duration_since(began).unwrap(), nanoseconds);
        assert_eq!(began.duration_since(history.time(-1500)).unwrap(), nanoseconds);
    }
}
