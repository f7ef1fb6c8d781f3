//! Snapshots: what an allocator holds and what happened in it, as plain values in torch's schema.
//!
//! The names are ours (`total_bytes` for `total_size`), the meaning is that of the dictionaries
//! which `torch.cuda.memory._dump_snapshot` writes, without its stacks and times.

use crate::memory::allocator::pool::PoolId;

/// What the allocator of one device holds at one moment, and what led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The segments by address, tiled by their blocks.
    pub segments: Vec<SegmentInfo>,
    /// What happened, oldest first, ending in `segments`; empty when nothing was recorded.
    pub trace: Vec<TraceEntry>,
}

/// A range of memory from the device; of an expandable segment a contiguous mapped part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Index of the device.
    pub device_index: usize,
    /// First byte.
    pub address: u64,
    /// Size.
    pub total_bytes: usize,
    /// Sizes of the blocks that were handed out and not freed.
    pub allocated_bytes: usize,
    /// The same with those that are freed and still in use by streams.
    pub active_bytes: usize,
    /// What was asked for, of the active blocks.
    pub requested_bytes: usize,
    /// The stream whose requests are served from it.
    pub stream: u64,
    /// Which of the two kinds of requests it serves.
    pub class: PoolClass,
    /// The private pool that it belongs to; `(0, 0)` for none.
    pub pool: PoolId,
    /// True when pages are mapped and unmapped one by one.
    pub is_expandable: bool,
    /// From the first to the last, without gaps.
    pub blocks: Vec<BlockInfo>,
}

impl SegmentInfo {
    /// What `head` is about, as one segment for each contiguous part of it: its blocks with memory,
    /// by address.
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

    /// Sets the sums to what the blocks come to.
    pub(super) fn sum_up(&mut self) {
        let sum = |is_wanted: fn(BlockState) -> bool, bytes: fn(&BlockInfo) -> usize| {
            self.blocks.iter().filter(|block| is_wanted(block.state)).map(bytes).sum()
        };
        self.total_bytes = sum(|_| true, |block| block.bytes);
        self.allocated_bytes = sum(|state| state == BlockState::Allocated, |block| block.bytes);
        self.active_bytes = sum(BlockState::is_active, |block| block.bytes);
        self.requested_bytes = sum(BlockState::is_active, |block| block.requested_bytes);
    }
}

/// Small requests and larger ones have segments of their own. Where the line is, the policy says:
/// at 1 MiB on devices, at the size of a pinned segment on the host. Under policy `native` larger
/// ones, up to eight pages, may be in segments of small ones, and count by their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// First byte.
    pub address: u64,
    /// Size.
    pub bytes: usize,
    /// What was asked for; of an inactive block the last request that it served, or 0.
    pub requested_bytes: usize,
    /// Who has it.
    pub state: BlockState,
}

impl BlockInfo {
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes as u64
    }
}

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// A program.
    Allocated,
    /// Freed, but streams may still use it.
    AwaitingFree,
    /// The allocator.
    Inactive,
}

impl BlockState {
    /// True when the memory is in use.
    #[must_use]
    pub fn is_active(self) -> bool {
        self != Self::Inactive
    }
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// What happened.
    pub action: TraceAction,
    /// Of the block or the segment; of `OutOfMemory` what the device had free.
    pub address: u64,
    /// What was asked for; of segments their size.
    pub bytes: usize,
    /// The stream of the block or the segment.
    pub stream: u64,
    /// The private pool that the request was for; `(0, 0)` for none.
    pub pool: PoolId,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceAction {
    /// A block was handed out.
    Alloc,
    /// A block was given back by its user.
    FreeRequested,
    /// Every stream is done with the block.
    FreeCompleted,
    /// A segment was taken from the device.
    SegmentAlloc,
    /// A segment was given back.
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
