//! The search for a request's block: in free memory, or where the fewest pages are missing.
//!
//! Free mapped blocks have indices of their own, so a request that one of them holds counts no
//! missing pages. Only when none holds it, or when it would take idle pages that other blocks could
//! use, the search looks at *gaps*: unmapped blocks with the free blocks beside them.

use std::ops::Range;

use crate::base::steps::step;
use crate::memory::allocator::block::{Block, State};
use crate::memory::allocator::core::{Native, units_of};
use crate::memory::allocator::free_blocks::{FreeBlock, FreeList, list_of};
use crate::memory::allocator::heap::Arena;
use crate::memory::allocator::ids::{BlockId, FreeId, HeapId, Kind};
use crate::memory::allocator::pages::Grid;
use crate::memory::allocator::plan::{BlockRequest, Cost, Found, Search, Sizes};
/// What a search looks for, and how it compares places.
#[derive(Clone, Copy, Debug)]
struct Choice {
    units: u32,
    align_bytes: usize,
    /// True when some units are not aligned to `align_bytes`.
    is_aligned_more: bool,
    grid: Grid,
    search: Search,
    /// True when the search counts idle pages as a cost.
    spares_idle_pages: bool,
    /// The search stops at a place that touches at most this number of idle pages.
    least_pages: u32,
}

impl Choice {
    fn of(want: &BlockRequest, search: Search, spares_idle_pages: bool, sizes: &Sizes) -> Self {
        let BlockRequest { kind, bytes, align_bytes, .. } = *want;
        let (unit_bytes, grid) = (sizes.unit_bytes(kind), sizes.grid(kind));
        let units = units_of(bytes, unit_bytes);
        let is_aligned_more = align_bytes > sizes.unit_align_bytes(kind);
        let least_pages = if spares_idle_pages { grid.least_covered(units) } else { 0 };
        Self { units, align_bytes, is_aligned_more, grid, search, spares_idle_pages, least_pages }
    }
}

/// The best free block so far, and the number of idle pages that its best place touches.
struct Best {
    entry: Option<FreeId>,
    pages: u32,
}

/// A place with all its memory in a free block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fit {
    /// At its beginning, unless that touches more than `most_pages` idle pages: then at its end.
    AtEnd {
        entry: FreeId,
        units: u32,
        most_pages: u32,
    },
    OwnerGuard(Found),
}

/// Adjacent free and bare blocks.
#[derive(Clone, Debug)]
struct Gap {
    first: BlockId,
    units: Range<u32>,
}

impl Native {
    /// Finds the cheapest place among the blocks that the search looks at. Of equal places a
    /// bounded search takes the first by size. Other searches take the one in the largest gap, so
    /// that small holes are left to requests that fit them.
    pub(super) fn find(
        &self,
        want: &BlockRequest,
        search: Search,
        is_ready: impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let choice = &self.choice(want, search);
        let (ready, is_best) = self.find_ready(want, choice, &is_ready);
        // A bounded search does not move pages for a cheaper place, nor to one that needs new ones.
        if is_best || ready.is_some() && search == Search::Bounded {
            return ready;
        }
        self.find_where_pages_lack(want, choice, ready, &is_ready)
    }

    /// As a bounded [`Self::find`]: a place with all its memory, or else where pages would move.
    #[inline(always)]
    pub(super) fn find_bounded(&self, want: &BlockRequest) -> Result<Fit, Option<Found>> {
        let choice = &self.choice(want, Search::Bounded);
        let (units, is_ready) = (choice.units, |_: &Block| true);
        if choice.is_aligned_more {
            let (found, _) = self.find_ready(want, choice, &is_ready);
            let gap = || self.find_where_pages_lack(want, choice, None, &is_ready);
            return found.map(Fit::OwnerGuard).ok_or_else(gap);
        }
        let arena = self.heaps[want.heap].arena(want.kind);
        let spares = choice.spares_idle_pages;
        let first = if spares { None } else { self.first_of(arena, units) };
        let best = || self.best_of(arena, choice, &is_ready);
        let Best { entry, pages } =
            first.map_or_else(best, |first| Best { entry: Some(first), pages: 0 });
        match entry {
            Some(entry) => {
                let most_pages = if spares { pages } else { u32::MAX };
                Ok(Fit::AtEnd { entry, units, most_pages })
            }
            None => Err(self.find_where_pages_lack(want, choice, None, &is_ready)),
        }
    }

    #[inline(always)]
    fn choice(&self, want: &BlockRequest, search: Search) -> Choice {
        // A request of several pages leaves more idle pages if it shares those at its ends; a
        // smaller one takes the next larger block.
        let is_long = want.kind == Kind::Middle && want.bytes >= 2 * self.sizes.page_bytes;
        let spares_idle_pages = self.sizes.has_pages && (is_long || search != Search::Bounded);
        Choice::of(want, search, spares_idle_pages, &self.sizes)
    }

    /// Returns the cheapest of `best` and the places in gaps, where pages can move.
    #[inline(always)]
    fn find_where_pages_lack(
        &self,
        want: &BlockRequest,
        choice: &Choice,
        best: Option<Found>,
        is_ready: &impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let is_in_vain = choice.search == Search::Bounded && self.free.idle_page_count() == 0;
        if !self.sizes.has_pages || is_in_vain {
            return best;
        }
        self.find_in_gaps(want, choice, best, is_ready)
    }

    /// The first block by size that a bounded search finds for so many units.
    #[inline(never)]
    fn first_of(&self, arena: &Arena, units: u32) -> Option<FreeId> {
        let own = list_of(units);
        let [own_looks, _] = Search::Bounded.looks();
        for listing in [FreeList::Mapped, FreeList::NextToGap] {
            for (is_own, first) in arena.index(listing).lists_from(own) {
                let looks = if is_own { own_looks } else { 1 };
                let list = std::iter::successors(Some(first), |id| self.free[*id].behind);
                for id in list.take(looks).inspect(|_| step()) {
                    if self.free[id].units >= units {
                        return Some(id);
                    }
                }
            }
        }
        None
    }

    pub(super) fn find_with_memory(
        &self,
        want: &BlockRequest,
        search: Search,
        is_ready: impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let choice = Choice::of(want, search, false, &self.sizes);
        self.find_ready(want, &choice, &is_ready).0
    }

    /// Finds a place with all its memory; true when no place is better. Prefers blocks without a
    /// bare neighbour: beside one a larger request needs fewer new pages.
    #[inline(always)]
    fn find_ready(
        &self,
        want: &BlockRequest,
        choice: &Choice,
        is_ready: &impl Fn(&Block) -> bool,
    ) -> (Option<Found>, bool) {
        let arena = self.heaps[want.heap].arena(want.kind);
        let best = self.best_of(arena, choice, is_ready);
        (self.found_in(&best, choice), best.pages <= choice.least_pages)
    }

    /// Finds the best block. Not inlined: the values of the loop stay in registers.
    #[inline(never)]
    fn best_of(&self, arena: &Arena, choice: &Choice, is_ready: &impl Fn(&Block) -> bool) -> Best {
        let own = list_of(choice.units);
        let mut best = Best { entry: None, pages: u32::MAX };
        for listing in [FreeList::Mapped, FreeList::NextToGap] {
            let [own_looks, mut larger_looks] = choice.search.looks();
            for (is_own, first) in arena.index(listing).lists_from(own) {
                let (mut looks, mut next) =
                    (if is_own { own_looks } else { larger_looks }, Some(first));
                while let Some(id) = next
                    && looks > 0
                {
                    looks -= 1;
                    step();
                    let entry = &self.free[id];
                    next = entry.behind;
                    if let Some(pages) = self.pages_of_place(entry, choice)
                        && pages < best.pages
                        && is_ready(&self.blocks[entry.block])
                    {
                        best = Best { entry: Some(id), pages };
                        if pages <= choice.least_pages {
                            return best;
                        }
                    }
                }
                if !is_own {
                    larger_looks = looks;
                }
                if larger_looks == 0 {
                    break;
                }
            }
            if best.entry.is_some() {
                break;
            }
        }
        best
    }

    /// Returns how many idle pages the best place in a free block touches; 0 where they are no
    /// cost. `None` when the block has no place.
    #[inline(always)]
    fn pages_of_place(&self, entry: &FreeBlock, choice: &Choice) -> Option<u32> {
        if entry.units < choice.units {
            return None;
        }
        if choice.is_aligned_more {
            return Some(self.place_in_block(&self.blocks[entry.block], choice)?.1);
        }
        let least = choice.grid.least_touched(choice.units, &entry.parts);
        Some(if choice.spares_idle_pages { least } else { 0 })
    }

    #[inline(always)]
    fn found_in(&self, best: &Best, choice: &Choice) -> Option<Found> {
        let FreeBlock { block: id, parts, .. } = self.free[best.entry?];
        let (block, units, pages) = (&self.blocks[id], choice.units, best.pages);
        let cost = Cost { pages, missing: 0 };
        if choice.is_aligned_more {
            let (offset, _) = self.place_in_block(block, choice)?;
            return Some(Found { id, offset, units, cost });
        }
        // The place at the beginning, unless one at the end is better.
        let at_begin = choice.grid.touched_beyond(parts.before, units).min(parts.idle_pages);
        let is_end = choice.spares_idle_pages && pages < at_begin;
        let offset = if is_end { block.end() - units } else { block.offset };
        Some(Found { id, offset, units, cost })
    }

    /// Returns the aligned place in a free block that touches the fewest idle pages, and their
    /// number; the first place and 0 where idle pages are no cost.
    fn place_in_block(&self, block: &Block, choice: &Choice) -> Option<(u32, u32)> {
        let Choice { units, align_bytes, grid, .. } = *choice;
        let area = &self.areas[block.area];
        let (first, last) = area.offsets(&block.range(), units, align_bytes)?.into_inner();
        if !choice.spares_idle_pages {
            return Some((first, 0));
        }
        let covered = grid.covered(&block.range());
        let [at_first, at_last] =
            [first, last].map(|offset| grid.count_touched(offset, units, &covered));
        Some(if at_last < at_first { (last, at_last) } else { (first, at_first) })
    }

    /// Returns the cheapest of `best` and the places in gaps.
    #[inline(never)]
    fn find_in_gaps(
        &self,
        want: &BlockRequest,
        choice: &Choice,
        mut best: Option<Found>,
        is_ready: &impl Fn(&Block) -> bool,
    ) -> Option<Found> {
        let is_bounded = choice.search == Search::Bounded;
        let arena = self.heaps[want.heap].arena(want.kind);
        let [mut own_looks, mut larger_looks] = choice.search.looks();
        // A gap replaces a place with all its memory only at a lower cost.
        let mut largest = if best.is_some() { u32::MAX } else { 0 };
        let least_units = if is_bounded { choice.units } else { 0 };
        for (is_own, first) in arena.index(FreeList::Unmapped).lists_from(list_of(least_units)) {
            let looks = if is_own { &mut own_looks } else { &mut larger_looks };
            let mut next = Some(first);
            while *looks > 0
                && let Some(id) = next
            {
                *looks -= 1;
                step();
                next = self.free[id].behind;
                let FreeBlock { block: id, units, .. } = self.free[id];
                if is_bounded {
                    if units >= choice.units
                        && let Some(found) = self.place_beside(id, choice)
                        && best.is_none_or(|best| found.cost < best.cost)
                    {
                        best = Some(found);
                    }
                    continue;
                }
                let Some(gap) = self.whole_gap(id, is_ready) else { continue };
                let Some(found) = self.place_in(&gap, choice) else { continue };
                let units = gap.units.end - gap.units.start;
                let is_better = |best: Found| {
                    found.cost < best.cost || found.cost == best.cost && units > largest
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

    /// Returns the units of the largest place in an arena: a ready block, or a part of a gap that
    /// covers at most `most_pages` pages.
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
        let ready = blocks(FreeList::Mapped).chain(blocks(FreeList::NextToGap));
        let ready = ready.map(|id| &self.blocks[id]).filter(|block| is_ready(block));
        let gaps = blocks(FreeList::Unmapped).filter_map(|id| self.whole_gap(id, &is_ready));
        let in_gaps = gaps.map(|Gap { units, .. }| {
            let pages = grid.covered(&units);
            if pages.end - pages.start <= most_pages {
                return units.end - units.start;
            }
            // The largest part is at one end, with the units beside the whole pages there.
            let (_, [before, behind]) = grid.covered_and_beside(&units);
            before.max(behind) + grid.first_unit(most_pages as usize)
        });
        ready.map(|block| block.units).chain(in_gaps).max().unwrap_or(0)
    }

    fn gap_of(&self, first: BlockId, last: BlockId) -> Gap {
        let units = self.blocks[first].offset..self.blocks[last].end();
        Gap { first, units }
    }

    /// Returns all adjacent blocks that are bare, or free and ready. `None` unless `bare` is the
    /// first bare one, so that each gap is found once.
    fn whole_gap(&self, bare: BlockId, is_ready: &impl Fn(&Block) -> bool) -> Option<Gap> {
        let is_bare = |id: &BlockId| self.blocks[*id].state == State::Bare;
        let is_part = |id: &BlockId| {
            let block = &self.blocks[*id];
            is_bare(id) || block.state == State::Free && is_ready(block)
        };
        // Free blocks are never adjacent, so the block before a free part, if a part, is bare.
        let first = self.blocks[bare].previous.filter(is_part).unwrap_or(bare);
        if first != bare && self.blocks[first].previous.is_some_and(|id| is_bare(&id)) {
            return None;
        }
        let behind = |id: &BlockId| self.blocks[*id].next.filter(is_part);
        let last = std::iter::successors(Some(bare), behind).last().expect("itself at least");
        Some(self.gap_of(first, last))
    }

    /// Returns the cheaper place at an end of the gap of a bare block: that block and the free ones
    /// beside it. The gap has enough units.
    fn place_beside(&self, id: BlockId, choice: &Choice) -> Option<Found> {
        let Choice { units, align_bytes, is_aligned_more, grid, .. } = *choice;
        let bare = &self.blocks[id];
        let free = |id: Option<BlockId>| {
            let id = id?;
            let block = &self.blocks[id];
            (block.state == State::Free).then_some((id, block.range()))
        };
        let (previous, next) = (free(bare.previous), free(bare.next));
        let begin = previous.as_ref().map_or(bare.offset, |(_, range)| range.start);
        let gap = begin..next.as_ref().map_or(bare.end(), |(_, range)| range.end);
        debug_assert_eq!(bare.entry().map(|id| self.free[id].units), Some(gap.end - gap.start));
        let (first, last) = if is_aligned_more {
            self.areas[bare.area].offsets(&gap, units, align_bytes)?.into_inner()
        } else {
            (begin, gap.end - units)
        };
        let [missing, covered] = [&bare.range(), &gap].map(|units| grid.covered(units));
        let cost = |offset: u32| {
            let missing = grid.count_touched(offset, units, &missing);
            let spared = || grid.count_touched(offset, units, &covered);
            Cost { pages: if choice.spares_idle_pages { spared() } else { missing }, missing }
        };
        let (cost, offset) = (cost(first), first).min((cost(last), last));
        debug_assert_eq!(Some((cost, offset)), {
            let gap = Gap { first: previous.as_ref().map_or(id, |(id, _)| *id), units: gap };
            let by_block = |offset| (self.cost_in(&gap, offset, choice), offset);
            [first, last].into_iter().map(by_block).min()
        });
        let is_inside = |(_, range): &(BlockId, Range<u32>)| range.contains(&offset);
        let (id, _) =
            previous.into_iter().chain(next).find(is_inside).unwrap_or((id, bare.range()));
        Some(Found { id, offset, units, cost })
    }

    /// Returns the cheapest place in a gap: at an end, or at a border between blocks.
    fn place_in(&self, gap: &Gap, choice: &Choice) -> Option<Found> {
        let area = &self.areas[self.blocks[gap.first].area];
        let Choice { units, align_bytes, .. } = *choice;
        let (first, last) = area.offsets(&gap.units, units, align_bytes)?.into_inner();
        let blocks = || self.blocks.chain(gap.first);
        let cost = |offset| (self.cost_in(gap, offset, choice), offset);
        let mut best = cost(first);
        if last > first {
            best = best.min(cost(last));
        }
        // In a gap of one block every border is an end.
        let is_one_block = self.blocks[gap.first].end() == gap.units.end;
        if !is_one_block {
            let step = u32::try_from(align_bytes / area.unit_bytes).unwrap_or(u32::MAX).max(1);
            for (_, block) in blocks().take_while(|(_, block)| block.offset < last) {
                let behind_first = block.offset.saturating_sub(first);
                let behind_first = behind_first.checked_next_multiple_of(step);
                let begin = first.saturating_add(behind_first.unwrap_or(u32::MAX));
                let end = block.end().saturating_sub(units).clamp(first, last);
                let end = first + (end - first) / step * step;
                for offset in [begin.min(last), end] {
                    if offset != first && offset != last {
                        best = best.min(cost(offset));
                    }
                }
            }
        }
        let (cost, offset) = best;
        debug_assert_eq!((area.base.0 + area.bytes_of(offset) as u64) % align_bytes as u64, 0);
        let (id, _) = blocks().find(|(_, block)| block.end() > offset).expect("it is in the gap");
        Some(Found { id, offset, units, cost })
    }

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

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::base::device::{Device, DeviceKind};
    use crate::base::size::{GIB, KIB, MIB};
    use crate::base::steps::steps_of;
    use crate::memory::allocator::{AllocatorConfig, CachingAllocator, Request};
    use crate::null::{NullBackend, NullConfig};

    /// Frees so many blocks of a size apart from each other, all behind their pages' beginnings,
    /// and returns the steps of a request that is aligned as none of them is.
    fn steps_beside(count: usize, request: Request) -> u64 {
        let null = NullBackend::new(NullConfig { capacity_bytes: GIB, ..NullConfig::default() });
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let allocator = CachingAllocator::new(null, device, AllocatorConfig::default()).unwrap();
        let take = |request| allocator.allocate(request).unwrap();
        let whole = take(Request::new(8 * MIB, 1));
        let blocks = (0..2 * count).map(|_| take(Request::new(64 * KIB, 1)));
        let (apart, between): (Vec<_>, Vec<_>) = blocks
            .filter(|block| block.address() % MIB as u64 != 0)
            .partition(|block| block.address() / (64 * KIB) as u64 % 2 == 1);
        apart.into_iter().chain([whole]).for_each(|block| allocator.free(block).unwrap());
        allocator.caches.empty();
        let (block, steps) = steps_of(|| take(request));
        between.into_iter().chain([block]).for_each(|block| allocator.free(block).unwrap());
        steps
    }

    #[test]
    fn a_request_looks_at_few_of_many_blocks_of_its_size() {
        // Goal: what a request costs does not grow with the free blocks that cannot serve it.
        // Method: aligned requests beside few and many blocks of their size, and a larger block.
        let aligned = Request::new(64 * KIB, 1).aligned_to(MIB);
        let [few, many] = [20, 1_000].map(|count| steps_beside(count, aligned));
        assert_eq!(few, many, "steps");
        assert!(few > 4, "it looks at some: {few}");
    }
}
