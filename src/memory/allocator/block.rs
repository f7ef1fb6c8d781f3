//! Blocks: pieces of segments, linked to their neighbours, in an arena where they are numbers.

use crate::base::table::{Id, Table};
use crate::memory::allocator::segment::SegmentId;
use crate::memory::allocator::snapshot::{BlockInfo, BlockState};

/// A block's place in the arena.
pub(super) type BlockId = Id<Block>;

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is free: it stands in the index of its pool.
    Free,
    /// A program.
    Allocated,
    /// It is freed, but streams have not passed their last use of it.
    AwaitingFree,
    /// Addresses of an expandable segment without memory; it stands in the index of those.
    Unmapped,
    /// A thread that gives it its memory, or takes it away, without the allocator's lock.
    InFlight,
}

/// A piece of a segment.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// Of the last request that it served; 0 when there was none.
    pub(super) requested_bytes: usize,
    pub(super) segment: SegmentId,
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    pub(super) state: State,
    /// Counts what was handed out: tells a block from a later one in its place.
    pub(super) handout: u64,
    /// True when it was handed out as one of those that are not split.
    pub(super) is_oversize: bool,
    /// How many searches its pool had seen when it became free: the age for garbage collection.
    pub(super) freed_at_search: u64,
    /// The task of its segment's stream after which no use of it is left; 0 for none.
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

    /// True when it is a part of its segment only.
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

/// All blocks of an allocator.
pub(super) type Blocks = Table<Block>;

impl Blocks {
    /// Cuts the front off a block: the new block has the first `bytes` and the same state.
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

    /// Joins a block with its neighbour `other`, which is gone then.
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

    /// A block and those behind it in its segment.
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
