//! The record of the log: 64 bytes about one task, wait, range, thread or action of an allocator.

use std::iter;

use crate::base::device::Device;
use crate::engine::log::context::{AllocationContext, NameId, StackId};

/// What a task does. A command's type determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// A call of a Rust closure.
    Call,
    /// A call of a C function.
    Launch,
    /// A kernel of a program.
    Kernel,
    /// A copy between two ranges of memory.
    Copy,
    /// A fill with one byte.
    Fill,
    /// A fill with random numbers.
    Random,
    /// A task that another thread finishes through its completion.
    Deferred,
    /// A record of an event.
    Record,
    /// A wait for a record on another stream.
    Wait,
    /// A task of the runtime itself, such as a marker or an inherited error.
    Internal,
}

impl OperationKind {
    /// The name in reports; `None` for tasks of the runtime itself, which are not reported.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Call => Some("call"),
            Self::Launch => Some("launch"),
            Self::Kernel => Some("kernel"),
            Self::Copy => Some("copy"),
            Self::Fill => Some("fill"),
            Self::Random => Some("random"),
            Self::Deferred => Some("deferred"),
            Self::Record => Some("record"),
            Self::Wait => Some("wait"),
            Self::Internal => None,
        }
    }
}

/// What a record says. Times are readings of the runtime's clock, in ticks until they are taken
/// from the subscription, except those of `EndedOnDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A thread has a ring: `name` is the thread's.
    Thread,
    /// A task got its ticket, between `start` and `end`.
    Enqueued,
    /// A task ran from `start` to `end`. `start` is when it was first read at the head of its
    /// queue, so for a wait the stream was blocked meanwhile.
    Ended,
    /// As `Ended`, on a thread that waited for the stream.
    EndedByHelper,
    /// A driver's task: its times are nanoseconds of the device, from an origin that all records of
    /// one device share.
    EndedOnDevice,
    /// As `Ended`; the task failed its stream.
    Failed,
    /// A failed stream dropped the task unrun, at `end`.
    Skipped,
    /// The thread waited from `start` to `end` for the task `ticket`, and spun.
    Spun,
    /// As `Spun`; the thread slept.
    Slept,
    /// The thread was inside of a user's range.
    Range,
    /// What an allocator did at `start`: see `MemoryRecord`.
    Memory(MemoryAction),
}

/// What an allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MemoryAction {
    /// It handed a block out of cached memory.
    Hit,
    /// It handed a block out, for which the device was asked.
    Miss,
    /// The program freed a block.
    FreeRequested,
    /// All streams have passed their uses of a freed block.
    FreeCompleted,
    /// `FreeRequested` and `FreeCompleted` in one record: no other stream used the block.
    Freed,
    /// It took a segment from the device.
    SegmentAllocated,
    /// It gave a segment back.
    SegmentFreed,
    /// It took pages from the device.
    PagesMapped,
    /// It gave pages back.
    PagesUnmapped,
    /// Pages left for another place of the same device.
    PagesMovedAway,
    /// These pages came.
    PagesMovedHere,
    /// A request failed. The address is the number of bytes that the device had free.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
}

/// One record. The fields that a kind does not name are zero.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LogRecord {
    /// What the record tells.
    pub kind: RecordKind,
    /// The operation of the task.
    pub operation: OperationKind,
    /// The device of the task or of the memory.
    pub device: Option<Device>,
    /// The name, or the source of a wait.
    pub label: Label,
    /// The writing thread: a number of its own in this process.
    pub thread: u32,
    /// The runtime's id, whose higher bits are cut off.
    pub runtime: u32,
    /// The id of the stream.
    pub stream_id: u64,
    /// The number of the task in its stream.
    pub ticket: u64,
    /// The beginning, in ticks of the clock.
    pub start: u64,
    /// The end, in ticks of the clock.
    pub end: u64,
    /// The memory that the task writes, else reads, else the function that it calls. Of a wait the
    /// id of the stream that it waits for.
    pub address: u64,
    /// The task's bytes. Of a wait the ticket that it waits for.
    pub bytes: u64,
}

const _: () = assert!(size_of::<LogRecord>() == 64, "a record fills one cache line");

/// The name of what a record is about or, for a wait, the device of the stream that it waits for:
/// waits have no names, and together the two fit into four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Label(u32);

const _: () = assert!(NameId::END <= Label::IS_SOURCE, "no name looks like a device");

impl Label {
    const IS_SOURCE: u32 = 1 << 31;

    pub(crate) const NONE: Self = Self::of(NameId::NONE);

    /// The label of a name.
    #[inline]
    #[must_use]
    pub const fn of(name: NameId) -> Self {
        Self(name.number())
    }

    fn of_source(device: Device) -> Self {
        Self(Self::IS_SOURCE | u32::from(device.to_bits()))
    }

    fn name(self) -> NameId {
        if self.0 & Self::IS_SOURCE == 0 { NameId::of_number(self.0) } else { NameId::NONE }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the device is in the lower half")]
    fn source(self) -> Option<Device> {
        (self.0 & Self::IS_SOURCE != 0).then(|| Device::of_bits(self.0 as u16))
    }
}

/// The point of another stream that a wait waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedSource {
    /// The device of the stream.
    pub device: Device,
    /// The number of the stream on its device.
    pub stream_id: u64,
    /// The place of the task on its stream.
    pub ticket: u64,
}

impl LogRecord {
    /// A record without a stream, times and bytes.
    #[must_use]
    pub const fn new(kind: RecordKind, operation: OperationKind) -> Self {
        Self {
            kind,
            operation,
            device: None,
            label: Label::NONE,
            thread: 0,
            runtime: 0,
            stream_id: 0,
            ticket: 0,
            start: 0,
            end: 0,
            address: 0,
            bytes: 0,
        }
    }

    /// Sets the task that a wait is for.
    pub fn set_source(&mut self, source: &RecordedSource) {
        self.label = Label::of_source(source.device);
        (self.address, self.bytes) = (source.stream_id, source.ticket);
    }

    /// The point that a wait waits for; `None` for other records.
    #[must_use]
    pub fn source(&self) -> Option<RecordedSource> {
        let (stream_id, ticket) = (self.address, self.bytes);
        self.label.source().map(|device| RecordedSource { device, stream_id, ticket })
    }

    /// The name of the task, range, thread or tag.
    #[must_use]
    pub fn name(&self) -> NameId {
        self.label.name()
    }

    /// The number of events that the record tells of.
    pub(super) fn num_events(&self) -> u64 {
        if self.kind == RecordKind::Memory(MemoryAction::Freed) { 2 } else { 1 }
    }

    /// When it was written, in ticks of the host's clock; not for [`RecordKind::EndedOnDevice`].
    pub(super) fn written_at(&self) -> u64 {
        if let RecordKind::Memory(_) = self.kind { self.start } else { self.end }
    }

    /// The readings of the host's clock among `start` and `end`.
    pub(super) fn host_times(&mut self) -> impl Iterator<Item = &mut u64> {
        let count = match self.kind {
            RecordKind::EndedOnDevice => 0,
            RecordKind::Memory(_) => 1,
            _ => 2,
        };
        [&mut self.start, &mut self.end].into_iter().take(count)
    }
}

/// What an allocator did with a block, a segment or pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRecord {
    /// What the allocator did.
    pub action: MemoryAction,
    /// The device of the memory.
    pub device: Device,
    /// The runtime of the allocator, as records have it; 0 for none.
    pub runtime: u32,
    /// The stream of the request.
    pub stream_id: u64,
    /// The number of the private pool; 0 for none.
    pub pool: u32,
    /// The first byte.
    pub address: u64,
    /// The requested size; of a segment and of pages their size.
    pub requested_bytes: usize,
    /// The size of the block.
    pub bytes: usize,
    /// The tag of the memory, and who asked for it.
    pub context: AllocationContext,
    /// When it was: in ticks of the clock, or nanoseconds since the subscription began once taken.
    pub time: u64,
}

impl MemoryRecord {
    #[inline]
    pub(crate) fn to_log(self) -> LogRecord {
        let Self { context: AllocationContext { tag, stack }, .. } = self;
        let empty = LogRecord::new(RecordKind::Memory(self.action), OperationKind::Internal);
        LogRecord {
            device: Some(self.device),
            label: Label::of(tag),
            runtime: self.runtime,
            stream_id: self.stream_id,
            ticket: u64::from(self.pool) << u32::BITS | u64::from(stack.0),
            start: self.time,
            end: self.bytes as u64,
            address: self.address,
            bytes: self.requested_bytes as u64,
            ..empty
        }
    }

    /// `None` for records of other kinds.
    #[expect(clippy::cast_possible_truncation, reason = "as `to_log` put them together")]
    #[must_use]
    pub fn of_log(record: &LogRecord) -> Option<Self> {
        let RecordKind::Memory(action) = record.kind else { return None };
        Some(Self {
            action,
            device: record.device?,
            runtime: record.runtime,
            stream_id: record.stream_id,
            pool: (record.ticket >> u32::BITS) as u32,
            address: record.address,
            requested_bytes: record.bytes as usize,
            bytes: record.end as usize,
            context: AllocationContext { tag: record.name(), stack: StackId(record.ticket as u32) },
            time: record.start,
        })
    }

    /// The events that the record tells of: one, or a request and its completion.
    pub fn events(self) -> impl Iterator<Item = Self> {
        let is_both = self.action == MemoryAction::Freed;
        let context = self.context.of_tag();
        let completed = Self { action: MemoryAction::FreeCompleted, context, ..self };
        let action = if is_both { MemoryAction::FreeRequested } else { self.action };
        iter::once(Self { action, ..self }).chain(is_both.then_some(completed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::log::context::NameId;

    fn record(action: MemoryAction) -> MemoryRecord {
        MemoryRecord {
            action,
            device: Device::cpu(1),
            runtime: 2,
            stream_id: 3,
            pool: u32::MAX,
            address: 5,
            requested_bytes: 6,
            bytes: 7,
            context: AllocationContext { tag: NameId::of("weights"), stack: StackId(u32::MAX) },
            time: 8,
        }
    }

    #[test]
    fn a_free_that_is_complete_at_once_is_two_events_of_which_the_first_has_the_stack() {
        let freed = record(MemoryAction::Freed);
        let completed = AllocationContext { stack: StackId::NONE, ..freed.context };
        let expected = [
            record(MemoryAction::FreeRequested),
            MemoryRecord { context: completed, ..record(MemoryAction::FreeCompleted) },
        ];
        assert_eq!(freed.events().collect::<Vec<_>>(), expected);
        let miss = record(MemoryAction::Miss);
        assert_eq!(miss.events().collect::<Vec<_>>(), [miss]);
    }

    #[test]
    fn a_record_of_the_log_has_all_of_it() {
        let record = record(MemoryAction::Miss);
        assert_eq!(MemoryRecord::of_log(&record.to_log()), Some(record));
        let other = LogRecord::new(RecordKind::Range, OperationKind::Call);
        assert_eq!(MemoryRecord::of_log(&other), None);
    }
}
