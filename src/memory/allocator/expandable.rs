//! Expandable segments: addresses that get memory page by page where it is needed.
//!
//! A range of addresses as large as the device's memory and an eighth is reserved for a stream, a
//! class and a pool. A request maps pages behind the last block, continuing a free block at the
//! end, and a release unmaps the whole pages inside free blocks.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::backend::contract::{Address, PhysicalHandle};
use crate::base::error::Result;
use crate::base::size::{round_up, to_usize};
use crate::memory::allocator::block::{BlockId, State};
use crate::memory::allocator::books::{Books, Plan};
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::growth::{Range, none_if_short};
use crate::memory::allocator::release::try_each;
use crate::memory::allocator::segment::{Owner, Pages, Segment};
use crate::memory::allocator::source::DevicePages;

/// Pages that are on their way to the device: a block without memory, which is in no index.
#[derive(Debug)]
pub(super) struct Unmapping {
    id: BlockId,
    page_bytes: usize,
    handles: Vec<PhysicalHandle>,
}

impl Unmapping {
    pub(super) fn bytes(&self) -> usize {
        self.handles.len() * self.page_bytes
    }
}

/// Addresses without memory that are on their way to the device, and forgotten here.
#[derive(Debug)]
pub(super) struct Vacant {
    base: Address,
    bytes: usize,
}

/// Pages that are on their way to the beginning of an unmapped block.
#[derive(Debug)]
struct Mapping {
    id: BlockId,
    to: Address,
    first_page: usize,
    page_bytes: usize,
    page_count: usize,
}

/// How a request goes on.
enum Step {
    /// It has its block.
    Done(BlockId),
    /// Pages have to be mapped, behind the free block that it has.
    Map(Option<BlockId>, Mapping),
    /// Addresses have to be reserved for it.
    Reserve { bytes: usize, page_bytes: usize },
    /// The limit is reached, or no addresses would be enough.
    Short,
}

impl CachingAllocator {
    /// Maps pages for a request, and fails as `grow` does; what was mapped already is free memory
    /// then. Without addresses for it the device may still have a segment.
    pub(super) fn grow_by_pages(
        &self,
        plan: &Plan,
        memory: DevicePages<'_>,
    ) -> Result<Option<BlockId>> {
        let granularity_bytes = memory.granularity_bytes();
        let mut held = None;
        loop {
            // What is begun goes on in the turn of another: that one waits for it.
            let mut books = if held.is_none() { self.lock_for_growth() } else { self.books.lock() };
            let step = books.next_step(plan, held.take(), granularity_bytes);
            drop(books);
            match step {
                Step::Done(id) => return Ok(Some(id)),
                Step::Short => return Ok(None),
                Step::Reserve { bytes, page_bytes } => match memory.reserve(bytes) {
                    Ok(base) => self.books.lock().add_addresses(plan, base, bytes, page_bytes),
                    Err(_) => return self.grow_by_segment(plan),
                },
                Step::Map(continued, mapping) => {
                    let mapped = map_pages(&mapping, memory);
                    let mut books = self.books.lock();
                    if let Ok(Ok(handles)) = mapped {
                        held = Some(books.end_map(continued, &mapping, handles));
                        continue;
                    }
                    books.undo_map(continued, &mapping);
                    drop(books);
                    let mapped = mapped.unwrap_or_else(|panic| resume_unwind(panic));
                    return mapped.map_or_else(none_if_short, |_| Ok(None));
                }
            }
        }
    }

    /// Gives the pages of a victim back, and the addresses if no memory is left behind them.
    pub(super) fn unmap(&self, victim: &Unmapping) {
        let memory = self.source.virtual_memory().expect("it has given these pages");
        let outcome = try_each(&victim.handles, |handle| drop_page(*handle, memory));
        let vacant = self.books.lock().end_unmap(victim);
        if let Some(vacant) = vacant {
            self.unreserve(&vacant);
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Gives the addresses of a segment without memory back.
    pub(super) fn unreserve(&self, vacant: &Vacant) {
        let memory = self.source.virtual_memory().expect("it has given these addresses");
        // What is refused stays with the device.
        let _ = memory.unreserve(vacant.base, vacant.bytes);
    }
}

/// Takes as many pages as there are places, as PyTorch does before it maps the first; when anything
/// is refused, or the device panics, all of them go back.
fn map_pages(
    mapping: &Mapping,
    memory: DevicePages<'_>,
) -> thread::Result<Result<Vec<PhysicalHandle>>> {
    let (mut taken, mut mapped_count) = (Vec::with_capacity(mapping.page_count), 0);
    let take_and_map = || {
        while taken.len() < mapping.page_count {
            taken.push(memory.create(mapping.page_bytes)?);
        }
        while let Some(handle) = taken.get(mapped_count) {
            memory.map(mapping.to.offset(mapped_count * mapping.page_bytes), *handle)?;
            mapped_count += 1;
        }
        Ok(())
    };
    let outcome = catch_unwind(AssertUnwindSafe(take_and_map));
    if let Ok(Ok(())) = outcome {
        return Ok(Ok(taken));
    }
    let unplaced = taken.split_off(mapped_count);
    let dropped = try_each(taken, |handle| drop_page(handle, memory));
    // What is refused stays with the device.
    let released = try_each(unplaced, |handle| _ = memory.release(handle));
    let gone = dropped.and(released);
    outcome.and_then(|refused| gone.map(|()| refused.map(|()| Vec::new())))
}

/// Gives a mapped page back, also when it cannot be unmapped first. What is refused stays with the
/// device.
pub(super) fn drop_page(handle: PhysicalHandle, memory: DevicePages<'_>) {
    let calls = [DevicePages::unmap, DevicePages::release];
    let outcome = try_each(calls, |call| _ = call(memory, handle));
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}

impl Books {
    /// What a request for which `held` was taken out of its index needs next.
    fn next_step(&mut self, plan: &Plan, held: Option<BlockId>, granularity_bytes: usize) -> Step {
        if let Some(id) = self.if_enough(held, plan) {
            return Step::Done(self.hand_out(id, plan));
        }
        // As in PyTorch the limit is asked once, about a segment, whatever pages come to.
        if held.is_none() && self.limits.is_above(self.segment_bytes(plan)) {
            return Step::Short;
        }
        let behind = held.and_then(|id| self.blocks[id].next);
        let behind = behind.filter(|next| self.blocks[*next].state == State::Unmapped);
        let (held, unmapped) = match (held, behind) {
            (Some(held), Some(unmapped)) => (Some(held), unmapped),
            (held, _) => {
                if let Some(id) = held {
                    self.settle(id, State::Free); // another thread took what stood behind it
                }
                match self.take_place(plan) {
                    Some(place) => place,
                    None => return self.addresses_for(plan, granularity_bytes),
                }
            }
        };
        if let Some(id) = self.if_enough(held, plan) {
            return Step::Done(self.hand_out(id, plan)); // one that was too large to be chosen
        }
        let held_bytes = held.map_or(0, |id| self.blocks[id].bytes);
        Step::Map(held, self.begin_map(unmapped, plan.search_bytes - held_bytes))
    }

    fn if_enough(&self, held: Option<BlockId>, plan: &Plan) -> Option<BlockId> {
        held.filter(|id| self.blocks[*id].bytes >= plan.search_bytes)
    }

    /// The first place by address with room for a request: a free block to be continued, which is
    /// taken out of its index, and the unmapped one behind it.
    fn take_place(&mut self, plan: &Plan) -> Option<(Option<BlockId>, BlockId)> {
        let index = self.pools[plan.owner.pool].index(plan.owner.class);
        let is_free = |id: &BlockId| self.blocks[*id].state == State::Free;
        let is_room = |id: BlockId| matches!(self.blocks[id].state, State::Free | State::Unmapped);
        let places = index.unmapped_of(plan.owner.stream).map(|unmapped| {
            let continued = self.blocks[unmapped].previous.filter(is_free);
            (continued, unmapped)
        });
        let (continued, unmapped) = places.into_iter().find(|(continued, unmapped)| {
            let chain = self.blocks.chain(continued.unwrap_or(*unmapped));
            let mut room_bytes = 0;
            for (id, block) in chain {
                if room_bytes >= plan.search_bytes || !is_room(id) {
                    break;
                }
                room_bytes += block.bytes;
            }
            room_bytes >= plan.search_bytes
        })?;
        if let Some(id) = continued {
            self.take_out(id);
        }
        Some((continued, unmapped))
    }

    fn addresses_for(&self, plan: &Plan, granularity_bytes: usize) -> Step {
        let page_bytes = self.policy().page_bytes(plan.owner.class);
        let total_bytes = self.limits.total_bytes;
        let addresses = round_up(page_bytes, granularity_bytes).and_then(|page_bytes| {
            let bytes = round_up(total_bytes.checked_add(total_bytes / 8)?, page_bytes)?;
            (plan.search_bytes <= bytes).then_some(Step::Reserve { bytes, page_bytes })
        });
        addresses.unwrap_or(Step::Short)
    }

    fn add_addresses(&mut self, plan: &Plan, base: Address, bytes: usize, page_bytes: usize) {
        let (address, pages) = (self.address_for(base, bytes), Some(Pages::new(page_bytes)));
        let range = Range { address, base, bytes, owner: plan.owner, is_oversize: false, pages };
        let id = self.add_range(range);
        self.settle(id, State::Unmapped);
    }

    /// Takes pages for `bytes` at the beginning of an unmapped block into account: a block of their
    /// own, which is in no index; what is behind them is there for others meanwhile.
    fn begin_map(&mut self, mut id: BlockId, bytes: usize) -> Mapping {
        let block = &self.blocks[id];
        let segment = &self.segments[block.segment];
        let page_bytes = segment.pages.as_ref().expect("an expandable segment").page_bytes;
        let bytes = bytes.min(block.bytes).next_multiple_of(page_bytes);
        let to = segment.at_backend(block.address);
        let first_page = to_usize(block.address - segment.address) / page_bytes;
        self.limits.take_anyway(bytes);
        let Owner { stream, class, pool } = self.owner_of(id);
        self.pools[pool].index_mut(class).remove_unmapped(stream, &self.blocks[id]);
        if bytes < self.blocks[id].bytes {
            let front = self.split_front(id, bytes);
            self.pools[pool].index_mut(class).insert_unmapped(stream, id, &self.blocks[id]);
            id = front;
        }
        self.blocks[id].state = State::InFlight;
        Mapping { id, to, first_page, page_bytes, page_count: bytes / page_bytes }
    }

    /// Notes pages that are in place: the block with them and the free one before it.
    fn end_map(
        &mut self,
        continued: Option<BlockId>,
        mapping: &Mapping,
        handles: Vec<PhysicalHandle>,
    ) -> BlockId {
        let id = mapping.id;
        let class = self.owner_of(id).class;
        let bytes = mapping.page_count * mapping.page_bytes;
        let segment = self.blocks[id].segment;
        let pages = self.segments[segment].pages.as_mut().expect("an expandable segment");
        for (index, handle) in handles.into_iter().enumerate() {
            pages.put(mapping.first_page + index, handle);
        }
        self.limits.note_answer(0);
        self.statistics.reserved_bytes.increase(class, bytes);
        self.statistics.num_device_alloc += 1;
        self.merge(id, continued, State::InFlight);
        let next = self.blocks[id].next;
        self.merge(id, next, State::Free);
        id
    }

    /// Nothing was mapped: both blocks are what they were.
    fn undo_map(&mut self, continued: Option<BlockId>, mapping: &Mapping) {
        self.limits.note_answer(mapping.page_count * mapping.page_bytes);
        self.settle(mapping.id, State::Unmapped);
        if let Some(id) = continued {
            self.settle(id, State::Free);
        }
    }

    /// Puts a block that is in no index into the one for a state, merged with its neighbours there.
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
        self.pools[pool].index_mut(class).insert_unmapped(stream, id, &self.blocks[id]);
    }

    /// Takes the whole pages out of a free block, if it has some, and forgets their memory.
    pub(super) fn begin_unmap(&mut self, mut id: BlockId) -> Option<Unmapping> {
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
        self.take_out(id);
        if before_bytes > 0 {
            let before = self.split_front(id, before_bytes);
            self.settle(before, State::Free);
        }
        if self.blocks[id].bytes > bytes {
            let unmapped = self.split_front(id, bytes);
            self.settle(id, State::Free);
            id = unmapped;
        }
        let segment = self.blocks[id].segment;
        let pages = self.segments[segment].pages.as_mut().expect("an expandable segment");
        let handles = (first_page..end_page).map(|index| pages.take(index)).collect();
        let class = self.owner_of(id).class;
        self.statistics.reserved_bytes.decrease(class, bytes);
        self.statistics.num_device_free += 1;
        Some(Unmapping { id, page_bytes, handles })
    }

    /// Addresses whose pages are gone can get others; all of them, when they have no page left.
    fn end_unmap(&mut self, victim: &Unmapping) -> Option<Vacant> {
        self.settle(victim.id, State::Unmapped);
        self.begin_unreserve(victim.id)
    }

    /// Forgets the addresses of a segment, if an unmapped block is all of it.
    pub(super) fn begin_unreserve(&mut self, id: BlockId) -> Option<Vacant> {
        if self.blocks[id].is_split() {
            return None;
        }
        let Owner { stream, class, pool } = self.owner_of(id);
        self.pools[pool].index_mut(class).remove_unmapped(stream, &self.blocks[id]);
        self.blocks[id].state = State::InFlight;
        let Segment { base, bytes, .. } = self.forget_range(id);
        Some(Vacant { base, bytes })
    }
}
