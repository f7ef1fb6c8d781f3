//! Addresses without memory: arenas, the allocations in them, and the pages of virtual memory.
//!
//! Each device and the host have an arena. The arenas lie above the user address space, so none of
//! their addresses is a valid pointer. An arena searches next fit, which reuses an address as late
//! as possible. With [`Reuse::AtOnce`], an arena searches from the last released address.

use std::collections::{BTreeMap, VecDeque};
use std::thread::yield_now;

use accelrt::backend::contract::{Address, PhysicalHandle};
use accelrt::size::to_usize;

/// When an arena reuses a released address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// As late as possible: after the arena's other free addresses. Exposes uses after a release.
    Late,
    /// At the next request that fits. Exposes stale records of a released address. The releasing
    /// thread yields after the release, so that another thread can get the address.
    AtOnce,
}

/// Start of the first arena. Even with five-level page tables, all user addresses are lower.
const ARENAS_START: u64 = 0x7000_0000_0000_0000;
/// Binary logarithm of an arena's size: an arena has 256 TiB of addresses.
const ARENA_SHIFT: u32 = 48;
/// Unused addresses behind each span, so that an overrun does not reach the next span.
const GUARD_BYTES: u64 = 64;
pub(super) const LEAST_ALIGN_BYTES: usize = 64;

/// The arena that contains an address, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Pinned host memory of this backend.
    Host,
    /// Memory of the device with this index.
    Device(usize),
    /// Not an address of this backend.
    Elsewhere,
}

impl Place {
    pub(super) fn of(address: Address, device_count: usize) -> Self {
        let slot = address.0.checked_sub(ARENAS_START).map(|offset| offset >> ARENA_SHIFT);
        match slot.and_then(|slot| usize::try_from(slot).ok()) {
            Some(0) => Self::Host,
            Some(slot) if slot <= device_count => Self::Device(slot - 1),
            _ => Self::Elsewhere,
        }
    }

    fn start(self) -> u64 {
        let slot = match self {
            Self::Host => 0,
            Self::Device(index) => index as u64 + 1,
            Self::Elsewhere => unreachable!("an arena is the host's or a device's"),
        };
        ARENAS_START + (slot << ARENA_SHIFT)
    }
}

/// Sizes of address ranges, by first address. The ranges never overlap.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, usize>);

impl Ranges {
    pub(super) fn insert(&mut self, base: u64, bytes: usize) {
        let before = self.0.insert(base, bytes);
        assert!(before.is_none(), "a range begins at {base:#x} already");
    }

    /// Removes the range that begins at `base`, if any, and returns its size.
    pub(super) fn remove(&mut self, base: u64) -> Option<usize> {
        self.0.remove(&base)
    }

    /// The base and size of the range that contains `number`.
    pub(super) fn containing(&self, number: u64) -> Option<(u64, usize)> {
        let (&base, &bytes) = self.0.range(..=number).next_back()?;
        (number - base < bytes as u64).then_some((base, bytes))
    }
}

/// A range of addresses that issues spans. The head of this module describes the search.
#[derive(Debug)]
pub(super) struct Arena {
    start: u64,
    cursor: u64,
    spans: Ranges,
    reuse: Reuse,
}

impl Arena {
    pub(super) fn new(place: Place, reuse: Reuse) -> Self {
        let (start, spans) = (place.start(), Ranges::default());
        Self { start, cursor: start, spans, reuse }
    }

    /// Allocates `bytes` addresses, aligned to `align_bytes` or 64. `None` when no gap fits.
    pub(super) fn take(&mut self, bytes: usize, align_bytes: usize) -> Option<u64> {
        let align_bytes = align_bytes.max(LEAST_ALIGN_BYTES) as u64;
        let base = self
            .gap(self.cursor, bytes as u64, align_bytes)
            .or_else(|| self.gap(self.start, bytes as u64, align_bytes))?;
        self.spans.insert(base, bytes);
        self.cursor = base + bytes as u64 + GUARD_BYTES;
        Some(base)
    }

    /// Releases the span that begins at `base`, if any, and returns its size.
    pub(super) fn release(&mut self, base: u64) -> Option<usize> {
        if self.reuse == Reuse::AtOnce {
            self.cursor = base;
        }
        self.spans.remove(base)
    }

    /// The first aligned address from `from` on with a gap for `bytes` and a guard.
    fn gap(&self, from: u64, bytes: u64, align_bytes: u64) -> Option<u64> {
        let end = self.start + (1 << ARENA_SHIFT);
        let mut place = from;
        loop {
            place = place.checked_next_multiple_of(align_bytes)?;
            let guarded = place.checked_add(bytes)?.checked_add(GUARD_BYTES)?;
            if guarded > end {
                return None;
            }
            // Only the last span that begins before `guarded` can overlap: the others end earlier.
            let last = self.spans.0.range(..guarded).next_back();
            match last.map(|(base, span)| base + *span as u64 + GUARD_BYTES) {
                Some(behind) if behind > place => place = behind,
                _ => return Some(place),
            }
        }
    }
}

/// Allocations in an arena. Invariant: `allocated_bytes` is the sum of the allocations' sizes.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    ranges: Ranges,
    allocated_bytes: usize,
}

impl Allocations {
    pub(super) fn allocate(
        &mut self,
        arena: &mut Arena,
        bytes: usize,
        align_bytes: usize,
    ) -> Option<Address> {
        assert!(bytes > 0, "an allocation has at least one byte");
        assert!(align_bytes.is_power_of_two(), "an alignment is a power of two: {align_bytes}");
        let base = arena.take(bytes, align_bytes)?;
        self.ranges.insert(base, bytes);
        self.allocated_bytes += bytes;
        Some(Address(base))
    }

    pub(super) fn release(&mut self, arena: &mut Arena, address: Address) {
        let bytes = self.ranges.remove(address.0);
        let bytes = bytes.unwrap_or_else(|| panic!("no live allocation begins at {address:x?}"));
        arena.release(address.0).expect("every allocation is a span of its arena");
        self.allocated_bytes -= bytes;
    }

    pub(super) fn containing(&self, address: Address) -> Option<(u64, usize)> {
        self.ranges.containing(address.0)
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes
    }
}

impl Reuse {
    /// With [`Reuse::AtOnce`], lets another thread take an address that this thread released.
    pub(super) fn yield_after_release(self) {
        if self == Self::AtOnce {
            yield_now();
        }
    }
}

/// Pinned memory of the host. Only the size of its arena limits the allocations.
#[derive(Debug)]
pub(super) struct HostMemory {
    pub(super) arena: Arena,
    pub(super) allocations: Allocations,
}

impl HostMemory {
    pub(super) fn new(reuse: Reuse) -> Self {
        Self { arena: Arena::new(Place::Host, reuse), allocations: Allocations::default() }
    }
}

// Virtual memory: reserved ranges, physical memory and mappings.

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
    use accelrt::size::{KIB, MIB};

    use super::*;

    #[test]
    fn spans_are_aligned_separate_and_found_by_every_inner_address() {
        // Goal: spans are aligned and never overlap. Method: sizes and alignments of every
        // magnitude, checked against all earlier spans.
        let mut arena = Arena::new(Place::Device(3), Reuse::Late);
        let mut taken: Vec<(u64, usize)> = Vec::new();
        for (bytes, align_bytes) in [(1, 1), (64, 64), (100, 4096), (3 * MIB, 2 * MIB), (7, 8)] {
            let base = arena.take(bytes, align_bytes).unwrap();
            assert_eq!(base % align_bytes.max(64) as u64, 0);
            assert_eq!(Place::of(Address(base), 4), Place::Device(3));
            for (other, other_bytes) in &taken {
                assert!(
                    base >= other + *other_bytes as u64 + 64 || other >= &(base + bytes as u64)
                );
            }
            for number in [base, base + bytes as u64 - 1] {
                assert_eq!(arena.spans.containing(number), Some((base, bytes)));
            }
            assert_eq!(arena.spans.containing(base + bytes as u64), None);
            taken.push((base, bytes));
        }
    }

    #[test]
    fn a_full_arena_reuses_released_spans() {
        // Goal: the arena reuses addresses only after a search through all of them. Method: four
        // spans of nearly a quarter fill it; only a released span leaves room.
        let mut arena = Arena::new(Place::Host, Reuse::Late);
        let quarter = (1usize << 46) - 128;
        let bases: Vec<u64> = (0..4).map(|_| arena.take(quarter, 64).unwrap()).collect();
        assert_eq!(arena.take(KIB, 64), None);
        assert_eq!(arena.release(bases[1]), Some(quarter));
        assert_eq!(arena.take(KIB, 64), Some(bases[1]));
        assert_eq!(arena.take(quarter, 64), None);
        assert_eq!(arena.take(usize::MAX, 64), None);
    }

    #[test]
    fn a_released_span_is_reused_at_once_when_set() {
        let mut arena = Arena::new(Place::Host, Reuse::AtOnce);
        let bases = [(); 3].map(|()| arena.take(KIB, 64).unwrap());
        for base in [bases[1], bases[0]] {
            assert_eq!(arena.release(base), Some(KIB));
            assert_eq!(arena.take(KIB, 64), Some(base));
            assert_ne!(arena.take(KIB, 64), Some(base));
        }
        arena.release(bases[0]).unwrap();
        let aligned = arena.take(64, 4096).unwrap();
        let spans: Vec<(u64, usize)> =
            arena.spans.0.iter().map(|(b, bytes)| (*b, *bytes)).collect();
        assert!(
            spans.windows(2).all(|two| two[0].0 + two[0].1 as u64 + 64 <= two[1].0),
            "{aligned:x}"
        );
    }

    #[test]
    fn foreign_addresses_are_in_no_arena() {
        for number in [0, 4096, 0x7fff_ffff_f000, 0x00ff_ffff_ffff_f000, u64::MAX] {
            assert_eq!(Place::of(Address(number), 128), Place::Elsewhere);
        }
        let beyond = Arena::new(Place::Device(2), Reuse::Late).take(64, 64).unwrap();
        assert_eq!(Place::of(Address(beyond), 2), Place::Elsewhere);
        assert_eq!(Place::of(Address(beyond), 3), Place::Device(2));
    }

    #[test]
    #[should_panic(expected = "no live allocation begins")]
    fn a_double_release_is_caught() {
        let mut host = HostMemory::new(Reuse::Late);
        let address = host.allocations.allocate(&mut host.arena, 100, 64).unwrap();
        host.allocations.release(&mut host.arena, address);
        host.allocations.release(&mut host.arena, address);
    }
}
