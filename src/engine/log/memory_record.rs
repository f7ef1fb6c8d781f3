//! What an allocator did, as values, and as a record of the log.

use crate::base::device::Device;
use crate::engine::log::context::AllocationContext;
use crate::engine::log::record::{Label, LogRecord, MemoryAction, OperationKind, RecordKind};

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
}
