//! A device's reservations, physical memory and its location, and the number of kernel mappings.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::reservation::Reservation;
use super::reservation::Span;
use crate::backend::contract::PhysicalHandle;
use crate::base::device::DeviceKind;
use crate::base::error::{Error, Result};
use crate::base::sync::{Ordering, unmodelled};

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

/// Counts the mappings that the virtual memory of all devices uses, up to a limit.
///
/// At the kernel's limit, any `mmap` and even `munmap` in the process can fail, so an eighth is
/// left to other code. `used` may be too high, because the kernel merges neighbouring mappings.
/// `used` excludes the extra mappings of ranges that the kernel refused to make inaccessible.
#[derive(Debug)]
pub(super) struct MapCount {
    kernel_limit: usize,
    limit: usize,
    used: unmodelled::AtomicUsize,
}

impl MapCount {
    pub(super) fn of_process() -> &'static Self {
        static COUNT: OnceLock<MapCount> = OnceLock::new();
        COUNT.get_or_init(|| {
            let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
            Self::new(kernel_limit(text.ok().as_deref()))
        })
    }

    pub(super) fn new(kernel_limit: usize) -> Self {
        let limit = kernel_limit - kernel_limit / 8;
        Self { kernel_limit, limit, used: unmodelled::AtomicUsize::new(0) }
    }

    /// Counts `mappings` as used. If the sum exceeds the limit, counts nothing and fails.
    pub(super) fn take(&self, mappings: usize) -> Result<()> {
        let sum = |used: usize| used.checked_add(mappings).filter(|sum| *sum <= self.limit);
        // Relaxed: a count only; it publishes nothing.
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        taken.map(drop).map_err(|used| {
            let message = format!(
                "{mappings} more mappings of pages are needed while {used} are in use: of \
                 vm.max_map_count = {}, {} are for devices and the rest for the process",
                self.kernel_limit, self.limit
            );
            Error::refused(DeviceKind::CPU, "mmap", libc::ENOMEM, message)
        })
    }

    /// Counts `mappings` as free again.
    pub(super) fn release(&self, mappings: usize) {
        // Relaxed: a count only; it publishes nothing.
        let used = self.used.fetch_sub(mappings, Ordering::Relaxed);
        assert!(used >= mappings, "{mappings} mappings come back while {used} are out");
    }
}

/// Parses the kernel's limit. An unreadable limit yields the kernel's default.
fn kernel_limit(text: Option<&str>) -> usize {
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530)
}

#[cfg(all(test, not(loom)))]
mod map_count_tests {
    use super::*;
    use crate::base::sync::{LockRank, Mutex};

    impl MapCount {
        /// Leaks a counter for one test; a static list keeps it reachable for leak checkers.
        pub(in super::super) fn for_test(kernel_limit: usize) -> &'static MapCount {
            static KEPT: Mutex<Vec<&'static MapCount>> = Mutex::new(LockRank::Backend, Vec::new());
            let counter = Box::leak(Box::new(MapCount::new(kernel_limit)));
            KEPT.lock().push(counter);
            counter
        }

        pub(in super::super) fn used(&self) -> usize {
            // Relaxed: the reading test counts on the same thread.
            self.used.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_last_eighth_is_refused_with_the_numbers() {
        let count = MapCount::new(80);
        count.take(69).unwrap();
        let message = count.take(2).unwrap_err().to_string();
        for part in ["2 more", "69 are in use", "vm.max_map_count = 80", "70 are for"] {
            assert!(message.contains(part), "{message}");
        }
        count.take(1).unwrap();
        count.release(70);
        assert_eq!(count.used(), 0);
    }

    #[test]
    fn an_unreadable_limit_is_the_kernels_default() {
        assert_eq!(kernel_limit(Some("262144\n")), 262_144);
        for odd in [None, Some(""), Some("-1"), Some("many")] {
            assert_eq!(kernel_limit(odd), 65_530);
        }
        assert!(MapCount::of_process().kernel_limit > 0);
    }
}
