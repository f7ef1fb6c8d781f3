//! The collector: drains the rings of all threads into the buffers of the subscriptions.
//!
//! One lock makes its holder the only reader of every ring. Producers only try to take it, so they
//! never wait for each other; threads that begin, end or read a subscription take it.

use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::sync::unmodelled::{AtomicU8, AtomicU64};
use crate::base::sync::{LockRank, Mutex, Ordering};
use crate::engine::log::context::NameId;
use crate::engine::log::record::{Label, LogRecord, MemoryAction, OperationKind, RecordKind};
use crate::engine::log::ring::{ChunkBudget, RingReader, RingWriter, ring};

/// Sets of kinds of records that a subscription can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants(u8);

impl Wants {
    /// Tasks: enqueued, ended, failed, skipped.
    pub const TASKS: Self = Self(1);
    /// Waits of host threads.
    pub const WAITS: Self = Self(2);
    /// Users' ranges.
    pub const RANGES: Self = Self(4);
    /// What allocators do, which say it only while `allocator::recording` is on.
    pub const MEMORY: Self = Self(8);

    /// The kinds of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const ALL: [Self; 4] = [Self::TASKS, Self::WAITS, Self::RANGES, Self::MEMORY];

    /// The set that a record belongs to.
    fn of(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Spun | RecordKind::Slept => Self::WAITS,
            RecordKind::Range => Self::RANGES,
            RecordKind::Memory(_) => Self::MEMORY,
            // Names of threads too: only profiles use them, which request tasks.
            _ => Self::TASKS,
        }
    }

    fn has(self, kind: RecordKind) -> bool {
        self.0 & Self::of(kind).0 != 0
    }
}

/// Unread records that all rings together may have beyond their first chunks, at least: 16 MiB.
const MIN_UNREAD_RECORDS: u64 = 1 << 18;

/// Records that rings refused, by their set.
#[derive(Debug, Default)]
struct RefusedRecords {
    counts: [AtomicU64; Wants::ALL.len()],
    /// Those of memory that are two events.
    of_two_events: AtomicU64,
}

impl RefusedRecords {
    #[cold]
    #[inline(never)]
    fn add(&self, kind: RecordKind) {
        // Relaxed, here and below: the counts order nothing.
        let sets = Wants::ALL.iter().zip(&self.counts);
        for (_, count) in sets.filter(|(set, _)| set.has(kind)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if kind == RecordKind::Memory(MemoryAction::Freed) {
            self.of_two_events.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves the counts to the subscriptions that request such records. A runtime's are counted by
    /// subscriptions to other runtimes too.
    fn move_to(&self, buffers: &mut [Buffer]) {
        let of_two_events = self.of_two_events.swap(0, Ordering::Relaxed);
        for (set, count) in Wants::ALL.iter().zip(&self.counts) {
            let count = count.swap(0, Ordering::Relaxed);
            for buffer in buffers.iter_mut().filter(|it| it.wants.0 & set.0 != 0) {
                let counts_events = buffer.keeps == Keeps::Newest && *set == Wants::MEMORY;
                buffer.dropped += count + if counts_events { of_two_events } else { 0 };
            }
        }
    }
}

/// The rings of all threads, and the subscriptions.
pub(crate) struct Log {
    inner: Mutex<Collector>,
    /// What some subscription asks for. A hint for producers.
    wanted: AtomicU8,
    /// What the rings may hold, by the limits of the subscriptions.
    budget: Arc<ChunkBudget>,
    refused: RefusedRecords,
}

struct Collector {
    rings: Vec<ThreadRing>,
    buffers: Vec<Buffer>,
    last_thread: u32,
    last_subscription: u64,
}

struct ThreadRing {
    reader: RingReader,
    /// The record about the thread, for later subscriptions.
    thread: LogRecord,
}

/// The records of one subscription that were not taken yet.
struct Buffer {
    subscription: u64,
    wants: Wants,
    /// The only runtime whose tasks and waits are wanted.
    runtime: Option<u32>,
    records: Vec<LogRecord>,
    /// How many of them are about threads. These do not count against the limit.
    num_threads: usize,
    /// Of one that keeps the newest: what `settle` has put in order before.
    settled: VecDeque<LogRecord>,
    limit: usize,
    keeps: Keeps,
    dropped: u64,
}

/// Which records a subscription keeps at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Keep the first records, and count the later ones.
    Oldest,
    /// Keep the last records, and count the earlier ones.
    Newest,
}

impl Buffer {
    fn is_wanted(&self, record: &LogRecord) -> bool {
        let is_of_runtime = self.runtime.is_none_or(|runtime| runtime == record.runtime);
        let has_runtime = !matches!(record.kind, RecordKind::Thread | RecordKind::Range);
        self.wants.has(record.kind) && (is_of_runtime || !has_runtime)
    }

    fn add(&mut self, records: &[LogRecord]) {
        // Where one kind of things happens, a subscription wants all of it or nothing.
        if records.iter().all(|record| self.is_wanted(record)) {
            return self.keep(records);
        }
        for record in records {
            if self.is_wanted(record) {
                self.keep(slice::from_ref(record));
            }
        }
    }

    /// Adds the record about a thread. One that keeps the newest needs none: it requests no tasks.
    fn add_thread(&mut self, thread: LogRecord) {
        if self.is_wanted(&thread) && self.keeps == Keeps::Oldest {
            self.records.push(thread);
            self.num_threads += 1;
        }
    }

    fn keep(&mut self, records: &[LogRecord]) {
        let room = match self.keeps {
            Keeps::Oldest => self.limit.saturating_sub(self.records.len() - self.num_threads),
            Keeps::Newest => usize::MAX, // `settle` makes it
        };
        let (kept, beyond) = records.split_at(room.min(records.len()));
        self.records.extend_from_slice(kept);
        self.dropped += beyond.len() as u64;
    }

    /// Drops the oldest records beyond the limit. Rings are read one behind the other, so that what
    /// comes last is not the newest.
    fn settle(&mut self) {
        if self.keeps == Keeps::Newest {
            self.records.sort_by_key(LogRecord::written_at);
            self.settled.extend(self.records.drain(..));
            let beyond = self.settled.len().saturating_sub(self.limit);
            self.dropped += self.settled.drain(..beyond).map(|it| it.num_events()).sum::<u64>();
        }
    }

    fn take(&mut self) -> Taken {
        self.num_threads = 0;
        let records = match self.keeps {
            Keeps::Oldest => std::mem::take(&mut self.records),
            Keeps::Newest => std::mem::take(&mut self.settled).into(),
        };
        Taken { records, dropped: std::mem::take(&mut self.dropped) }
    }
}

impl Collector {
    fn collect(&mut self, refused: &RefusedRecords) {
        let Self { rings, buffers, .. } = self;
        for ring in rings {
            ring.reader.drain(|records| buffers.iter_mut().for_each(|buffer| buffer.add(records)));
        }
        refused.move_to(buffers);
        buffers.iter_mut().for_each(Buffer::settle);
    }
}

/// A thread's ring, and the thread's number.
pub(crate) struct ThreadLog {
    writer: RingWriter,
    number: u32,
}

/// What a subscription got since it was read before.
#[derive(Debug, Default)]
pub struct Taken {
    /// In the order of each thread. Times are nanoseconds since the subscription began, as signed
    /// numbers: a task may have begun before.
    pub records: Vec<LogRecord>,
    /// The number of records that were dropped for want of room.
    pub dropped: u64,
}

impl Log {
    pub(crate) fn new() -> Arc<Self> {
        let collector = Collector {
            rings: Vec::new(),
            buffers: Vec::new(),
            last_thread: 0,
            last_subscription: 0,
        };
        let inner = Mutex::new(LockRank::Log, collector);
        let (budget, refused) = (Arc::default(), RefusedRecords::default());
        Arc::new(Self { inner, wanted: AtomicU8::new(0), budget, refused })
    }

    /// True while some subscription asks for one of these.
    #[inline]
    pub(crate) fn is_wanted(&self, wants: Wants) -> bool {
        // Relaxed: records that race with the begin or the end of a subscription may be missing.
        self.wanted.load(Ordering::Relaxed) & wants.0 != 0
    }

    /// Makes the ring of a thread.
    pub(super) fn add_thread(&self, name: NameId) -> ThreadLog {
        let (writer, reader) = ring(&self.budget);
        let mut collector = self.inner.lock();
        collector.last_thread += 1;
        let number = collector.last_thread;
        let thread = LogRecord::new(RecordKind::Thread, OperationKind::Internal);
        let thread = LogRecord { label: Label::of(name), thread: number, ..thread };
        collector.buffers.iter_mut().for_each(|buffer| buffer.add_thread(thread));
        collector.rings.push(ThreadRing { reader, thread });
        ThreadLog { writer, number }
    }

    /// Reads the rest of a thread's records, and frees its ring.
    pub(super) fn remove_thread(&self, thread: &ThreadLog) {
        let ring = {
            let mut collector = self.inner.lock();
            collector.collect(&self.refused);
            let index = collector.rings.iter().position(|one| one.reader.is_of(&thread.writer));
            index.map(|index| collector.rings.swap_remove(index))
        };
        drop(ring);
    }

    /// Writes a record of this thread.
    #[inline(always)]
    pub(super) fn write(&self, thread: &ThreadLog, record: &LogRecord) {
        if !thread.writer.write(record, thread.number, || self.try_collect()) {
            self.refused.add(record.kind);
        }
    }

    /// Keeps other threads from collecting until the guard is dropped.
    #[cfg(all(test, not(loom)))]
    pub(super) fn hold(&self) -> impl Sized + use<'_> {
        self.inner.lock()
    }

    /// Collects, unless another thread collects at this moment.
    #[cold]
    fn try_collect(&self) {
        if let Some(mut collector) = self.inner.try_lock() {
            collector.collect(&self.refused);
        }
    }

    /// Hands records over that belong to no thread's ring.
    pub(super) fn add(&self, records: &[LogRecord]) {
        self.inner.lock().buffers.iter_mut().for_each(|buffer| buffer.add(records));
    }

    /// Begins a subscription. `runtime` is the id of the only runtime whose records are wanted;
    /// `limit` is the most records that wait to be taken, beside those about threads.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        wants: Wants,
        runtime: Option<u64>,
        limit: usize,
        keeps: Keeps,
    ) -> Subscription {
        let mut collector = self.inner.lock();
        collector.collect(&self.refused); // earlier records are for the earlier subscriptions
        collector.last_subscription += 1;
        let subscription = collector.last_subscription;
        let runtime = runtime.map(shortened);
        let (records, num_threads, settled, dropped) = (Vec::new(), 0, VecDeque::new(), 0);
        let mut buffer = Buffer {
            subscription,
            wants,
            runtime,
            records,
            num_threads,
            settled,
            limit,
            keeps,
            dropped,
        };
        collector.rings.iter().for_each(|ring| buffer.add_thread(ring.thread));
        collector.buffers.push(buffer);
        self.publish_wanted(&collector);
        drop(collector);
        Subscription { log: Arc::clone(self), number: subscription, origin: now() }
    }

    fn publish_wanted(&self, collector: &Collector) {
        let wanted = collector.buffers.iter().fold(0, |wanted, buffer| wanted | buffer.wants.0);
        // Relaxed: as in `is_wanted`.
        self.wanted.store(wanted, Ordering::Relaxed);
        let limits = collector.buffers.iter().map(|buffer| buffer.limit as u64);
        let limit = limits.reduce(u64::saturating_add);
        self.budget.set_records(limit.map_or(0, |limit| limit.max(MIN_UNREAD_RECORDS)));
    }

    /// True while some subscription asks for the tasks of this runtime.
    pub(super) fn is_runtime_wanted(&self, runtime: u32) -> bool {
        let collector = self.inner.lock();
        let is_wanted = |it: &Buffer| it.runtime.is_none_or(|wanted| wanted == runtime);
        collector.buffers.iter().any(|it| it.wants.has(RecordKind::Ended) && is_wanted(it))
    }
}

/// Records of the log from here on, until the drop.
pub(crate) struct Subscription {
    log: Arc<Log>,
    number: u64,
    /// The reading of the clock from which taken records count.
    origin: u64,
}

impl Subscription {
    /// Collects, and takes what has come since the last call.
    pub(crate) fn take(&self) -> Taken {
        let mut taken = self.take_ticks();
        if cfg!(loom) {
            return taken; // models have no clock
        }
        let to_ns = Clock::get().converter(self.origin);
        for record in &mut taken.records {
            for time in record.host_times() {
                *time = to_ns(*time).cast_unsigned();
            }
        }
        taken
    }

    pub(super) fn take_ticks(&self) -> Taken {
        let mut collector = self.log.inner.lock();
        collector.collect(&self.log.refused);
        let own = collector.buffers.iter_mut().find(|one| one.subscription == self.number);
        let own = own.expect("a subscription has its buffer until the drop");
        own.take()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let buffer = {
            let mut collector = self.log.inner.lock();
            let index =
                collector.buffers.iter().position(|buffer| buffer.subscription == self.number);
            let buffer = index.map(|index| collector.buffers.swap_remove(index));
            self.log.publish_wanted(&collector);
            buffer
        };
        drop(buffer);
    }
}

/// A runtime's id as records have it.
pub(crate) fn shortened(runtime: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "four billion runtimes later")]
    let short = runtime as u32;
    short
}

/// A reading of the clock for a record; 0 in models, which have no clock.
#[inline]
#[must_use]
pub fn now() -> u64 {
    if cfg!(loom) { 0 } else { Clock::get().now_ticks() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::log::ring::CHUNK_RECORDS;

    fn record(kind: RecordKind, runtime: u32, ticket: u64) -> LogRecord {
        LogRecord { runtime, ticket, ..LogRecord::new(kind, OperationKind::Call) }
    }

    fn tickets(subscription: &Subscription) -> Vec<u64> {
        let records = subscription.take().records.into_iter();
        records.filter(|it| it.kind != RecordKind::Thread).map(|it| it.ticket).collect()
    }

    #[test]
    fn each_subscription_gets_what_it_asks_for_from_its_begin_on() {
        let log = Log::new();
        let thread = log.add_thread(NameId::NONE);
        let write = |kind, runtime, ticket| log.write(&thread, &record(kind, runtime, ticket));
        write(RecordKind::Ended, 1, 1);
        let all = log.subscribe(Wants::TASKS.and(Wants::WAITS), None, 100, Keeps::Oldest);
        write(RecordKind::Ended, 1, 2);
        let waits = log.subscribe(Wants::WAITS, Some(1), 100, Keeps::Oldest);
        write(RecordKind::Slept, 1, 3);
        write(RecordKind::Slept, 2, 4);
        write(RecordKind::Range, 0, 5);
        assert_eq!((tickets(&all), tickets(&waits)), (vec![2, 3, 4], vec![3]));
        assert!(log.is_wanted(Wants::TASKS) && !log.is_wanted(Wants::RANGES));
        drop(all);
        assert!(!log.is_wanted(Wants::TASKS) && log.is_wanted(Wants::WAITS));
        write(RecordKind::Slept, 1, 6);
        assert_eq!((tickets(&waits), tickets(&waits)), (vec![6], vec![]));
    }

    #[test]
    fn a_subscription_at_its_limit_counts_what_it_drops() {
        let log = Log::new();
        let all = log.subscribe(Wants::TASKS, None, 3, Keeps::Oldest);
        let thread = log.add_thread(NameId::NONE);
        for ticket in 1..=5 {
            log.write(&thread, &record(RecordKind::Ended, 0, ticket));
        }
        let taken = all.take(); // with the record about the thread, which counts for nothing
        assert_eq!((taken.records.len(), taken.dropped), (4, 2));
        log.write(&thread, &record(RecordKind::Ended, 0, 6));
        let taken = all.take();
        assert_eq!((taken.records[0].ticket, taken.dropped), (6, 0));
    }

    #[test]
    fn a_dropped_record_of_two_events_counts_as_two() {
        let log = Log::new();
        let newest = log.subscribe(Wants::MEMORY, None, 1, Keeps::Newest);
        let thread = log.add_thread(NameId::NONE);
        let write = |action| log.write(&thread, &record(RecordKind::Memory(action), 0, 0));
        [MemoryAction::Freed, MemoryAction::Hit, MemoryAction::Miss].into_iter().for_each(write);
        let taken = newest.take();
        assert_eq!((taken.records.len(), taken.dropped), (1, 3));
    }

    #[test]
    fn the_ring_of_a_thread_that_ends_is_read_and_freed() {
        let log = Log::new();
        let all = log.subscribe(Wants::TASKS, None, 100, Keeps::Oldest);
        let thread = log.add_thread(NameId::of("worker 1"));
        log.write(&thread, &record(RecordKind::Ended, 0, 1));
        log.remove_thread(&thread);
        assert!(log.inner.lock().rings.is_empty());
        let records = all.take().records;
        assert_eq!((&*records[0].name().text(), records[1].ticket), ("worker 1", 1));
        assert_eq!(records[0].thread, records[1].thread);
    }

    /// Writes from a thread of its own while this thread has the collector.
    fn write_during_a_collection(log: &Arc<Log>, records: Vec<LogRecord>) {
        let thread = log.add_thread(NameId::NONE);
        let collector = log.inner.lock();
        let of_thread = Arc::clone(log);
        let write = move || records.iter().for_each(|record| of_thread.write(&thread, record));
        std::thread::spawn(write).join().unwrap();
        drop(collector);
    }

    #[test]
    fn records_of_a_long_collection_are_kept() {
        let log = Log::new();
        let all = log.subscribe(Wants::TASKS, None, usize::MAX, Keeps::Oldest);
        let expected: Vec<_> = (0..=20 * CHUNK_RECORDS).collect();
        let records = expected.iter().map(|ticket| record(RecordKind::Ended, 0, *ticket));
        write_during_a_collection(&log, records.collect());
        let Taken { records, dropped } = all.take();
        assert_eq!(dropped, 0);
        assert!(records.iter().skip(1).map(|it| it.ticket).eq(expected));
        assert_eq!(log.budget.linked(), 0);
    }

    #[test]
    fn refused_records_count_for_their_subscribers() {
        let log = Log::new();
        let subscribe = |wants, keeps| log.subscribe(wants, None, 10, keeps);
        let subscriptions = [
            subscribe(Wants::TASKS, Keeps::Oldest),
            subscribe(Wants::MEMORY.and(Wants::TASKS), Keeps::Newest),
            subscribe(Wants::RANGES, Keeps::Oldest),
        ];
        let count = MIN_UNREAD_RECORDS + 3 * CHUNK_RECORDS;
        let tasks = (0..count).map(|ticket| record(RecordKind::Ended, 0, ticket));
        let freed = record(RecordKind::Memory(MemoryAction::Freed), 0, 0);
        write_during_a_collection(&log, tasks.chain([freed; 3]).collect());
        let taken = subscriptions.each_ref().map(Subscription::take);
        let sum = |taken: &Taken| taken.records.len() as u64 + taken.dropped;
        // The first got the record about the thread, beside its limit; three frees are six events.
        assert_eq!(taken.each_ref().map(sum), [count + 1, count + 6, 0]);
        assert_eq!(taken.each_ref().map(|it| it.records.len()), [11, 10, 0]);
    }

    #[test]
    fn threads_that_write_beside_each_other_lose_nothing() {
        // Goal: no record is lost or changes its place. Method: four threads write ten chunks each,
        // and each of them collects when no other one does.
        let log = Log::new();
        let all = log.subscribe(Wants::TASKS, None, usize::MAX, Keeps::Oldest);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let thread = log.add_thread(NameId::NONE);
                    for ticket in 0..10 * CHUNK_RECORDS {
                        log.write(&thread, &record(RecordKind::Ended, 0, ticket));
                    }
                    log.remove_thread(&thread);
                });
            }
        });
        let taken = all.take();
        assert_eq!(taken.dropped, 0);
        for number in 1..=4 {
            let of_thread = taken.records.iter().filter(|it| it.thread == number).skip(1);
            assert!(of_thread.map(|it| it.ticket).eq(0..10 * CHUNK_RECORDS));
        }
    }
}
