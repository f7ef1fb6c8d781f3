//! Expandable segments: reserved addresses, into which pages are mapped on demand.
//!
//! A segment reserves one and an eighth times the device's memory in addresses, for a stream, class
//! and pool. A request maps pages at the first unmapped addresses with room, behind the free block
//! that ends there; a release unmaps the whole pages inside free blocks.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::backend::contract::{Address, PhysicalHandle};
use crate::base::error::Result;
use crate::base::size::{round_up, to_usize};
use crate::engine::log::record::MemoryAction;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::recorder::Place;
use crate::memory::allocator::segments::none_if_short;
use crate::memory::allocator::source::{DevicePages, Part, ReleaseBatch, try_each};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::torch::{Plan, Torch};
use crate::memory::allocator::torch_blocks::{Block, BlockId, Owner, Pages, Segment, State};

/// The pages that a thread maps for the in-flight block `id`.
#[derive(Debug)]
struct Mapping {
    id: BlockId,
    to: Address,
    first_page: usize,
    page_bytes: usize,
    page_count: usize,
}

enum Step {
    /// The request has its block.
    Done(Allocated),
    /// Pages have to be mapped, behind the free block that the request holds.
    Map(Option<BlockId>, Mapping),
    /// Addresses have to be reserved.
    Reserve { bytes: usize, page_bytes: usize },
    /// The limit is reached, or no reservation would be large enough.
    Short,
}

impl CachingAllocator {
    /// Maps pages for a request and hands out its block. Fails as [`Self::grow`] does; pages mapped
    /// by then stay as free memory. Takes a segment if no addresses can be reserved.
    pub(super) fn grow_by_pages(
        &self,
        plan: &Plan,
        memory: DevicePages<'_>,
    ) -> Result<Option<Allocated>> {
        let granularity_bytes = memory.granularity_bytes();
        let mut held = None;
        loop {
            let step = {
                // A begun request goes on in another thread's turn, which waits for it.
                let begins = held.is_none();
                let mut state = if begins { self.lock_for_growth() } else { self.state.lock() };
                let AllocatorState { torch, ledger, .. } = &mut *state;
                torch.next_step(ledger, plan, held.take(), granularity_bytes)
            };
            match step {
                Step::Done(block) => return Ok(Some(block)),
                Step::Short => return Ok(None),
                Step::Reserve { bytes, page_bytes } => match memory.reserve(bytes) {
                    Ok(base) => self.with_torch(|torch, ledger| {
                        torch.add_addresses(ledger, plan, base, bytes, page_bytes);
                    }),
                    Err(_) => return self.grow_by_segment(plan),
                },
                Step::Map(continued, mapping) => {
                    let Mapping { to, page_bytes, page_count, .. } = mapping;
                    let mapped = map_pages(memory, to, page_bytes, page_count);
                    if let Ok(Ok(handles)) = mapped {
                        held = Some(self.with_torch(|torch, ledger| {
                            torch.end_map(ledger, continued, &mapping, handles)
                        }));
                        continue;
                    }
                    self.with_torch(|torch, ledger| torch.undo_map(ledger, continued, &mapping));
                    let mapped = mapped.unwrap_or_else(|panic| resume_unwind(panic));
                    return mapped.map_or_else(none_if_short, |_| Ok(None));
                }
            }
        }
    }
}

/// Creates `page_count` pages before it maps the first, as PyTorch does. When the device refuses or
/// panics, all of them go back.
pub(super) fn map_pages(
    memory: DevicePages<'_>,
    to: Address,
    page_bytes: usize,
    page_count: usize,
) -> thread::Result<Result<Vec<PhysicalHandle>>> {
    let (mut taken, mut mapped_count) = (Vec::with_capacity(page_count), 0);
    let take_and_map = || {
        while taken.len() < page_count {
            taken.push(memory.create(page_bytes)?);
        }
        while let Some(handle) = taken.get(mapped_count) {
            memory.map(to.offset(mapped_count * page_bytes), *handle)?;
            mapped_count += 1;
        }
        Ok(())
    };
    let outcome = catch_unwind(AssertUnwindSafe(take_and_map));
    if let Ok(Ok(())) = outcome {
        return Ok(Ok(taken));
    }
    let unplaced = taken.split_off(mapped_count);
    let dropped = try_each(taken, |handle| memory.drop_page(handle));
    // A page that the device refuses to take back stays with it.
    let released = try_each(unplaced, |handle| _ = memory.release(handle));
    let gone = dropped.and(released);
    outcome.and_then(|refused| gone.map(|()| refused.map(|()| Vec::new())))
}

/// Returns the step that reserves addresses for a request: [`Step::Short`] if too few.
fn addresses_for(ledger: &Ledger, plan: &Plan, granularity_bytes: usize) -> Step {
    let page_bytes = ledger.policy().page_bytes(plan.owner.class);
    let total_bytes = ledger.limits.total_bytes;
    let addresses = round_up(page_bytes, granularity_bytes).and_then(|page_bytes| {
        let bytes = round_up(total_bytes.checked_add(total_bytes / 8)?, page_bytes)?;
        (plan.search_bytes <= bytes).then_some(Step::Reserve { bytes, page_bytes })
    });
    addresses.unwrap_or(Step::Short)
}

impl Torch {
    /// Returns the next step of a request, which holds the block `held`.
    fn next_step(
        &mut self,
        ledger: &mut Ledger,
        plan: &Plan,
        held: Option<BlockId>,
        granularity_bytes: usize,
    ) -> Step {
        if let Some(id) = self.if_enough(held, plan) {
            return Step::Done(self.allocate_block(ledger, id, plan));
        }
        // As in PyTorch, the limit is compared once, with a segment's size instead of the pages'.
        if held.is_none() && ledger.limits.is_above(self.segment_bytes(ledger, plan)) {
            return Step::Short;
        }
        let behind = held.and_then(|id| self.blocks[id].next);
        let behind = behind.filter(|next| self.blocks[*next].state == State::Unmapped);
        let (held, unmapped) = match (held, behind) {
            (Some(held), Some(unmapped)) => (Some(held), unmapped),
            (held, _) => {
                if let Some(id) = held {
                    self.settle(id, State::Free); // another thread took the block behind it
                }
                match self.take_place(plan) {
                    Some(place) => place,
                    None => return addresses_for(ledger, plan, granularity_bytes),
                }
            }
        };
        if let Some(id) = self.if_enough(held, plan) {
            // Too large for the policy to choose, or freed since the search.
            return Step::Done(self.allocate_block(ledger, id, plan));
        }
        let held_bytes = held.map_or(0, |id| self.blocks[id].bytes);
        Step::Map(held, self.begin_map(ledger, unmapped, plan.search_bytes - held_bytes))
    }

    fn if_enough(&self, held: Option<BlockId>, plan: &Plan) -> Option<BlockId> {
        held.filter(|id| self.blocks[*id].bytes >= plan.search_bytes)
    }

    /// Finds the first place by address with room for a request: an unmapped block, and the free
    /// block before it, which is taken out of its index.
    fn take_place(&mut self, plan: &Plan) -> Option<(Option<BlockId>, BlockId)> {
        let place = self.find_place(plan)?;
        if let (Some(id), _) = place {
            self.take_free(id);
        }
        Some(place)
    }

    /// The bytes that the device would have to give for a request in an expandable segment.
    pub(super) fn growth_bytes(&self, ledger: &Ledger, plan: &Plan) -> usize {
        let continued = self.find_place(plan).and_then(|(continued, _)| continued);
        let held_bytes = continued.map_or(0, |id| self.blocks[id].bytes);
        let page_bytes = ledger.policy().page_bytes(plan.owner.class);
        let bytes = plan.search_bytes.saturating_sub(held_bytes);
        let mapped_bytes = round_up(bytes, page_bytes).unwrap_or(usize::MAX);
        if ledger.limits.allowed_bytes().is_none() {
            return mapped_bytes;
        }
        mapped_bytes.max(self.segment_bytes(ledger, plan)) // as `next_step` compares
    }

    fn find_place(&self, plan: &Plan) -> Option<(Option<BlockId>, BlockId)> {
        let index = self.indices.of(plan.owner.pool, plan.owner.class);
        let is_free = |id: &BlockId| self.blocks[*id].state == State::Free;
        let is_room = |id: BlockId| matches!(self.blocks[id].state, State::Free | State::Unmapped);
        let places = index.unmapped_of(plan.owner.stream).map(|unmapped| {
            let continued = self.blocks[unmapped].previous.filter(is_free);
            (continued, unmapped)
        });
        places.into_iter().find(|(continued, unmapped)| {
            let chain = self.blocks.chain(continued.unwrap_or(*unmapped));
            let mut room_bytes = 0;
            for (id, block) in chain {
                if room_bytes >= plan.search_bytes || !is_room(id) {
                    break;
                }
                room_bytes += block.bytes;
            }
            room_bytes >= plan.search_bytes
        })
    }

    fn add_addresses(
        &mut self,
        ledger: &mut Ledger,
        plan: &Plan,
        base: Address,
        bytes: usize,
        page_bytes: usize,
    ) {
        let (address, pages) = (self.address_for(base, bytes), Some(Pages::new(page_bytes)));
        let id = self.add_segment(ledger, address, base, bytes, plan.owner, pages);
        self.settle(id, State::Unmapped);
    }

    /// Begins to map up to `bytes` at the beginning of an unmapped block: counts the pages against
    /// the limit, and splits them off in flight. Other threads may use the rest.
    fn begin_map(&mut self, ledger: &mut Ledger, mut id: BlockId, bytes: usize) -> Mapping {
        let block = &self.blocks[id];
        let segment = &self.segments[block.segment];
        let page_bytes = segment.pages.as_ref().expect("an expandable segment").page_bytes;
        let bytes = bytes.min(block.bytes).next_multiple_of(page_bytes);
        let to = segment.at_backend(block.address);
        let first_page = to_usize(block.address - segment.address) / page_bytes;
        ledger.limits.take_anyway(bytes);
        let Owner { stream, class, pool } = self.owner_of(id);
        self.indices.of_mut(pool, class).remove_unmapped(stream, &self.blocks[id]);
        if bytes < self.blocks[id].bytes {
            let front = self.split_head(id, bytes);
            self.indices.of_mut(pool, class).insert_unmapped(stream, id, &self.blocks[id]);
            id = front;
        }
        self.blocks[id].state = State::InFlight;
        Mapping { id, to, first_page, page_bytes, page_count: bytes / page_bytes }
    }

    /// Records mapped pages. Merges their block with `continued` and the free block behind it.
    fn end_map(
        &mut self,
        ledger: &mut Ledger,
        continued: Option<BlockId>,
        mapping: &Mapping,
        handles: Vec<PhysicalHandle>,
    ) -> BlockId {
        let id = mapping.id;
        let bytes = mapping.page_count * mapping.page_bytes;
        let Owner { stream, class, pool } = self.owner_of(id);
        let Block { address, segment, .. } = self.blocks[id];
        let place = Place { address, bytes, stream, pool };
        ledger.recorder.note_moved(MemoryAction::PagesMapped, &place);
        let pages = self.segments[segment].pages.as_mut().expect("an expandable segment");
        pages.put(mapping.first_page, handles);
        ledger.note_answer(class, bytes, bytes);
        self.merge(id, continued, State::InFlight);
        let next = self.blocks[id].next;
        self.merge(id, next, State::Free);
        id
    }

    fn undo_map(&mut self, ledger: &mut Ledger, continued: Option<BlockId>, mapping: &Mapping) {
        let class = self.owner_of(mapping.id).class;
        ledger.note_answer(class, mapping.page_count * mapping.page_bytes, 0);
        self.settle(mapping.id, State::Unmapped);
        if let Some(id) = continued {
            self.settle(id, State::Free);
        }
    }

    /// Makes a block in no index free or unmapped: merges it with such neighbours and indexes it.
    fn settle(&mut self, id: BlockId, state: State) {
        let (previous, next) = (self.blocks[id].previous, self.blocks[id].next);
        self.merge(id, previous, state);
        self.merge(id, next, state);
        if state == State::Free {
            return self.put_in(id);
        }
        let Owner { stream, class, pool } = self.owner_of(id);
        self.blocks[id].state = State::Unmapped;
        self.blocks[id].requested_bytes = 0;
        self.indices.of_mut(pool, class).insert_unmapped(stream, id, &self.blocks[id]);
    }

    /// Splits the whole pages off a free block, and takes their handles. `None` if it has none.
    pub(super) fn begin_unmap(
        &mut self,
        ledger: &mut Ledger,
        mut id: BlockId,
    ) -> Option<ReleaseBatch> {
        let block = &self.blocks[id];
        let segment = &self.segments[block.segment];
        let page_bytes = segment.pages.as_ref()?.page_bytes;
        let first_page = to_usize(block.address - segment.address).div_ceil(page_bytes);
        let end_page = to_usize(block.end() - segment.address) / page_bytes;
        if first_page >= end_page {
            return None;
        }
        let begin = segment.address + (first_page * page_bytes) as u64;
        let before_bytes = to_usize(begin - block.address);
        let bytes = (end_page - first_page) * page_bytes;
        self.take_free(id);
        if before_bytes > 0 {
            let before = self.split_head(id, before_bytes);
            self.settle(before, State::Free);
        }
        if self.blocks[id].bytes > bytes {
            let unmapped = self.split_head(id, bytes);
            self.settle(id, State::Free);
            id = unmapped;
        }
        let segment = self.blocks[id].segment;
        let pages = self.segments[segment].pages.as_mut().expect("an expandable segment");
        let handles = (first_page..end_page).map(|index| pages.take(index)).collect();
        let Owner { stream, class, pool } = self.owner_of(id);
        let place = Place { address: begin, bytes, stream, pool };
        ledger.recorder.note_moved(MemoryAction::PagesUnmapped, &place);
        let departing = ledger.leave(Part::Pages(handles), &[(class, bytes)]);
        Some(ReleaseBatch { block: Some(id), ..departing })
    }

    /// Indexes unmapped addresses. Returns the segment's range when it has no page left.
    pub(super) fn end_unmap(&mut self, ledger: &mut Ledger, id: BlockId) -> Option<Part> {
        self.settle(id, State::Unmapped);
        self.begin_unreserve(ledger, id)
    }

    /// Removes a segment that is this one unmapped block. Returns its range.
    pub(super) fn begin_unreserve(&mut self, ledger: &mut Ledger, id: BlockId) -> Option<Part> {
        if self.blocks[id].is_split() {
            return None;
        }
        let Owner { stream, class, pool } = self.owner_of(id);
        self.indices.of_mut(pool, class).remove_unmapped(stream, &self.blocks[id]);
        self.blocks[id].state = State::InFlight;
        let Segment { base, bytes, .. } = self.remove_segment(ledger, id);
        Some(Part::Addresses(base, bytes))
    }
}
