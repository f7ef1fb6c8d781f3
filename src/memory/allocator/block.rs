//! Records of blocks: ranges of areas, linked to their neighbours.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::base::table::{Record, Records};
use crate::memory::allocator::free_blocks::FreeList;
use crate::memory::allocator::ids::{AreaId, BlockId, BlockKey, FreeId, SlabId};
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Free and mapped.
    Free,
    /// Free and unmapped: whole pages.
    Bare,
    /// In use, in a thread cache, pending free, or taken by a thread that maps its pages.
    Used,
    /// A slab, whose small blocks have states of their own.
    Slab,
}

/// A range of an area, in units of its arena. Half a cache line, because each live block has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) offset: u32,
    pub(super) units: u32,
    pub(super) area: AreaId,
    pub(super) state: State,
    pub(super) previous: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    /// The number of the block's entry in `FreeBlocks`, or of its slab.
    link: Option<NonZeroU32>,
    /// In halves, which need an alignment of four bytes only.
    busy_until: [u32; 2],
}

impl Block {
    pub(super) fn new(area: AreaId, offset: u32, units: u32, state: State) -> Self {
        let (previous, next, link, busy_until) = (None, None, None, [0; 2]);
        Self { offset, units, area, state, previous, next, link, busy_until }
    }

    pub(super) fn range(&self) -> Range<u32> {
        self.offset..self.end()
    }

    /// Returns the index for a free block with these neighbours, and the units to list it by.
    #[inline(always)]
    pub(super) fn listing(&self, [previous, next]: [&Self; 2]) -> (FreeList, u32) {
        if self.state == State::Bare {
            let free_units = |block: &Self| block.units * u32::from(block.state == State::Free);
            return (FreeList::Unmapped, self.units + free_units(previous) + free_units(next));
        }
        let is_open = [previous.state, next.state].contains(&State::Bare);
        (if is_open { FreeList::NextToGap } else { FreeList::Mapped }, self.units)
    }

    pub(super) fn end(&self) -> u32 {
        self.offset + self.units
    }

    /// Returns the heap's count of the last task that uses the block; 0 for none.
    pub(super) fn busy_until(&self) -> u64 {
        let [low, high] = self.busy_until.map(u64::from);
        low | high << 32
    }

    pub(super) fn slab(&self) -> Option<SlabId> {
        let number = self.link.filter(|_| self.state == State::Slab)?;
        Some(SlabId::from_number(number.get()))
    }

    pub(super) fn become_slab(&mut self, slab: SlabId) {
        (self.state, self.link) = (State::Slab, NonZeroU32::new(slab.number()));
    }

    /// Returns the entry in `FreeBlocks` of a listed block.
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

/// All blocks of an allocator.
pub(super) type Blocks = Records<Block, BlockKey>;

impl Record<BlockKey> for Block {
    fn blank() -> Self {
        Self::new(AreaId::default(), 0, 0, State::Used)
    }

    fn link(&mut self) -> &mut Option<BlockId> {
        &mut self.next
    }
}

impl Blocks {
    /// Removes a block. The caller unlinks it from its neighbours.
    #[inline(always)]
    pub(super) fn forget(&mut self, id: BlockId) {
        self[id].units = 0;
        self.remove(id);
    }

    /// Splits `units` off a block, at its end or its beginning, and returns them as a block in use.
    #[inline(always)]
    pub(super) fn cut_off(&mut self, id: BlockId, units: u32, is_end: bool) -> BlockId {
        let whole = self[id];
        debug_assert!(units > 0 && units < whole.units, "{units} of {whole:?}");
        let rest_units = whole.units - units;
        let mut part = Block { state: State::Used, link: None, units, ..whole };
        if is_end {
            (part.offset, part.previous) = (whole.offset + rest_units, Some(id));
        } else {
            part.next = Some(id);
        }
        let taken = self.insert(part);
        let blocks = self.places();
        let rest = &mut blocks[id.index()];
        rest.units = rest_units;
        if is_end {
            rest.next = Some(taken);
            blocks[BlockId::index_of(whole.next)].previous = Some(taken);
        } else {
            (rest.offset, rest.previous) = (whole.offset + units, Some(taken));
            blocks[BlockId::index_of(whole.previous)].next = Some(taken);
        }
        taken
    }

    /// Merges a block with the one behind it, whose record is removed.
    #[inline(always)]
    pub(super) fn join_next(&mut self, id: BlockId, gone: BlockId) {
        let Block { previous, next, .. } = self[gone];
        debug_assert_eq!(previous, Some(id), "only neighbours join");
        self.merge(id, gone);
        let blocks = self.places();
        blocks[id.index()].next = next;
        blocks[BlockId::index_of(next)].previous = Some(id);
        self.forget(gone);
    }

    /// Merges a block with the one before it, whose record is removed.
    #[inline(always)]
    pub(super) fn join_previous(&mut self, id: BlockId, gone: BlockId) {
        let Block { offset, previous, next, .. } = self[gone];
        debug_assert_eq!(next, Some(id), "only neighbours join");
        self.merge(id, gone);
        let blocks = self.places();
        (blocks[id.index()].offset, blocks[id.index()].previous) = (offset, previous);
        blocks[BlockId::index_of(previous)].next = Some(id);
        self.forget(gone);
    }

    /// Adds the units of a block that joins, and its uses.
    #[inline(always)]
    fn merge(&mut self, id: BlockId, gone: BlockId) {
        let (units, ticket) = (self[gone].units, self[gone].busy_until());
        let block = &mut self[id];
        block.units += units;
        if ticket > block.busy_until() {
            block.set_busy_until(ticket);
        }
    }

    /// Returns a block's neighbours: the blank, which is in use, where there is none.
    #[inline(always)]
    pub(super) fn beside(&self, block: &Block) -> [&Block; 2] {
        [block.previous, block.next].map(|id| self.or_blank(id))
    }

    /// Returns the index for a free block, and the units to list it by.
    pub(super) fn listing_of(&self, block: &Block) -> (FreeList, u32) {
        block.listing(self.beside(block))
    }

    /// Returns a block and those behind it in its area.
    pub(super) fn chain(&self, first: BlockId) -> impl Iterator<Item = (BlockId, &Block)> {
        let step = |(_, block): &(BlockId, &Block)| block.next.map(|next| (next, &self[next]));
        std::iter::successors(Some((first, &self[first])), step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocator::area::Areas;

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
                match kept {
                    0 => blocks.join_next(both[0], both[1]),
                    _ => blocks.join_previous(both[1], both[0]),
                }
                let block = &blocks[both[kept]];
                assert_eq!((block.range(), block.busy_until()), (0..2, 7));
                assert_eq!((block.previous, block.next), (None, None));
            }
        }
    }

    #[test]
    fn a_record_is_small() {
        // With its mark, a live block takes 36 bytes.
        assert_eq!(size_of::<Block>(), 32);
    }
}
