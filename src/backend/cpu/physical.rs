//! The tables of a device's virtual memory: reservations, physical memory and its location.

use std::collections::BTreeMap;

use super::reservation::Reservation;
use super::span::Span;
use crate::backend::contract::PhysicalHandle;

/// Reservations and physical memory of one device.
#[derive(Debug, Default)]
pub(super) struct MemoryTable {
    /// The reservations, by first address.
    pub(super) reservations: BTreeMap<usize, Reservation>,
    pub(super) physical: BTreeMap<u64, Physical>,
    num_created: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Physical {
    pub(super) bytes: usize,
    pub(super) place: Place,
}

/// The location of physical memory.
///
/// | from | call | to |
/// |---|---|---|
/// | | `create` | `Nowhere` |
/// | `Nowhere`, `Parked` | `map` | `Mapped` |
/// | `Mapped` | `relocate` | `Mapped` |
/// | `Mapped` | `unmap` | `Parked` |
/// | any | `release` | |
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Never mapped yet: no page exists.
    Nowhere,
    /// Unmapped by `unmap`: the pages wait in a mapping outside all reservations.
    Parked(Span),
    /// Mapped at this range of a reservation.
    Mapped(Span),
}

impl MemoryTable {
    /// Adds physical memory that has no pages yet. Never issues a handle twice.
    pub(super) fn create(&mut self, bytes: usize) -> PhysicalHandle {
        self.num_created += 1;
        self.physical.insert(self.num_created, Physical { bytes, place: Place::Nowhere });
        PhysicalHandle(self.num_created)
    }

    pub(super) fn physical(&mut self, handle: PhysicalHandle) -> &mut Physical {
        let physical = self.physical.get_mut(&handle.0);
        physical.unwrap_or_else(|| panic!("{handle:?} is not live"))
    }

    pub(super) fn reservation(&mut self, place: Span) -> &mut Reservation {
        let range = self.reservations.range_mut(..=place.base).next_back();
        let range = range.map(|(_, range)| range).filter(|range| range.span().contains(place));
        range.unwrap_or_else(|| panic!("{place:x?} is not inside one reserved range"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_range_belongs_to_the_reservation_that_contains_all_of_it() {
        let mut table = MemoryTable::default();
        for base in [100, 300] {
            let range = Reservation::new(Span { base, bytes: 100 });
            table.reservations.insert(base, range);
        }
        for (base, owner) in [(100, 100), (150, 100), (300, 300), (350, 300)] {
            assert_eq!(table.reservation(Span { base, bytes: 50 }).span().base, owner);
        }
        for base in [0, 50, 151, 200, 299, 351, 400] {
            let find =
                std::panic::AssertUnwindSafe(|| table.reservation(Span { base, bytes: 50 }).span());
            assert!(std::panic::catch_unwind(find).is_err(), "{base}");
        }
    }

    #[test]
    fn handles_are_never_reused() {
        let mut table = MemoryTable::default();
        let first = table.create(64);
        table.physical.remove(&first.0);
        assert_ne!(table.create(64), first);
    }

    #[test]
    #[should_panic(expected = "PhysicalHandle(7) is not live")]
    fn an_unknown_handle_panics() {
        MemoryTable::default().physical(PhysicalHandle(7));
    }
}
