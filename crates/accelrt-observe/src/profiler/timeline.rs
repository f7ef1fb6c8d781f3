//! The records of a profile in order: tasks with their enqueues, waits, ranges, threads and names.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use accelrt::Device;
use accelrt::internal::{LogRecord, MemoryRecord, NameId, OperationKind, RecordKind, Taken};

use crate::profiler::library_calls::{LibraryCall, lanes};
use crate::profiler::memory;
use crate::profiler::memory::{MemoryBytes, MemorySample};

/// Finds the name of a C function by its address, for a language that knows it.
static FUNCTION_NAMES: OnceLock<fn(u64) -> Option<String>> = OnceLock::new();

/// Sets where names of C functions come from. Later calls have no effect.
pub fn set_function_names(find: fn(u64) -> Option<String>) {
    FUNCTION_NAMES.get_or_init(|| find);
}

/// A stream of the profiled runtime.
pub(super) type StreamKey = (Device, u64);

/// A task that ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProfiledTask {
    pub(super) device: Device,
    pub(super) stream_id: u64,
    pub(super) ticket: u64,
    /// Nanoseconds since the profile began.
    pub(super) start: i64,
    pub(super) end: i64,
    /// True when a device measured the times.
    is_on_device: bool,
    pub(super) operation: OperationKind,
    pub(super) has_failed: bool,
    pub(super) key: u32,
    pub(super) bytes: u64,
    /// What a wait waits for: a stream and a ticket.
    pub(super) source: Option<(StreamKey, u64)>,
    /// `None` for a task that was enqueued before the profile began.
    pub(super) enqueued: Option<EnqueueCall>,
}

/// The call that enqueued a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnqueueCall {
    pub(super) thread: u32,
    pub(super) start: i64,
    pub(super) end: i64,
}

impl ProfiledTask {
    pub(super) fn stream(&self) -> StreamKey {
        (self.device, self.stream_id)
    }

    /// True for a wait for another stream: its stream was blocked, not busy.
    pub(super) fn is_wait(&self) -> bool {
        self.source.is_some()
    }
}

/// What a thread of the host did from `start` to `end`: a user's range, or a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostSpan {
    pub(super) kind: RecordKind,
    pub(super) thread: u32,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) key: u32,
    /// The stream and the ticket that a wait waited for.
    pub(super) awaited: Option<(StreamKey, u64)>,
}

/// A call that a library told of.
#[derive(Clone, Debug)]
pub(super) struct CallSpan {
    pub(super) call: LibraryCall,
    pub(super) key: u32,
    /// Which of its library's tracks it stands on.
    pub(super) lane: usize,
}

#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// In the order of their streams, and in each stream of its tickets.
    pub(super) tasks: Vec<ProfiledTask>,
    /// In the order of their threads and beginnings; one that contains another comes first.
    pub(super) ranges: Vec<HostSpan>,
    pub(super) host_waits: Vec<HostSpan>,
    /// In the order of their beginnings.
    pub(super) calls: Vec<CallSpan>,
    /// The names of the threads that wrote records.
    pub(super) threads: BTreeMap<u32, Arc<str>>,
    /// By device, and in the order of time.
    pub(super) memory: Vec<MemorySample>,
    pub(super) num_skipped: u64,
    pub(super) num_dropped: u64,
    keys: Keys,
}

/// The keys of tasks and ranges as numbers.
#[derive(Debug, Default)]
struct Keys {
    texts: Vec<Arc<str>>,
    numbers: HashMap<KeySource, u32>,
}

/// What a key is made of.
#[derive(Debug, PartialEq, Eq, Hash)]
enum KeySource {
    Named(NameId),
    Function(u64),
    Unnamed(OperationKind),
    Call(String),
}

impl Keys {
    fn number(&mut self, source: KeySource, text: impl FnOnce() -> Arc<str>) -> u32 {
        let Self { texts, numbers } = self;
        *numbers.entry(source).or_insert_with(|| {
            texts.push(text());
            u32::try_from(texts.len() - 1).expect("fewer keys than records")
        })
    }

    fn of(&mut self, record: &LogRecord) -> u32 {
        let name = record.name();
        if name != NameId::NONE {
            return self.number(KeySource::Named(name), || name.text());
        }
        let operation: Arc<str> = record.operation.name().unwrap_or("internal").into();
        if record.operation != OperationKind::Launch {
            return self.number(KeySource::Unnamed(record.operation), || operation);
        }
        let name = || FUNCTION_NAMES.get().and_then(|find| find(record.address));
        let text = || name().map_or(operation, Arc::from);
        self.number(KeySource::Function(record.address), text)
    }
}

impl Timeline {
    /// `memory_at_begin` has the bytes of each device when the first record was written.
    pub(super) fn new(
        taken: Taken,
        calls: Vec<LibraryCall>,
        memory_at_begin: BTreeMap<Device, MemoryBytes>,
    ) -> Self {
        let mut timeline = Self { num_dropped: taken.dropped, ..Self::default() };
        let mut enqueued = Vec::new();
        let mut of_memory = Vec::new();
        for record in taken.records {
            match MemoryRecord::of_log(&record) {
                Some(record) => of_memory.push(record),
                None => timeline.add(&record, &mut enqueued),
            }
        }
        timeline.memory = memory::samples(memory_at_begin, of_memory);
        timeline.join(enqueued);
        timeline.place_device_tasks();
        let order = |span: &HostSpan| (span.thread, span.start, -span.end);
        timeline.ranges.sort_by_key(order);
        timeline.host_waits.sort_by_key(order);
        timeline.add_calls(calls);
        timeline
    }

    fn add_calls(&mut self, mut calls: Vec<LibraryCall>) {
        let lanes = lanes(&mut calls);
        for (call, lane) in calls.into_iter().zip(lanes) {
            let key = &call.told.key;
            let key = self.keys.number(KeySource::Call(key.clone()), || key.as_str().into());
            self.calls.push(CallSpan { call, key, lane });
        }
    }

    fn add(&mut self, record: &LogRecord, enqueued: &mut Vec<((StreamKey, u64), EnqueueCall)>) {
        let (start, end) = (record.start.cast_signed(), record.end.cast_signed());
        let (Some(device), stream_id, ticket) = (record.device, record.stream_id, record.ticket)
        else {
            return self.add_of_thread(record, start, end);
        };
        let place = ((device, stream_id), ticket);
        match record.kind {
            RecordKind::Enqueued => {
                enqueued.push((place, EnqueueCall { thread: record.thread, start, end }));
            }
            RecordKind::Skipped => self.num_skipped += 1,
            RecordKind::Spun | RecordKind::Slept => self.host_waits.push(HostSpan {
                kind: record.kind,
                thread: record.thread,
                start,
                end,
                key: 0,
                awaited: Some(place),
            }),
            _ => {
                let source = record.source();
                let bytes = if source.is_some() { 0 } else { record.bytes };
                let key = self.keys.of(record);
                self.tasks.push(ProfiledTask {
                    device,
                    stream_id,
                    ticket,
                    start,
                    end,
                    is_on_device: record.kind == RecordKind::EndedOnDevice,
                    operation: record.operation,
                    has_failed: record.kind == RecordKind::Failed,
                    key,
                    bytes,
                    source: source.map(|it| ((it.device, it.stream_id), it.ticket)),
                    enqueued: None,
                });
            }
        }
    }

    fn add_of_thread(&mut self, record: &LogRecord, start: i64, end: i64) {
        let thread = record.thread;
        match record.kind {
            RecordKind::Thread => {
                self.threads.insert(thread, record.name().text());
            }
            RecordKind::Range => {
                let (kind, key) = (record.kind, self.keys.of(record));
                self.ranges.push(HostSpan { kind, thread, start, end, key, awaited: None });
            }
            _ => {}
        }
    }

    /// Gives each task the call that enqueued it.
    fn join(&mut self, mut enqueued: Vec<((StreamKey, u64), EnqueueCall)>) {
        enqueued.sort_by_key(|(place, _)| *place);
        self.tasks.sort_by_key(|task| (task.stream(), task.ticket));
        let mut calls = enqueued.into_iter().peekable();
        for task in &mut self.tasks {
            let place = (task.stream(), task.ticket);
            while calls.next_if(|(earlier, _)| *earlier < place).is_some() {}
            task.enqueued = calls.next_if(|(own, _)| *own == place).map(|(_, call)| call);
        }
    }

    /// Moves the tasks with times of a device to the host's clock. No task begins before it is
    /// enqueued, and one on an idle device begins at once: so the device's clock is taken to be
    /// behind by the most that any task would otherwise begin too early.
    fn place_device_tasks(&mut self) {
        let mut offsets: BTreeMap<Device, i64> = BTreeMap::new();
        for task in self.tasks.iter().filter(|task| task.is_on_device) {
            if let Some(call) = task.enqueued {
                let early = call.start - task.start;
                offsets.entry(task.device).and_modify(|it| *it = early.max(*it)).or_insert(early);
            }
        }
        for task in self.tasks.iter_mut().filter(|task| task.is_on_device) {
            let offset = offsets.get(&task.device).copied().unwrap_or_default();
            (task.start, task.end) = (task.start + offset, task.end + offset);
        }
    }

    /// True when nothing happened. Names of threads and the bytes at the begin are no events.
    pub(super) fn is_empty(&self) -> bool {
        let has_no_spans = self.tasks.is_empty() && self.ranges.is_empty() && self.calls.is_empty();
        let is_complete = self.num_skipped == 0 && self.num_dropped == 0;
        has_no_spans && self.host_waits.is_empty() && is_complete
    }

    pub(super) fn key(&self, number: u32) -> &Arc<str> {
        &self.keys.texts[number as usize]
    }

    /// The tasks of each stream.
    pub(super) fn by_stream(&self) -> impl Iterator<Item = &[ProfiledTask]> {
        self.tasks.chunk_by(|one, next| one.stream() == next.stream())
    }

    /// The task of a stream with this ticket, else the last one before it.
    pub(super) fn task_at(&self, place: (StreamKey, u64)) -> Option<&ProfiledTask> {
        let behind = self.tasks.partition_point(|task| (task.stream(), task.ticket) <= place);
        self.tasks[..behind].last().filter(|task| task.stream() == place.0)
    }

    /// What a wait for this place waited for: the last task before it but for records and waits.
    pub(super) fn work_at(&self, place: (StreamKey, u64)) -> Option<&ProfiledTask> {
        let behind = self.tasks.partition_point(|task| (task.stream(), task.ticket) <= place);
        let of_stream = self.tasks[..behind].iter().rev().take_while(|it| it.stream() == place.0);
        of_stream.into_iter().find(|it| it.operation != OperationKind::Record && !it.is_wait())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: RecordKind, ticket: u64, start: i64, end: i64) -> LogRecord {
        let record = LogRecord::new(kind, OperationKind::Fill);
        let (start, end) = (start.cast_unsigned(), end.cast_unsigned());
        LogRecord { device: Some(Device::cpu(1)), stream_id: 3, ticket, start, end, ..record }
    }

    fn timeline(records: Vec<LogRecord>) -> Timeline {
        Timeline::new(Taken { records, dropped: 0 }, Vec::new(), BTreeMap::new())
    }

    #[test]
    fn tasks_of_a_device_are_placed_where_none_begins_before_its_enqueue_and_one_at_it() {
        // The device's clock is 1000 behind; the second task waited for the first one.
        let timeline = timeline(vec![
            record(RecordKind::EndedOnDevice, 2, 50, 80),
            record(RecordKind::EndedOnDevice, 1, 0, 50),
            record(RecordKind::Enqueued, 1, 1000, 1001),
            record(RecordKind::Enqueued, 2, 1002, 1003),
            record(RecordKind::EndedOnDevice, 3, 100, 110),
        ]);
        let times: Vec<_> = timeline.tasks.iter().map(|task| (task.start, task.end)).collect();
        assert_eq!(times, [(1000, 1050), (1050, 1080), (1100, 1110)]);
        let calls: Vec<_> = timeline.tasks.iter().map(|it| it.enqueued.map(|it| it.end)).collect();
        assert_eq!(calls, [Some(1001), Some(1003), None], "the third was enqueued before");
    }

    #[test]
    fn the_work_before_a_record_is_what_a_wait_for_it_waits_for() {
        let of = |operation, ticket| {
            let record = record(RecordKind::Ended, ticket, 0, 1);
            LogRecord { operation, ..record }
        };
        let timeline = timeline(vec![
            of(OperationKind::Copy, 4),
            of(OperationKind::Fill, 6),
            of(OperationKind::Record, 7),
            of(OperationKind::Copy, 8),
        ]);
        let stream = (Device::cpu(1), 3);
        let work = |stream, ticket| timeline.work_at((stream, ticket)).map(|task| task.ticket);
        assert_eq!((work(stream, 7), work(stream, 5), work(stream, 3)), (Some(6), Some(4), None));
        assert_eq!(work((Device::cpu(1), 4), 7), None, "of another stream");
    }
}
