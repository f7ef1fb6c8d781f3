//! Records of blocks: pieces of areas, linked to their neighbours, numbers in a table.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::base::table::Id;
use crate::memory::allocator::native::area::AreaId;
use crate::memory::allocator::native::free_blocks::{FreeId, Listing};
use crate::memory::allocator::native::slab::SlabId;

/// A block's place in the table.
pub(in crate::memory::allocator) type BlockId = Id<Block>;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Free, and all of it has memory.
    Free,
    /// Free addresses without memory: whole pages of an area that has pages.
    Bare,
    /// With a program, in a thread's cache, with a thread that maps its pages, or with streams that
    /// have not passed their last use.
    Used,
    /// A slab, whose small blocks have users of their own.
    Slab,
}

/// A piece of an area, in the units of its arena. Half a cache line: there is one for each live
/// block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) offset: u32,
    pub(super) units: u32,
    pub(super) area: AreaId,
    pub(super) state: State,
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    /// The number of its entry among the free blocks, or of its slab.
    link: Option<NonZeroU32>,
    /// In halves, so that a record is not rounded up to eight bytes.
    busy_until: [u32; 2],
}

impl Block {
    pub(super) fn new(area: AreaId, offset: u32, units: u32, state: State) -> Self {
        let (previous, next, link, busy_until) = (None, None, None, [0; 2]);
        Self { offset, units, area, state, previous, next, link, busy_until }
    }

    /// Its units.
    pub(super) fn range(&self) -> Range<u32> {
        self.offset..self.end()
    }

    /// The index in which it is found when it is free, and by how many units.
    pub(super) fn listing(&self, [previous, next]: [Option<&Self>; 2]) -> (Listing, u32) {
        if self.state == State::Bare {
            let units = |block: Option<&Self>| match block {
                Some(Self { state: State::Free, units, .. }) => *units,
                _ => 0,
            };
            return (Listing::Bare, self.units + units(previous) + units(next));
        }
        let is_bare = |block: Option<&Self>| block.is_some_and(|it| it.state == State::Bare);
        let is_open = is_bare(previous) || is_bare(next);
        (if is_open { Listing::Open } else { Listing::Closed }, self.units)
    }

    pub(super) fn end(&self) -> u32 {
        self.offset + self.units
    }

    /// The task of its heap's stream after which no use of it is left; 0 for none.
    pub(super) fn busy_until(&self) -> u64 {
        let [low, high] = self.busy_until.map(u64::from);
        low | high << 32
    }

    /// The slab that it is.
    pub(super) fn slab(&self) -> Option<SlabId> {
        let number = self.link.filter(|_| self.state == State::Slab)?;
        Some(SlabId::from_number(number.get()))
    }

    pub(super) fn become_slab(&mut self, slab: SlabId) {
        (self.state, self.link) = (State::Slab, NonZeroU32::new(slab.number()));
    }

    /// Its entry among the free blocks, while it is listed there.
    pub(super) fn entry(&self) -> Option<FreeId> {
        let is_listed = matches!(self.state, State::Free | State::Bare);
        self.link.filter(|_| is_listed).map(|link| FreeId::from_number(link.get()))
    }

    pub(super) fn set_entry(&mut self, entry: Option<FreeId>) {
        self.link = entry.and_then(|entry| NonZeroU32::new(entry.number()));
    }

    pub(super) fn set_busy_until(&mut self, ticket: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
        let halves = [ticket as u32, (ticket >> 32) as u32];
        self.busy_until = halves;
    }
}

/// All blocks of an allocator. Places of blocks that are gone are used again, last first.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// By their numbers; the first one is no block's.
    places: Vec<Block>,
    /// Heads a list through `next` of places without a block.
    vacant: Option<BlockId>,
    count: usize,
}

impl Blocks {
    pub(super) fn insert(&mut self, block: Block) -> BlockId {
        self.count += 1;
        let Some(id) = self.vacant else { return self.insert_new(block) };
        self.vacant = self[id].next;
        self[id] = block;
        id
    }

    #[cold]
    fn insert_new(&mut self, block: Block) -> BlockId {
        self.places.resize(self.places.len().max(1) + 1, block);
        BlockId::of_place(self.places.len() - 2)
    }

    /// Takes a block out of the table; who links to it is the caller's business.
    pub(super) fn remove(&mut self, id: BlockId) {
        self.count -= 1;
        let vacant = self.vacant.replace(id);
        let block = &mut self[id];
        (block.units, block.next) = (0, vacant);
    }

    /// Cuts units off a block, at its end or at its beginning: what has them, in use.
    #[inline(always)]
    pub(super) fn cut_off(&mut self, id: BlockId, units: u32, is_end: bool) -> BlockId {
        let block = &mut self[id];
        debug_assert!(units > 0 && units < block.units, "{units} of {block:?}");
        let mut part = Block { units, state: State::Used, link: None, ..*block };
        block.units -= units;
        if is_end {
            part.offset += block.units;
            part.previous = Some(id);
        } else {
            block.offset += units;
            part.next = Some(id);
        }
        let Block { previous, next, .. } = part;
        let part = self.insert(part);
        if let Some(previous) = previous {
            self[previous].next = Some(part);
        }
        if let Some(next) = next {
            self[next].previous = Some(part);
        }
        part
    }

    /// Joins a block with one beside it, which is gone then.
    #[inline(always)]
    pub(super) fn join(&mut self, id: BlockId, gone: BlockId) {
        let Block { offset, units, previous, next, .. } = self[gone];
        debug_assert!([previous, next].contains(&Some(id)), "only neighbours join");
        let ticket = self[gone].busy_until();
        let block = &mut self[id];
        block.units += units;
        if ticket > block.busy_until() {
            block.set_busy_until(ticket);
        }
        if block.offset < offset {
            block.next = next;
            if let Some(next) = next {
                self[next].previous = Some(id);
            }
        } else {
            (block.offset, block.previous) = (offset, previous);
            if let Some(previous) = previous {
                self[previous].next = Some(id);
            }
        }
        self.remove(gone);
    }

    /// The neighbours of a block.
    pub(super) fn beside(&self, block: &Block) -> [Option<&Block>; 2] {
        [block.previous, block.next].map(|id| id.map(|id| &self[id]))
    }

    /// The index in which a free block is found, and by how many units.
    pub(super) fn listing_of(&self, block: &Block) -> (Listing, u32) {
        block.listing(self.beside(block))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// A block and those behind it in its area.
    pub(super) fn chain(&self, first: BlockId) -> impl Iterator<Item = (BlockId, &Block)> {
        let step = |(_, block): &(BlockId, &Block)| block.next.map(|next| (next, &self[next]));
        std::iter::successors(Some((first, &self[first])), step)
    }
}

impl std::ops::Index<BlockId> for Blocks {
    type Output = Block;

    fn index(&self, id: BlockId) -> &Block {
        &self.places[id.number() as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.places[id.number() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocator::native::area::Areas;

    #[test]
    fn joined_blocks_are_as_busy_as_the_busier_one() {
        for tickets in [[7, 3], [3, 7]] {
            let mut blocks = Blocks::default();
            let area = Areas::default().next_id();
            for kept in [0, 1] {
                let first = blocks.insert(Block::new(area, 0, 2, State::Free));
                let both = [first, blocks.cut_off(first, 1, true)];
                for (id, ticket) in both.into_iter().zip(tickets) {
                    blocks[id].set_busy_until(ticket);
                }
                blocks.join(both[kept], both[1 - kept]);
                let block = &blocks[both[kept]];
                assert_eq!((block.range(), block.busy_until()), (0..2, 7));
                assert_eq!((block.previous, block.next), (None, None));
            }
        }
    }

    #[test]
    fn a_record_is_small() {
        // With what was asked for, which stands in a table of its own: 36 bytes a live block.
        assert_eq!(size_of::<Block>(), 32);
    }
}
