//! What an allocator did, as values, and as a record of the log.

use std::iter;

use crate::base::device::Device;
use crate::engine::log::context::{AllocationContext, StackId};
use crate::engine::log::record::{Label, LogRecord, MemoryAction, OperationKind, RecordKind};

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
    use crate::engine::log::names::NameId;

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
