//! Snapshots: an allocator's blocks and the events before, as plain values in torch's schema.
//!
//! Names are accelrt's (`total_bytes` for `total_size`), meanings those of the dictionaries from
//! `torch.cuda.memory._dump_snapshot`, without stacks and times.

use crate::memory::allocator::request::PoolId;

/// The state of one device's allocator, and the events that led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The segments by address, tiled by their blocks.
    pub segments: Vec<SegmentInfo>,
    /// Events, oldest first, that end in `segments`; empty when nothing was recorded.
    pub trace: Vec<TraceEntry>,
}

/// A range of memory from the device; of an expandable segment a contiguous mapped part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Index of the device.
    pub device_index: usize,
    /// The first address.
    pub address: u64,
    /// Size.
    pub total_bytes: usize,
    /// Bytes of the allocated blocks.
    pub allocated_bytes: usize,
    /// Bytes of the allocated blocks and those that await their free.
    pub active_bytes: usize,
    /// Requested bytes of the active blocks.
    pub requested_bytes: usize,
    /// The stream whose requests it serves.
    pub stream: u64,
    /// The class of the requests that it serves.
    pub class: PoolClass,
    /// The private pool that it belongs to; `(0, 0)` for none.
    pub pool: PoolId,
    /// True when pages are mapped and unmapped one by one.
    pub is_expandable: bool,
    /// The blocks by address, without gaps.
    pub blocks: Vec<BlockInfo>,
}

impl SegmentInfo {
    /// Returns a copy of `head` for each contiguous part of `blocks`, which are sorted by address.
    pub(super) fn parts(head: &Self, blocks: &[BlockInfo]) -> Vec<Self> {
        let parts = blocks.chunk_by(|block, next| block.end() == next.address);
        let info = |blocks: &[BlockInfo]| {
            let (address, blocks) = (blocks[0].address, blocks.to_vec());
            let mut part = Self { address, blocks, ..head.clone() };
            part.sum_up();
            part
        };
        parts.map(info).collect()
    }

    /// Makes free neighbours one block.
    pub(super) fn join_free(&mut self) {
        let is_free = |block: &BlockInfo| block.state == BlockState::Inactive;
        self.blocks.dedup_by(|block, before| {
            let are_free = is_free(block) && is_free(before);
            before.bytes += if are_free { block.bytes } else { 0 };
            are_free
        });
    }

    #[doc(hidden)]
    pub fn sum_up(&mut self) {
        let sum = |is_wanted: fn(BlockState) -> bool, bytes: fn(&BlockInfo) -> usize| {
            self.blocks.iter().filter(|block| is_wanted(block.state)).map(bytes).sum()
        };
        self.total_bytes = sum(|_| true, |block| block.bytes);
        self.allocated_bytes = sum(|state| state == BlockState::Allocated, |block| block.bytes);
        self.active_bytes = sum(BlockState::is_active, |block| block.bytes);
        self.requested_bytes = sum(BlockState::is_active, |block| block.requested_bytes);
    }
}

/// The class of a request. Small and large requests have separate segments; the policy draws the
/// line: at 1 MiB on devices, at the size of a pinned segment on the host. Under policy `native`,
/// blocks that share pages lie in segments of the small class, and count by their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PoolClass {
    /// Requests up to the policy's line.
    #[default]
    Small,
    /// Larger requests.
    Large,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The first address.
    pub address: u64,
    /// Size.
    pub bytes: usize,
    /// The requested size; of an inactive block that of its last allocation, or 0.
    pub requested_bytes: usize,
    /// The use of the block.
    pub state: BlockState,
}

impl BlockInfo {
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes as u64
    }
}

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockState {
    /// Handed out and not freed.
    Allocated,
    /// Freed, but streams may still use it.
    AwaitingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// True when allocated or awaiting its free.
    #[must_use]
    pub fn is_active(self) -> bool {
        self != Self::Inactive
    }
}

/// An event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// The kind of event.
    pub action: TraceAction,
    /// The address of the block or segment; for `OutOfMemory` the device's free bytes.
    pub address: u64,
    /// The requested size; of a segment its size.
    pub bytes: usize,
    /// The stream of the block or the segment.
    pub stream: u64,
    /// The private pool that the request was for; `(0, 0)` for none.
    pub pool: PoolId,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceAction {
    /// A block was handed out.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// All streams have passed their uses of a freed block.
    FreeCompleted,
    /// A segment was taken from the device.
    SegmentAlloc,
    /// A segment was given back to the device.
    SegmentFree,
    /// Pages of an expandable segment were mapped.
    SegmentMap,
    /// Pages of an expandable segment were unmapped.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed.
    OutOfMemory,
}
