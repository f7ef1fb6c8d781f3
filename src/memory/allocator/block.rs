//! Blocks: pieces of segments, linked to their neighbours and stored in a table.

use crate::base::table::{Id, Table};
use crate::memory::allocator::segment::SegmentId;
use crate::memory::allocator::snapshot::{BlockInfo, BlockState};

pub(super) type BlockId = Id<Block>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Free: in the index of its pool.
    Free,
    /// Handed out and not freed.
    Allocated,
    /// Freed, while other streams have not passed their last use of it.
    AwaitingFree,
    /// Unmapped addresses of an expandable segment: in the index of its pool.
    Unmapped,
    /// In no index: owned by the thread that takes, maps or releases it.
    InFlight,
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// The requested size of its last allocation; 0 for none.
    pub(super) requested_bytes: usize,
    pub(super) segment: SegmentId,
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    pub(super) state: State,
    /// The unique number of its last allocation, which reveals a second free.
    pub(super) handout: u64,
    /// True when its last allocation counted as oversize.
    pub(super) is_oversize: bool,
    /// The number of searches of its index when it became free: its age for garbage collection.
    pub(super) freed_at_search: u64,
    /// The last task of the segment's stream that uses it; 0 for none.
    pub(super) busy_until: u64,
}

impl Block {
    pub(super) fn new(segment: SegmentId, address: u64, bytes: usize, state: State) -> Self {
        Self {
            address,
            bytes,
            requested_bytes: 0,
            segment,
            previous: None,
            next: None,
            state,
            handout: 0,
            is_oversize: false,
            freed_at_search: 0,
            busy_until: 0,
        }
    }

    /// True when its segment has other blocks.
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes as u64
    }
}

impl From<&Block> for BlockInfo {
    fn from(block: &Block) -> Self {
        let state = match block.state {
            State::Allocated => BlockState::Allocated,
            State::AwaitingFree => BlockState::AwaitingFree,
            State::Free | State::InFlight | State::Unmapped => BlockState::Inactive,
        };
        let Block { address, bytes, requested_bytes, .. } = *block;
        Self { address, bytes, requested_bytes, state }
    }
}

pub(super) type Blocks = Table<Block>;

impl Blocks {
    /// Splits the first `bytes` off a block, as a new block in the same state.
    pub(super) fn split_head(&mut self, id: BlockId, bytes: usize) -> BlockId {
        let rest = &self[id];
        debug_assert!(bytes > 0 && bytes < rest.bytes, "{bytes} of {rest:?}");
        let mut front = Block { bytes, next: Some(id), ..rest.clone() };
        front.requested_bytes = 0;
        let before = front.previous;
        let front = self.insert(front);
        let rest = &mut self[id];
        rest.address += bytes as u64;
        rest.bytes -= bytes;
        rest.previous = Some(front);
        if let Some(before) = before {
            self[before].next = Some(front);
        }
        front
    }

    /// Merges a block with its neighbour `other`. Removes and returns `other`.
    pub(super) fn merge(&mut self, id: BlockId, other: BlockId) -> Block {
        let gone = self.remove(other);
        let block = &mut self[id];
        block.bytes += gone.bytes;
        block.busy_until = block.busy_until.max(gone.busy_until);
        if block.previous == Some(other) {
            block.address = gone.address;
            block.previous = gone.previous;
            if let Some(before) = gone.previous {
                self[before].next = Some(id);
            }
        } else {
            debug_assert_eq!(block.next, Some(other), "only neighbours merge");
            block.next = gone.next;
            if let Some(after) = gone.next {
                self[after].previous = Some(id);
            }
        }
        gone
    }

    /// Iterates over a block and those behind it in its segment.
    pub(super) fn chain(&self, first: BlockId) -> impl Iterator<Item = (BlockId, &Block)> {
        let step = |(_, block): &(BlockId, &Block)| block.next.map(|next| (next, &self[next]));
        std::iter::successors(Some((first, &self[first])), step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocator::segment::Segments;

    #[test]
    fn merged_blocks_are_as_busy_as_the_busier_one() {
        for tickets in [[7, 3], [3, 7]] {
            let mut blocks = Blocks::default();
            let segment = Segments::default().next_id();
            let rest = blocks.insert(Block::new(segment, 0, 1024, State::Free));
            let front = blocks.split_head(rest, 512);
            for (id, ticket) in [front, rest].into_iter().zip(tickets) {
                blocks[id].busy_until = ticket;
            }
            blocks.merge(front, rest);
            assert_eq!(blocks[front].busy_until, 7);
        }
    }
}
