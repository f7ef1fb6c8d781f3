//! Virtual memory of the null kind: reserved ranges, physical memory and mappings.

use std::collections::VecDeque;

use accelrt::backend::contract::{Address, PhysicalHandle};
use accelrt::size::to_usize;

use super::memory::Arena;

/// The virtual memory of one device. Lookups are fast: the allocator's benchmarks run on this kind.
///
/// Invariants: `reserved_bytes` is the size of all reservations, and `physical_bytes` that of all
/// physical memory. Every mapping lies inside one reservation, and no two mappings share a granule.
/// `Physical::mapped_at` is an address exactly while the granules there hold the handle.
#[derive(Debug)]
pub(super) struct Pages {
    /// The granularity is a power of two: this is the exponent.
    granule_shift: u32,
    /// By base address: there are few.
    reservations: Vec<Reservation>,
    /// Entries by ascending id, from `first_physical` on. Ids are not reused.
    physical: VecDeque<Physical>,
    first_physical: u64,
    reserved_bytes: usize,
    physical_bytes: usize,
}

#[derive(Debug)]
struct Reservation {
    base: u64,
    bytes: usize,
    /// The id of the physical memory at each granule; 0 for none, and for all behind it.
    granules: Vec<u64>,
}

/// A piece of physical memory.
#[derive(Debug)]
struct Physical {
    /// 0 for memory that was released.
    bytes: usize,
    /// 0 while it is not mapped.
    mapped_at: u64,
}

/// Ranges begin where blocks of an allocator may begin, also with smaller granules.
const LEAST_RANGE_ALIGN_BYTES: usize = 512;
/// The room of the first granules of a reservation.
const FIRST_GRANULES: usize = 64;

impl Pages {
    /// Creates virtual memory without reservations. The first physical memory will have `first_id`.
    pub(super) fn new(granularity_bytes: usize, first_id: u64) -> Self {
        Self {
            granule_shift: granularity_bytes.ilog2(),
            reservations: Vec::new(),
            physical: VecDeque::new(),
            first_physical: first_id,
            reserved_bytes: 0,
            physical_bytes: 0,
        }
    }

    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    pub(super) fn physical_bytes(&self) -> usize {
        self.physical_bytes
    }

    /// The base and size of the mapping that contains an address.
    pub(super) fn mapping_containing(&self, address: Address) -> Option<(u64, usize)> {
        let reservation = &self.reservations[self.reservation_before(address.0)?];
        let granule = to_usize(address.0 - reservation.base) >> self.granule_shift;
        let mapped = reservation.granules.get(granule).filter(|id| **id > 0)?;
        let Physical { bytes, mapped_at } = self.physical[self.index_of(PhysicalHandle(*mapped))];
        Some((mapped_at, bytes))
    }

    pub(super) fn reserve(&mut self, arena: &mut Arena, bytes: usize) -> Option<Address> {
        self.check_size(bytes);
        let base = arena.take(bytes, self.granularity_bytes().max(LEAST_RANGE_ALIGN_BYTES))?;
        let place = self.reservation_before(base).map_or(0, |before| before + 1);
        self.reservations.insert(place, Reservation { base, bytes, granules: Vec::new() });
        assert!(self.reservations[..place].last().is_none_or(|it| it.base < base), "{base:#x}");
        self.reserved_bytes += bytes;
        Some(Address(base))
    }

    pub(super) fn unreserve(&mut self, arena: &mut Arena, range: Address, bytes: usize) {
        let place = self.reservation_before(range.0);
        let reserved = place.map(|place| &self.reservations[place]);
        let is_whole = reserved.is_some_and(|it| (it.base, it.bytes) == (range.0, bytes));
        assert!(is_whole, "{range:x?} is given back as it was reserved: {bytes} of {reserved:?}");
        let mut granules = reserved.iter().flat_map(|reserved| &reserved.granules);
        assert!(granules.all(|id| *id == 0), "something is mapped in {range:x?}");
        self.reservations.remove(place.expect("it was found"));
        arena.release(range.0).expect("every reservation is a span of its arena");
        self.reserved_bytes -= bytes;
    }

    /// Creates unmapped physical memory. The caller has checked the capacity.
    pub(super) fn create(&mut self, bytes: usize) -> PhysicalHandle {
        self.create_at(bytes, 0)
    }

    #[inline(always)]
    fn create_at(&mut self, bytes: usize, mapped_at: u64) -> PhysicalHandle {
        self.check_size(bytes);
        let id = self.first_physical + self.physical.len() as u64;
        self.physical.push_back(Physical { bytes, mapped_at });
        self.physical_bytes += bytes;
        PhysicalHandle(id)
    }

    pub(super) fn map(&mut self, to: Address, physical: PhysicalHandle) {
        let Physical { bytes, mapped_at } = self.physical_mut(physical);
        let (bytes, before) = (*bytes, std::mem::replace(mapped_at, to.0));
        assert!(before == 0, "{physical:?} is mapped at {:x?} already", Address(before));
        self.note_mapped(to, bytes, physical);
    }

    /// Creates physical memory that is mapped. The caller has checked the capacity.
    #[inline(always)]
    pub(super) fn create_mapped(&mut self, to: Address, bytes: usize) -> PhysicalHandle {
        let physical = self.create_at(bytes, to.0);
        self.note_mapped(to, bytes, physical);
        physical
    }

    pub(super) fn unmap(&mut self, physical: PhysicalHandle) {
        let Physical { bytes, mapped_at } = self.physical_mut(physical);
        let (bytes, base) = (*bytes, std::mem::take(mapped_at));
        self.note_unmapped(base, bytes, physical);
    }

    #[inline(always)]
    pub(super) fn relocate(&mut self, physical: PhysicalHandle, to: Address) {
        let Physical { bytes, mapped_at } = self.physical_mut(physical);
        let (bytes, base) = (*bytes, std::mem::replace(mapped_at, to.0));
        self.note_unmapped(base, bytes, physical);
        self.note_mapped(to, bytes, physical);
    }

    #[inline(always)]
    fn note_mapped(&mut self, to: Address, bytes: usize, physical: PhysicalHandle) {
        let is_place = to.0 > 0 && self.is_aligned(to_usize(to.0));
        assert!(is_place, "{to:x?} is a multiple of the granule");
        for there in self.granules_at(to.0, bytes) {
            let before = std::mem::replace(there, physical.0);
            assert!(before == 0, "something is mapped at {to:x?} already");
        }
    }

    #[inline(always)]
    fn note_unmapped(&mut self, base: u64, bytes: usize, physical: PhysicalHandle) {
        assert!(base > 0, "{physical:?} is not mapped");
        self.granules_at(base, bytes).iter_mut().for_each(|there| *there = 0);
    }

    pub(super) fn release(&mut self, physical: PhysicalHandle) {
        let entry = self.physical_mut(physical);
        let Physical { bytes, mapped_at } = *entry;
        assert!(mapped_at == 0, "{physical:?} is still mapped at {:x?}", Address(mapped_at));
        entry.bytes = 0;
        while self.physical.front().is_some_and(|first| first.bytes == 0) {
            self.physical.pop_front();
            self.first_physical += 1;
        }
        self.physical_bytes -= bytes;
    }

    /// The granules of a range, which is inside of one reservation.
    #[inline(always)]
    fn granules_at(&mut self, to: u64, bytes: usize) -> &mut [u64] {
        let place = self.reservation_before(to);
        let last = place.map(|place| &mut self.reservations[place]);
        let inside = last.filter(|it| to - it.base + bytes as u64 <= it.bytes as u64);
        let Some(Reservation { base, bytes: reserved_bytes, granules }) = inside else {
            panic!("{:x?} with {bytes} bytes is not inside a reserved range", Address(to));
        };
        let first = to_usize(to - *base) >> self.granule_shift;
        let end = first + (bytes >> self.granule_shift);
        if granules.len() < end {
            let all = *reserved_bytes >> self.granule_shift;
            // Most pages come one behind another.
            granules.resize((end * 2).max(FIRST_GRANULES).min(all), 0);
        }
        &mut granules[first..end]
    }

    /// The place of the last reservation that begins at an address or before it.
    #[inline(always)]
    fn reservation_before(&self, address: u64) -> Option<usize> {
        let is_last = self.reservations.last().is_some_and(|last| last.base <= address);
        let behind = || self.reservations.partition_point(|it| it.base <= address);
        let count = if is_last { self.reservations.len() } else { behind() };
        count.checked_sub(1)
    }

    /// The index of a handle's entry in `physical`. Out of bounds for an unknown handle, and for an
    /// entry that `release` has removed.
    fn index_of(&self, physical: PhysicalHandle) -> usize {
        physical.0.checked_sub(self.first_physical).map_or(usize::MAX, to_usize)
    }

    fn physical_mut(&mut self, physical: PhysicalHandle) -> &mut Physical {
        let place = self.index_of(physical);
        let found = self.physical.get_mut(place).filter(|found| found.bytes > 0);
        found.unwrap_or_else(|| panic!("{physical:?} is no live physical memory of this device"))
    }

    fn granularity_bytes(&self) -> usize {
        1 << self.granule_shift
    }

    fn is_aligned(&self, number: usize) -> bool {
        number & (self.granularity_bytes() - 1) == 0
    }

    fn check_size(&self, bytes: usize) {
        let right = bytes > 0 && self.is_aligned(bytes);
        let granularity_bytes = self.granularity_bytes();
        assert!(right, "{bytes} bytes are not a positive multiple of {granularity_bytes}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reuse;
    use super::super::memory::Place;
    use super::*;

    const GRANULE: usize = 4096;

    fn empty() -> (Arena, Pages) {
        (Arena::new(Place::Device(0), Reuse::Late), Pages::new(GRANULE, 1))
    }

    #[test]
    fn every_step_preserves_the_invariants() {
        // Goal: each method keeps the invariants. Method: two physical memories in one range.
        let (mut arena, mut pages) = empty();
        let range = pages.reserve(&mut arena, 4 * GRANULE).unwrap();
        let (first, second) = (pages.create(GRANULE), pages.create(2 * GRANULE));
        assert_ne!(first, second);
        pages.map(range, first);
        pages.map(range.offset(GRANULE), second);
        let interior = range.offset(3 * GRANULE - 1);
        let expected = Some((range.offset(GRANULE).0, 2 * GRANULE));
        assert_eq!(pages.mapping_containing(interior), expected);
        assert_eq!(pages.mapping_containing(range.offset(3 * GRANULE)), None);
        pages.unmap(second);
        pages.map(range.offset(2 * GRANULE), second);
        pages.relocate(second, range.offset(GRANULE));
        assert_eq!(pages.mapping_containing(interior), expected);
        assert_eq!(pages.mapping_containing(range.offset(3 * GRANULE)), None);
        assert_eq!((pages.reserved_bytes(), pages.physical_bytes()), (4 * GRANULE, 3 * GRANULE));
        for physical in [first, second] {
            pages.unmap(physical);
            pages.release(physical);
        }
        pages.unreserve(&mut arena, range, 4 * GRANULE);
        assert_eq!((pages.reserved_bytes(), pages.physical_bytes()), (0, 0));
        assert_eq!(pages.create(GRANULE), PhysicalHandle(3));
    }

    #[test]
    fn ranges_of_small_granules_begin_where_blocks_may_begin() {
        let (mut arena, mut pages) = (Arena::new(Place::Device(0), Reuse::Late), Pages::new(64, 1));
        let ranges = [64, 640, 64].map(|bytes| pages.reserve(&mut arena, bytes).unwrap());
        assert!(ranges.iter().all(|range| range.0.is_multiple_of(512)), "{ranges:x?}");
    }

    #[test]
    #[should_panic(expected = "is mapped at")]
    fn a_second_mapping_of_one_physical_memory_is_caught() {
        let (mut arena, mut pages) = empty();
        let range = pages.reserve(&mut arena, 2 * GRANULE).unwrap();
        let physical = pages.create(GRANULE);
        pages.map(range, physical);
        pages.map(range.offset(GRANULE), physical);
    }

    #[test]
    #[should_panic(expected = "something is mapped at")]
    fn a_mapping_over_another_is_caught() {
        let (mut arena, mut pages) = empty();
        let range = pages.reserve(&mut arena, 4 * GRANULE).unwrap();
        let (long, short) = (pages.create(2 * GRANULE), pages.create(GRANULE));
        pages.map(range, long);
        pages.map(range.offset(GRANULE), short);
    }

    #[test]
    #[should_panic(expected = "not inside a reserved range")]
    fn a_mapping_past_the_end_is_caught() {
        let (mut arena, mut pages) = empty();
        let range = pages.reserve(&mut arena, GRANULE).unwrap();
        let physical = pages.create(2 * GRANULE);
        pages.map(range, physical);
    }

    #[test]
    #[should_panic(expected = "is not mapped")]
    fn an_unmap_of_unmapped_memory_panics() {
        let (_, mut pages) = empty();
        let physical = pages.create(GRANULE);
        pages.unmap(physical);
    }

    #[test]
    #[should_panic(expected = "something is mapped in")]
    fn an_unreserve_under_a_mapping_is_caught() {
        let (mut arena, mut pages) = empty();
        let range = pages.reserve(&mut arena, 2 * GRANULE).unwrap();
        let physical = pages.create(GRANULE);
        pages.map(range.offset(GRANULE), physical);
        pages.unreserve(&mut arena, range, 2 * GRANULE);
    }

    #[test]
    #[should_panic(expected = "is still mapped at")]
    fn a_release_of_mapped_memory_is_caught() {
        let (mut arena, mut pages) = empty();
        let range = pages.reserve(&mut arena, GRANULE).unwrap();
        let physical = pages.create(GRANULE);
        pages.map(range, physical);
        pages.release(physical);
    }
}
