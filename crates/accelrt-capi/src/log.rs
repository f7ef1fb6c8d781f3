//! Subscriptions to the log: records of tasks, waits, ranges and memory, as they come.
#![expect(unsafe_code, reason = "exports functions by name, and writes arrays of the caller")]

use std::collections::VecDeque;
use std::ffi::c_char;
use std::mem::MaybeUninit;

use accelrt::Device;
use accelrt::internal::{
    Keeps, LockRank, LogRecord, MemoryWatch, Mutex, ProcessSubscription, RecordKind, TaskWatch,
    Wants, fork, process_log as process,
};

use crate::arguments::{Growing, place, write_all};
use crate::device::CDevice;
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::history::name;
use crate::runtime::runtime;
use crate::status::guard;
use crate::status::{Refused, Status};

/// A subscription to the log. A handle is a number in a pointer's clothes.
pub struct CLog {
    _private: [u8; 0],
}

static LOGS: Slots<Subscribed> = Slots::new(6, "log", None);

struct Subscribed {
    subscription: ProcessSubscription,
    most_records: usize,
    /// At most `most_records` records that a caller had no room for.
    pending: Mutex<Pending>,
    _tasks: Option<TaskWatch>,
    _memory: Option<MemoryWatch>,
}

#[derive(Default)]
struct Pending {
    records: VecDeque<LogRecord>,
    dropped: u64,
}

/// Records of tasks: enqueued, ended, failed, skipped.
pub const LOG_TASKS: u32 = 1;
/// Records of waits of threads.
pub const LOG_WAITS: u32 = 2;
/// Records of ranges that programs have named.
pub const LOG_RANGES: u32 = 4;
/// Records of what allocators do.
pub const LOG_MEMORY: u32 = 8;

/// A thread wrote its first record: `name` is the thread's.
pub const RECORD_THREAD: i32 = 0;
/// A task got its ticket, between `start_ns` and `end_ns`.
pub const RECORD_ENQUEUED: i32 = 1;
/// A task ran from `start_ns` to `end_ns`; of a wait, the stream was blocked meanwhile.
pub const RECORD_ENDED: i32 = 2;
/// As `ACCELRT_RECORD_ENDED`, on a thread that waited for the stream.
pub const RECORD_ENDED_BY_HELPER: i32 = 3;
/// As `ACCELRT_RECORD_ENDED`, with times of the device, from an origin of its own.
pub const RECORD_ENDED_ON_DEVICE: i32 = 4;
/// As `ACCELRT_RECORD_ENDED`: the task failed its stream.
pub const RECORD_FAILED: i32 = 5;
/// A failed stream dropped the task unrun, at `end_ns`.
pub const RECORD_SKIPPED: i32 = 6;
/// A thread waited for the task, and spun.
pub const RECORD_SPUN: i32 = 7;
/// A thread waited for the task, and slept.
pub const RECORD_SLEPT: i32 = 8;
/// A thread was inside of a range of the program.
pub const RECORD_RANGE: i32 = 9;
/// What an allocator did at `start_ns`.
pub const RECORD_MEMORY: i32 = 10;

/// One record. Fields that have no meaning for its kind are 0 or empty; devices then have kind -1.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CLogRecord {
    /// The size of this struct in bytes.
    pub size: usize,
    /// One of `ACCELRT_RECORD_THREAD` to `ACCELRT_RECORD_MEMORY`.
    pub kind: i32,
    /// The number of the thread that wrote it, from 1.
    pub thread: u32,
    /// The device of the stream.
    pub device: CDevice,
    /// The id of the stream on its device.
    pub stream_id: u64,
    /// The number of the task on its stream, from 1.
    pub ticket: u64,
    /// Nanoseconds since the subscription began; what had begun before is negative.
    pub start_ns: i64,
    /// As `start_ns`.
    pub end_ns: i64,
    /// The memory that the task writes, else reads, else the function that it calls.
    pub address: u64,
    /// The bytes of the task.
    pub bytes: u64,
    /// Of a wait the device of the stream that it waits for.
    pub source_device: CDevice,
    /// Of a wait the id of the stream that it waits for.
    pub source_stream_id: u64,
    /// Of a wait the task that it waits for.
    pub source_ticket: u64,
    /// What was done, as "launch" or "copy"; ends with a zero.
    pub operation: [c_char; 16],
    /// The name of the function, kernel, thread, range or tag; ends with a zero, and may be cut.
    pub name: [c_char; 64],
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CLogRecord {
    const FIRST_VERSION_BYTES: usize = 176;
}

impl CLogRecord {
    fn of(record: &LogRecord) -> Self {
        let kind = match record.kind {
            RecordKind::Thread => RECORD_THREAD,
            RecordKind::Enqueued => RECORD_ENQUEUED,
            RecordKind::Ended => RECORD_ENDED,
            RecordKind::EndedByHelper => RECORD_ENDED_BY_HELPER,
            RecordKind::EndedOnDevice => RECORD_ENDED_ON_DEVICE,
            RecordKind::Failed => RECORD_FAILED,
            RecordKind::Skipped => RECORD_SKIPPED,
            RecordKind::Spun => RECORD_SPUN,
            RecordKind::Slept => RECORD_SLEPT,
            RecordKind::Range => RECORD_RANGE,
            RecordKind::Memory(_) => RECORD_MEMORY,
        };
        let text = match record.kind {
            RecordKind::Memory(action) => format!("{action:?}"),
            _ => record.operation.name().unwrap_or_default().to_owned(),
        };
        let none = CDevice { kind: -1, index: 0 };
        let device = |device: Option<Device>| device.map_or(none, CDevice::of);
        let source = record.source();
        let (address, bytes) =
            if source.is_some() { (0, 0) } else { (record.address, record.bytes) };
        let mut operation = [0; 16];
        operation[..15].copy_from_slice(&name(&text)[..15]);
        Self {
            size: size_of::<Self>(),
            kind,
            thread: record.thread,
            device: device(record.device),
            stream_id: record.stream_id,
            ticket: if kind == RECORD_MEMORY { 0 } else { record.ticket },
            start_ns: record.start.cast_signed(),
            end_ns: if kind == RECORD_MEMORY { record.start } else { record.end }.cast_signed(),
            address,
            bytes,
            source_device: device(source.map(|source| source.device)),
            source_stream_id: source.map_or(0, |source| source.stream_id),
            source_ticket: source.map_or(0, |source| source.ticket),
            operation,
            name: name(&record.name().text()),
        }
    }
}

/// Subscribes to records of the process's runtime from now on: `wants` is one or more of
/// `ACCELRT_LOG_TASKS`, `ACCELRT_LOG_WAITS`, `ACCELRT_LOG_RANGES` and `ACCELRT_LOG_MEMORY`, added
/// up. At most `most_records` wait to be taken, apart from those about threads; later ones are
/// dropped and counted. Tasks and requests take longer while a subscription wants them.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_log_subscribe(
    wants: u32,
    most_records: usize,
    log: Option<&mut MaybeUninit<*mut CLog>>,
) -> Status {
    guard(|| {
        let to = place(log, "log")?;
        fork::check()?;
        let sets = [
            (LOG_TASKS, Wants::TASKS),
            (LOG_WAITS, Wants::WAITS),
            (LOG_RANGES, Wants::RANGES),
            (LOG_MEMORY, Wants::MEMORY),
        ];
        let known = sets.iter().fold(0, |all, (bit, _)| all | bit);
        let chosen = sets.iter().filter(|(bit, _)| wants & bit != 0).map(|(_, set)| *set);
        let Some(set) = chosen.reduce(Wants::and).filter(|_| wants & !known == 0) else {
            return Err(Refused::argument(format!("There are no records of kinds {wants}")));
        };
        let runtime = runtime()?;
        let of_runtime = Some(runtime.id());
        let subscription = process::subscribe(set, of_runtime, most_records, Keeps::Oldest);
        let subscribed = Subscribed {
            subscription,
            most_records,
            pending: Mutex::new(LockRank::Runtime, Pending::default()),
            _tasks: (wants & (LOG_TASKS | LOG_WAITS) != 0).then(|| runtime.log_tasks()),
            _memory: (wants & LOG_MEMORY != 0).then(|| runtime.log_memory()),
        };
        to.write(to_pointer(LOGS.insert(subscribed)?));
        Ok(())
    })
}

/// Ends the subscription, and makes the handle stale.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_log_destroy(log: *mut CLog) -> Status {
    guard(|| LOGS.remove(of_pointer(log)).map(drop))
}

/// Takes at most `capacity` records, in the order of each thread, into an array whose elements have
/// `each_bytes` bytes, `sizeof(accelrt_log_record)`. `count` gets the number of those that were
/// taken; `dropped_count`, unless it is NULL, that of the records that were dropped since the call
/// before.
///
/// # Safety
/// `records` has `capacity` elements of `each_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_log_take(
    log: *mut CLog,
    records: *mut CLogRecord,
    each_bytes: usize,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
    dropped_count: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(count, "count")?;
        let log = LOGS.get(of_pointer(log))?;
        fork::check()?;
        let mut pending = log.pending.lock();
        let taken = log.subscription.take();
        pending.dropped += taken.dropped;
        let is_limited = |record: &LogRecord| record.kind != RecordKind::Thread;
        let mut count = pending.records.iter().filter(|record| is_limited(record)).count();
        for record in taken.records {
            if is_limited(&record) && count == log.most_records {
                pending.dropped += 1;
                continue;
            }
            count += usize::from(is_limited(&record));
            pending.records.push_back(record);
        }
        let fitting = capacity.min(pending.records.len());
        let converted: Vec<_> = pending.records.iter().take(fitting).map(CLogRecord::of).collect();
        // SAFETY: the caller passes as many elements.
        unsafe { write_all(&converted, records, each_bytes, "records") }?;
        pending.records.drain(..fitting);
        to.write(fitting);
        if let Some(to) = dropped_count {
            to.write(std::mem::take(&mut pending.dropped));
        }
        Ok(())
    })
}
