//! Pages of numbers: reserved ranges, physical memory, and which lies where.

use std::collections::HashMap;

use crate::backend::contract::{Address, PhysicalHandle};
use crate::backend::null::memory::{Arena, Ranges};

/// The books of one device's virtual memory.
///
/// Equations: `reserved_bytes` is the sum over the reservations, `physical_bytes` over the physical
/// memory. Every mapping lies inside one reservation, no two share a number, and there is one for
/// each physical memory that says where it lies.
#[derive(Debug)]
pub(super) struct Pages {
    granularity_bytes: usize,
    reservations: Ranges,
    mappings: Ranges,
    physical: HashMap<u64, Physical>,
    next_physical: u64,
    reserved_bytes: usize,
    physical_bytes: usize,
}

#[derive(Debug)]
struct Physical {
    bytes: usize,
    mapped_at: Option<u64>,
}

impl Pages {
    /// Empty books; the first physical memory gets the id `first_id`.
    pub(super) fn new(granularity_bytes: usize, first_id: u64) -> Self {
        Self {
            granularity_bytes,
            reservations: Ranges::default(),
            mappings: Ranges::default(),
            physical: HashMap::new(),
            next_physical: first_id,
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

    /// The mapping that contains an address: its base and its size.
    pub(super) fn mapping_containing(&self, address: Address) -> Option<(u64, usize)> {
        self.mappings.containing(address.0)
    }

    pub(super) fn reserve(&mut self, arena: &mut Arena, bytes: usize) -> Option<Address> {
        self.check_size(bytes);
        let base = arena.take(bytes, self.granularity_bytes)?;
        self.reservations.insert(base, bytes);
        self.reserved_bytes += bytes;
        Some(Address(base))
    }

    pub(super) fn unreserve(&mut self, arena: &mut Arena, range: Address, bytes: usize) {
        let reserved = self.reservations.starting_at(range.0);
        assert_eq!(reserved, Some(bytes), "{range:x?} is given back as it was reserved");
        assert!(!self.mappings.overlaps(range.0, bytes), "something is mapped in {range:x?}");
        self.reservations.remove(range.0);
        arena.give_back(range.0).expect("every reservation is a span of its arena");
        self.reserved_bytes -= bytes;
    }

    /// Makes physical memory; the caller checked the capacity.
    pub(super) fn create(&mut self, bytes: usize) -> PhysicalHandle {
        self.check_size(bytes);
        let id = self.next_physical;
        self.next_physical += 1;
        self.physical.insert(id, Physical { bytes, mapped_at: None });
        self.physical_bytes += bytes;
        PhysicalHandle(id)
    }

    pub(super) fn map(&mut self, to: Address, physical: PhysicalHandle) {
        assert_eq!(to.0 % self.granularity_bytes as u64, 0, "{to:x?} is a multiple of the granule");
        let Physical { bytes, mapped_at } = self.physical_mut(physical);
        let bytes = *bytes;
        let before = mapped_at.replace(to.0);
        assert!(before.is_none(), "{physical:?} is mapped at {before:x?} already");
        let reservation = self.reservations.containing(to.0);
        let inside = reservation
            .is_some_and(|(base, reserved)| to.0 - base + bytes as u64 <= reserved as u64);
        assert!(inside, "{to:x?} with {bytes} bytes is not inside a reserved range");
        assert!(!self.mappings.overlaps(to.0, bytes), "something is mapped at {to:x?} already");
        self.mappings.insert(to.0, bytes);
    }

    pub(super) fn unmap(&mut self, physical: PhysicalHandle) {
        let mapped_at = self.physical_mut(physical).mapped_at.take();
        let base = mapped_at.unwrap_or_else(|| panic!("{physical:?} is not mapped"));
        self.mappings.remove(base).expect("a mapping where the physical memory says");
    }

    pub(super) fn release(&mut self, physical: PhysicalHandle) {
        let mapped_at = self.physical_mut(physical).mapped_at;
        assert!(mapped_at.is_none(), "{physical:?} is still mapped at {mapped_at:x?}");
        let gone = self.physical.remove(&physical.0);
        self.physical_bytes -= gone.expect("it was there a line ago").bytes;
    }

    fn physical_mut(&mut self, physical: PhysicalHandle) -> &mut Physical {
        let found = self.physical.get_mut(&physical.0);
        found.unwrap_or_else(|| panic!("{physical:?} is no live physical memory of this device"))
    }

    fn check_size(&self, bytes: usize) {
        let granularity_bytes = self.granularity_bytes;
        let right = bytes > 0 && bytes.is_multiple_of(granularity_bytes);
        assert!(right, "{bytes} bytes are not a positive multiple of {granularity_bytes}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::null::memory::Place;

    const GRANULE: usize = 4096;

    fn empty() -> (Arena, Pages) {
        (Arena::new(Place::Device(0)), Pages::new(GRANULE, 1))
    }

    #[test]
    fn pages_move_and_the_books_follow() {
        // Goal: every step leaves the equations true. Method: two physical memories, one range.
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
    fn an_unmap_of_what_is_not_mapped_is_caught() {
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
