//! What an allocator did, as values, and as a record of the log.

use crate::base::device::Device;
use crate::engine::log::context::{AllocationContext, StackId};
use crate::engine::log::record::{LogRecord, MemoryAction, OperationKind, RecordKind};

/// What an allocator did with a block, a segment or pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRecord {
    pub(crate) action: MemoryAction,
    pub(crate) device: Device,
    /// The runtime of the allocator, as records have it; 0 for none.
    pub(crate) runtime: u32,
    pub(crate) stream_id: u64,
    /// The number of the private pool; 0 for none.
    pub(crate) pool: u32,
    pub(crate) address: u64,
    /// The requested size; of a segment and of pages their size.
    pub(crate) requested_bytes: usize,
    /// The size of the block.
    pub(crate) bytes: usize,
    pub(crate) context: AllocationContext,
    /// When it was: in ticks of the clock, or nanoseconds since the subscription began once taken.
    pub(crate) time: u64,
}

impl MemoryRecord {
    pub(crate) fn to_log(self) -> LogRecord {
        let Self { context: AllocationContext { tag, stack }, .. } = self;
        let empty = LogRecord::new(RecordKind::Memory(self.action), OperationKind::Internal);
        LogRecord {
            device: Some(self.device),
            name: tag,
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
            context: AllocationContext { tag: record.name, stack: StackId(record.ticket as u32) },
            time: record.start,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::log::names::NameId;

    #[test]
    fn a_record_of_the_log_has_all_of_it() {
        let record = MemoryRecord {
            action: MemoryAction::Miss,
            device: Device::cpu(1),
            runtime: 2,
            stream_id: 3,
            pool: u32::MAX,
            address: 5,
            requested_bytes: 6,
            bytes: 7,
            context: AllocationContext { tag: NameId::of("weights"), stack: StackId(u32::MAX) },
            time: 8,
        };
        assert_eq!(MemoryRecord::of_log(&record.to_log()), Some(record));
        let other = LogRecord::new(RecordKind::Range, OperationKind::Call);
        assert_eq!(MemoryRecord::of_log(&other), None);
    }
}
