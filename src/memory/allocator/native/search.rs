//! Where a block for a request stands: in free memory, or where the fewest pages are missing.
//!
//! Free blocks with memory have an index of their own, so a request that one of them holds counts
//! no pages: what a place takes of them, its offset alone says. Only when none holds it, or when it
//! would take pages that others could have, the *gaps* are looked at: addresses without memory with
//! the free blocks beside them.

use std::ops::Range;

use crate::base::steps::step;
use crate::memory::allocator::native::block::{Block, BlockId, State};
use crate::memory::allocator::native::core::{Native, units_of};
use crate::memory::allocator::native::free_blocks::{FreeBlock, Listing};
use crate::memory::allocator::native::grid::Grid;
use crate::memory::allocator::native::heap::{HeapId, Kind};
use crate::memory::allocator::native::index::list_of;
use crate::memory::allocator::native::plan::Sizes;
use crate::memory::allocator::native::want::{Cost, Found, Search, Want};

/// How a search chooses.
#[derive(Clone, Copy, Debug)]
struct Choice {
    units: u32,
    align_bytes: usize,
    /// True when not every unit is aligned so.
    is_aligned_more: bool,
    grid: Grid,
    search: Search,
    /// True when idle pages count too, and are left to others.
    spares_idle_pages: bool,
    /// A place with so many of them is as good as any.
    least_pages: u32,
}

impl Choice {
    fn of(want: &Want, search: Search, spares_idle_pages: bool, sizes: &Sizes) -> Self {
        let Want { kind, bytes, align_bytes, .. } = *want;
        let (unit_bytes, grid) = (sizes.unit_bytes(kind), sizes.grid(kind));
        let units = units_of(bytes, unit_bytes);
        let is_aligned_more = align_bytes > unit_bytes;
        let least_pages = if spares_idle_pages { grid.least_covered(units) } else { 0 };
        Self { units, align_bytes, is_aligned_more, grid, search, spares_idle_pages, least_pages }
    }

    fn found(&self, (place, pages): (Option<(BlockId, u32)>, u32)) -> Option<Found> {
        let (id, offset) = place?;
        Some(Found { id, offset, units: self.units, cost: Cost { pages, missing: 0 } })
    }
}

/// Free blocks side by side, from the first to the last.
#[derive(Clone, Debug)]
struct Gap {
    first: BlockId,
    units: Range<u32>,
}

impl Native {
    /// The place that costs the least of those that the search looks at. Of several it is the first
    /// by size; before the device is asked for more it is the one in the largest gap, so that small
    /// holes are left to requests that fit them.
    pub(super) fn find(
        &self,
        want: &Want,
        search: Search,
        is_ready: impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let Want { kind, bytes, .. } = *want;
        // A request of some pages that shares the ones at its ends with others leaves more of them;
        // a smaller one takes what is next in size.
        let is_long = kind == Kind::Middle && bytes >= 2 * self.sizes.page_bytes;
        let has_pages = self.sizes.has_pages;
        let spares_idle_pages = has_pages && (is_long || search != Search::Bounded);
        let choice = &Choice::of(want, search, spares_idle_pages, &self.sizes);
        let (ready, is_best) = self.find_ready(want, choice, &is_ready);
        // A request that has a place with all its memory does not move pages to a better one.
        if is_best || !has_pages || ready.is_some() && search == Search::Bounded {
            return ready;
        }
        self.find_in_gaps(want, choice, ready, &is_ready)
    }

    /// A place with all its memory.
    pub(super) fn find_with_memory(
        &self,
        want: &Want,
        search: Search,
        is_ready: impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let choice = Choice::of(want, search, false, &self.sizes);
        self.find_ready(want, &choice, &is_ready).0
    }

    /// A place with all its memory, and whether none can be better. Beside addresses without memory
    /// it is taken only where there is no other: there a larger request needs fewer new pages.
    fn find_ready(
        &self,
        want: &Want,
        choice: &Choice,
        is_ready: &impl Fn(&Block) -> bool,
    ) -> (Option<Found>, bool) {
        let arena = self.heaps[want.heap].arena(want.kind);
        let own = list_of(choice.units);
        let mut best = (None, u32::MAX);
        for listing in [Listing::Closed, Listing::Open] {
            let index = arena.index(listing);
            // Of its own list, and of others.
            let mut looks = choice.search.looks();
            let mut from = own;
            while let Some((list, first)) = index.next_list(from) {
                from = list + 1;
                let looks = &mut looks[usize::from(list != own)];
                let mut next = Some(first);
                while *looks > 0
                    && let Some(entry) = next
                {
                    *looks -= 1;
                    step();
                    let FreeBlock { block: id, behind, .. } = self.free[entry];
                    next = behind;
                    let block = &self.blocks[id];
                    if block.units >= choice.units
                        && let Some((offset, pages)) = self.place_in_block(block, choice)
                        && pages < best.1
                        && is_ready(block)
                    {
                        best = (Some((id, offset)), pages);
                        if pages <= choice.least_pages {
                            return (choice.found(best), true);
                        }
                    }
                }
                if next.is_some() && list != own {
                    break;
                }
            }
            if best.0.is_some() {
                break;
            }
        }
        (choice.found(best), false)
    }

    /// The place in a free block of enough units that covers the fewest of its pages, and how many:
    /// none, and the first place, where idle pages are no cost.
    fn place_in_block(&self, block: &Block, choice: &Choice) -> Option<(u32, u32)> {
        let Choice { units, align_bytes, grid, .. } = *choice;
        let (mut first, mut last) = (block.offset, block.end() - units);
        if choice.is_aligned_more {
            let area = &self.areas[block.area];
            (first, last) = area.offsets(&block.range(), units, align_bytes)?.into_inner();
        }
        if !choice.spares_idle_pages {
            return Some((first, 0));
        }
        let covered = grid.covered(&block.range());
        let [at_first, at_last] =
            [first, last].map(|offset| grid.count_touched(offset, units, &covered));
        Some(if at_last < at_first { (last, at_last) } else { (first, at_first) })
    }

    /// A place that costs less than one with all its memory, if that is known.
    fn find_in_gaps(
        &self,
        want: &Want,
        choice: &Choice,
        mut best: Option<Found>,
        is_ready: &impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let is_bounded = choice.search == Search::Bounded;
        let arena = self.heaps[want.heap].arena(want.kind);
        let [mut own_looks, mut larger_looks] = choice.search.looks();
        // What has all its memory is not given up for what costs as much.
        let mut largest = if best.is_some() { u32::MAX } else { 0 };
        let least_units = if is_bounded { choice.units } else { 0 };
        for (is_own, first) in arena.index(Listing::Bare).lists_from(least_units) {
            let looks = if is_own { &mut own_looks } else { &mut larger_looks };
            let mut next = Some(first);
            while *looks > 0
                && let Some(id) = next
            {
                *looks -= 1;
                step();
                next = self.free[id].behind;
                let id = self.free[id].block;
                let gap =
                    if is_bounded { Some(self.gap(id)) } else { self.whole_gap(id, is_ready) };
                let Some(gap) = gap else { continue };
                let Some(found) = self.place_in(&gap, choice) else { continue };
                let units = gap.units.end - gap.units.start;
                let is_better = |best: Found| {
                    let is_larger = !is_bounded && units > largest;
                    found.cost < best.cost || found.cost == best.cost && is_larger
                };
                if best.is_none_or(is_better) {
                    (best, largest) = (Some(found), units);
                }
            }
            if larger_looks == 0 {
                break;
            }
        }
        best
    }

    /// How many units the largest place has that takes `most_pages` at most, in an arena.
    pub(super) fn largest_place(
        &self,
        heap: HeapId,
        kind: Kind,
        most_pages: u32,
        is_ready: impl Fn(&Block) -> bool,
    ) -> u32 {
        let arena = self.heaps[heap].arena(kind);
        let grid = self.sizes.grid(kind);
        let blocks = |listing| {
            let listed = arena.index(listing).all(&self.free);
            listed.inspect(|_| step()).map(|id| self.free[id].block)
        };
        let ready = blocks(Listing::Closed).chain(blocks(Listing::Open));
        let ready = ready.map(|id| &self.blocks[id]).filter(|block| is_ready(block));
        let gaps = blocks(Listing::Bare).filter_map(|id| self.whole_gap(id, &is_ready));
        let in_gaps = gaps.map(|Gap { units, .. }| {
            let pages = grid.covered(&units);
            if pages.end - pages.start <= most_pages {
                return units.end - units.start;
            }
            // At one end of the gap, with what is beside its whole pages there.
            let (_, [before, behind]) = grid.covered_and_beside(&units);
            before.max(behind) + grid.first_unit(most_pages as usize)
        });
        ready.map(|block| block.units).chain(in_gaps).max().unwrap_or(0)
    }

    /// A bare block with the free blocks beside it.
    fn gap(&self, bare: BlockId) -> Gap {
        let Block { previous, next, .. } = self.blocks[bare];
        let is_free = |id: &BlockId| self.blocks[*id].state == State::Free;
        let first = previous.filter(is_free).unwrap_or(bare);
        let last = next.filter(is_free).unwrap_or(bare);
        self.gap_of(first, last)
    }

    fn gap_of(&self, first: BlockId, last: BlockId) -> Gap {
        let units = self.blocks[first].offset..self.blocks[last].end();
        Gap { first, units }
    }

    /// All blocks side by side that are bare, or free and ready; `None` when a bare one before this
    /// one is among them.
    fn whole_gap(&self, bare: BlockId, is_ready: &impl Fn(&Block) -> bool) -> Option<Gap> {
        let is_bare = |id: &BlockId| self.blocks[*id].state == State::Bare;
        let is_part = |id: &BlockId| {
            let block = &self.blocks[*id];
            is_bare(id) || block.state == State::Free && is_ready(block)
        };
        // No two free blocks are neighbours: the one before a free one, if it is a part, is bare.
        let first = self.blocks[bare].previous.filter(is_part).unwrap_or(bare);
        if first != bare && self.blocks[first].previous.is_some_and(|id| is_bare(&id)) {
            return None;
        }
        let behind = |id: &BlockId| self.blocks[*id].next.filter(is_part);
        let last = std::iter::successors(Some(bare), behind).last().expect("itself at least");
        Some(self.gap_of(first, last))
    }

    /// The place in a gap that costs the least: at its ends, or in a whole search at a border
    /// inside.
    fn place_in(&self, gap: &Gap, choice: &Choice) -> Option<Found> {
        let area = &self.areas[self.blocks[gap.first].area];
        let Choice { units, align_bytes, search, .. } = *choice;
        let (first, last) = area.offsets(&gap.units, units, align_bytes)?.into_inner();
        let blocks = || self.blocks.chain(gap.first);
        let cost = |offset| (self.cost_in(gap, offset, choice), offset);
        let mut best = cost(first).min(cost(last));
        if search != Search::Bounded {
            let step = u32::try_from(align_bytes / area.unit_bytes).unwrap_or(u32::MAX).max(1);
            for (_, block) in blocks().take_while(|(_, block)| block.offset < last) {
                let behind_first = block.offset.saturating_sub(first);
                let behind_first = behind_first.checked_next_multiple_of(step);
                let begin = first.saturating_add(behind_first.unwrap_or(u32::MAX));
                let end = block.end().saturating_sub(units).clamp(first, last);
                let end = first + (end - first) / step * step;
                best = best.min(cost(begin.min(last))).min(cost(end));
            }
        }
        let (cost, offset) = best;
        let (id, _) = blocks().find(|(_, block)| block.end() > offset).expect("it is in the gap");
        Some(Found { id, offset, units, cost })
    }

    /// What a place in a gap costs.
    fn cost_in(&self, gap: &Gap, offset: u32, choice: &Choice) -> Cost {
        let Choice { units, grid, .. } = *choice;
        let count = |pages: Range<u32>| grid.count_touched(offset, units, &pages);
        let (mut missing, mut next) = (0, Some(gap.first));
        while let Some(block) = next.map(|id| &self.blocks[id])
            && block.offset < offset + units
        {
            next = block.next;
            if block.state == State::Bare {
                missing += count(grid.covered(&block.range()));
            }
        }
        let covered = || count(grid.covered(&gap.units));
        Cost { pages: if choice.spares_idle_pages { covered() } else { missing }, missing }
    }
}
