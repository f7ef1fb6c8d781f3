//! Memory that goes back to the device: idle pages, addresses and segments in which nothing is.

use std::panic::resume_unwind;

use crate::backend::contract::{Address, PhysicalHandle};
use crate::memory::allocator::books::Books;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::expandable::drop_page;
use crate::memory::allocator::native::area::{Area, AreaId};
use crate::memory::allocator::native::block::State;
use crate::memory::allocator::native::growth::IdlePage;
use crate::memory::allocator::native::heap::HeapId;
use crate::memory::allocator::pending::Wanted;
use crate::memory::allocator::pool::PoolId;
use crate::memory::allocator::release::try_each;

/// Memory on its way to the device.
#[derive(Debug)]
enum Departing {
    Page(PhysicalHandle),
    Addresses { base: Address, bytes: usize },
    Segment(Address),
}

/// What goes back at once, and how much of it counts against the limit.
#[derive(Debug, Default)]
pub(super) struct Departure {
    parts: Vec<Departing>,
    bytes: usize,
}

impl CachingAllocator {
    /// Gives back what is free in the pools that are wanted and that no stream uses.
    pub(in crate::memory::allocator) fn shrink_native(
        &self,
        is_wanted: impl Fn(&Books, PoolId) -> bool,
    ) {
        let departure = self.lock_when(|books| !books.native.is_mapping).begin_departure(is_wanted);
        if let Some(departure) = departure {
            self.depart(departure);
        }
    }

    /// Gives back free segments that are larger than those which are kept.
    pub(super) fn shrink_segments_above(&self, most_bytes: usize) {
        let departure = {
            let mut books = self.lock_when(|books| !books.native.is_mapping);
            let areas = books.native.areas.iter();
            let above = areas.filter(|(_, area)| area.bytes > most_bytes && books.is_vacant(area));
            let ids: Vec<AreaId> = above.map(|(id, _)| id).collect();
            books.areas_depart(&ids, Departure::default())
        };
        if let Some(departure) = departure {
            self.depart(departure);
        }
    }

    /// Gives back what was taken out.
    pub(super) fn depart(&self, Departure { parts, bytes }: Departure) {
        // What the device refuses to take back stays with it, and nobody uses it again.
        let outcome = try_each(parts, |part| {
            let _ = match part {
                Departing::Segment(base) => self.source.release(base),
                Departing::Page(handle) => {
                    drop_page(handle, self.source.virtual_memory().expect("it gave this page"));
                    Ok(())
                }
                Departing::Addresses { base, bytes } => {
                    let memory = self.source.virtual_memory().expect("it gave these addresses");
                    memory.unreserve(base, bytes)
                }
            };
        });
        let mut books = self.books.lock();
        books.native.is_mapping = false;
        books.sleepers.wake();
        books.departures += 1;
        books.limits.give_back(bytes);
        drop(books); // which others wait for
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

impl Books {
    /// Takes out what can go; `None` when nothing can.
    fn begin_departure(&mut self, is_wanted: impl Fn(&Self, PoolId) -> bool) -> Option<Departure> {
        let mut departure = Departure::default();
        self.idle_pages_depart(&is_wanted, &mut departure);
        let empty: Vec<AreaId> = {
            let native = &self.native;
            let wanted = native.areas.iter().filter(|(_, area)| {
                is_wanted(self, native.heaps[area.heap].owner.pool) && self.is_vacant(area)
            });
            wanted.map(|(id, _)| id).collect()
        };
        self.areas_depart(&empty, departure)
    }

    /// Takes out those of some areas in which nothing is and whose streams are gone; `None` when
    /// there is none.
    pub(super) fn gone_areas_depart(&mut self, mut areas: Vec<AreaId>) -> Option<Departure> {
        areas.retain(|id| {
            let area = self.native.areas.get(*id);
            area.is_some_and(|area| self.native.heaps[area.heap].is_over() && self.is_vacant(area))
        });
        self.areas_depart(&areas, Departure::default())
    }

    fn areas_depart(&mut self, ids: &[AreaId], mut departure: Departure) -> Option<Departure> {
        for id in ids {
            if self.native.areas.get(*id).is_some() {
                self.area_departs(*id, &mut departure); // an area may be named twice
            }
        }
        if departure.parts.is_empty() {
            return None;
        }
        self.native.is_mapping = true;
        Some(departure)
    }

    fn idle_pages_depart(
        &mut self,
        is_wanted: &impl Fn(&Self, PoolId) -> bool,
        departure: &mut Departure,
    ) {
        let native = &self.native;
        let is_ready = |idle: &IdlePage| {
            let pool = native.heaps[native.areas[idle.area].heap].owner.pool;
            is_wanted(self, pool) && !native.is_page_used(idle)
        };
        let ready: Vec<IdlePage> = native.idle_pages().filter(is_ready).collect();
        for (idle, handle) in self.native.take_pages(&ready) {
            let area = &self.native.areas[idle.area];
            let page_bytes = self.native.sizes.page_bytes;
            self.statistics.reserved_bytes.decrease(area.kind.class(), page_bytes);
            departure.parts.push(Departing::Page(handle));
            departure.bytes += page_bytes;
        }
        self.statistics.num_device_free += u64::from(!departure.parts.is_empty());
    }

    /// True when an area is one free block that nothing uses and that has no page.
    fn is_vacant(&self, area: &Area) -> bool {
        let block = &self.native.blocks[area.first];
        let vacant = if area.pages.is_some() { State::Bare } else { State::Free };
        let is_whole = block.state == vacant && block.next.is_none();
        is_whole && !self.native.is_using(area.heap, block.busy_until())
    }

    fn area_departs(&mut self, id: AreaId, departure: &mut Departure) {
        let native = &mut self.native;
        native.forget_block(native.areas[id].first);
        let Area { base, bytes, heap, kind, pages, .. } = native.areas.remove(id);
        native.heaps[heap].arena_mut(kind).areas.retain(|area| *area != id);
        if native.heaps[heap].is_empty() {
            native.heaps.remove(heap);
        }
        if pages.is_some() {
            return departure.parts.push(Departing::Addresses { base, bytes });
        }
        departure.parts.push(Departing::Segment(base));
        departure.bytes += bytes;
        self.statistics.segment.decrease(kind.class(), 1);
        self.statistics.reserved_bytes.decrease(kind.class(), bytes);
        self.statistics.num_device_free += 1;
    }

    /// Free memory that streams still use, by heap: how much, and until when.
    pub(in crate::memory::allocator) fn native_holders(
        &self,
        wanted: Wanted,
        note: &mut impl FnMut(u64, u64, usize),
    ) {
        let native = &self.native;
        let mut note = |heap: HeapId, count: u64, bytes: usize| {
            let heap = &native.heaps[heap];
            if heap.is_using(count) {
                note(heap.owner.stream, heap.ticket_of(count), bytes);
            }
        };
        for idle in native.idle_pages() {
            let area = &native.areas[idle.area];
            let pages = area.pages.as_ref().expect("an idle page");
            note(area.heap, pages.busy_until(idle.page), pages.page_bytes);
        }
        for (_, area) in native.areas.iter() {
            // The idle pages of a block were noted; the rest of it has pages in use.
            let is_segment = area.pages.is_none();
            if !is_segment && wanted == Wanted::Back {
                continue;
            }
            for (_, block) in native.blocks.chain(area.first) {
                if block.state == State::Free {
                    let bytes = if is_segment { area.bytes_of(block.units) } else { 0 };
                    note(area.heap, block.busy_until(), bytes);
                }
            }
        }
        for (_, slab) in native.slabs.iter().filter(|_| wanted == Wanted::Served) {
            let bytes = slab.free.count_ones() as usize * slab.class.bytes();
            note(slab.heap, slab.busy_until, bytes);
        }
    }
}
