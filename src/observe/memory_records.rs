//! Records of the log as what allocators did, in events.

use std::iter;

use crate::engine::log::context::{AllocationContext, StackId};
use crate::engine::log::memory_record::MemoryRecord;
use crate::engine::log::record::{LogRecord, MemoryAction, RecordKind};

impl MemoryRecord {
    /// `None` for records of other kinds.
    #[expect(clippy::cast_possible_truncation, reason = "as `to_log` put them together")]
    pub(crate) fn of_log(record: &LogRecord) -> Option<Self> {
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
    pub(crate) fn events(self) -> impl Iterator<Item = Self> {
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
    use crate::base::device::Device;
    use crate::engine::log::names::NameId;
    use crate::engine::log::record::OperationKind;

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
