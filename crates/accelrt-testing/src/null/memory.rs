//! Addresses without memory: arenas, and the allocations in them.
//!
//! Each device and the host have an arena. The arenas lie above the user address space, so none of
//! their addresses is a valid pointer. An arena searches next fit, which reuses an address as late
//! as possible. With [`Reuse::AtOnce`], an arena searches from the last released address.

use std::collections::BTreeMap;
use std::thread::yield_now;

use accelrt::backend::contract::Address;

use super::Reuse;

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
