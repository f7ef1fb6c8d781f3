//! Virtual memory of a cpu device: pages that move between address ranges by `mremap`.
//!
//! Physical memory is anonymous pages at their current addresses. A move changes page table
//! entries and copies nothing. The flag `MREMAP_DONTUNMAP` keeps the old addresses reserved;
//! without it, an `mmap` of another thread could take them before the next call. On kernels without
//! the flag, the device therefore has no virtual memory.
#![expect(unsafe_code, reason = "commits, decommits and moves pages")]

use std::sync::Arc;

use super::pages::{self, HUGE_PAGE_BYTES};
use super::physical::MapCount;
use super::physical::{MemoryTable, Physical, Place};
use super::reservation::Reservation;
use super::reservation::{Refusal, Span};
use crate::backend::contract::capacity::Capacity;
use crate::backend::contract::{self, Address, PhysicalHandle};
use crate::base::error::{Error, Result};
use crate::base::size::display_bytes;
use crate::base::sync::{LockRank, Mutex};

/// Unit of mappings and moves: the kernel moves one page table entry per granule.
const GRANULE_BYTES: usize = HUGE_PAGE_BYTES;

/// The virtual memory of one device.
///
/// `mappings` counts one mapping for each [`Place::Parked`] and [`Reservation::num_mappings`] for
/// each reservation; `capacity` counts the sizes of all physical memory. System calls run under the
/// lock, so the owner of a range cannot change during them.
#[derive(Debug)]
pub(crate) struct CpuVirtualMemory {
    capacity: Arc<Capacity>,
    mappings: &'static MapCount,
    table: Mutex<MemoryTable>,
}

impl CpuVirtualMemory {
    /// Counts physical memory against `capacity`. `None` where the kernel cannot move granules.
    pub(crate) fn new(capacity: Arc<Capacity>) -> Option<Self> {
        let can = GRANULE_BYTES.is_multiple_of(pages::page_bytes()) && pages::can_move_pages();
        can.then(|| Self::with_mappings(capacity, MapCount::of_process()))
    }

    fn with_mappings(capacity: Arc<Capacity>, mappings: &'static MapCount) -> Self {
        let table = Mutex::new(LockRank::Backend, MemoryTable::default());
        Self { capacity, mappings, table }
    }

    /// Moves physical memory to the vacant `target` and maps it there. A failed call moves nothing.
    fn place(&self, table: &mut MemoryTable, physical: PhysicalHandle, target: Span) -> Result<()> {
        let place = table.physical(physical).place;
        let range = table.reservation(target);
        assert!(range.is_vacant(target), "{target:x?} holds other pages");
        if let Some(lost) = range.recover(target, pages::reclaim) {
            let refusal = Refusal { call: "mremap", code: libc::EEXIST };
            let attempt = format!("the addresses {lost:x?} were lost when an earlier move failed");
            return Err(refusal.error(&attempt));
        }
        let more = range.mappings_to_fill(target);
        self.mappings.take(more)?;
        if let Err(error) = self.fill(range, place, target) {
            self.mappings.release(more);
            return Err(error);
        }
        range.fill(target);
        table.physical(physical).place = Place::Mapped(target);
        match place {
            Place::Nowhere => {}
            Place::Parked(_) => self.mappings.release(1),
            Place::Mapped(from) => self.vacate(table, from),
        }
        Ok(())
    }

    /// Makes the system calls of [`Self::place`]; changes no tables except for lost ranges.
    fn fill(&self, range: &mut Reservation, place: Place, target: Span) -> Result<()> {
        let moved = match place {
            Place::Nowhere => {
                // SAFETY: this device owns the target, a vacant range that is not lost. The caller
                // holds the lock, so the range stays vacant.
                let committed = unsafe { pages::commit(target) };
                return committed.map_err(|refusal| {
                    // The result is ignored: after a failure the pages are committed, but empty.
                    // SAFETY: owned and vacant, as for `commit`; nothing uses the pages.
                    let _ = unsafe { pages::decommit(target) };
                    self.commit_error(refusal, target)
                });
            }
            // SAFETY: this device owns the target and the parked mapping. By the contract of `map`,
            // nothing uses them. They are disjoint, since the target is vacant.
            Place::Parked(from) => unsafe { pages::move_pages(from, target.base, false) },
            // SAFETY: the device owns both disjoint ranges; `relocate`'s caller excludes uses.
            Place::Mapped(from) => unsafe { pages::move_pages(from, target.base, true) },
        };
        moved.map_err(|refusal| {
            if !pages::reclaim(target) {
                range.mark_lost(target);
            }
            refusal.error(&format!("moving {} to {target:x?}", display_bytes(target.bytes)))
        })
    }

    /// The base and size of the mapped memory that contains an address. Searches all mapped memory.
    pub(super) fn owner(&self, address: Address) -> Option<(Address, usize)> {
        let table = self.table.lock();
        let mut places = table.physical.values().filter_map(|physical| match physical.place {
            Place::Mapped(span) => Some(span),
            Place::Nowhere | Place::Parked(_) => None,
        });
        let found = places.find(|span| span.contains(Span::new(address, 1)))?;
        Some((found.address(), found.bytes))
    }

    /// Empties a filled range of a reservation, after a move or a release of the physical memory.
    fn vacate(&self, table: &mut MemoryTable, from: Span) {
        // The result is ignored: after a failure the device still owns the range, and can map it.
        // SAFETY: this device owns the range. Its pages were moved or are being released, so
        // nothing uses it.
        let _ = unsafe { pages::decommit(from) };
        let range = table.reservation(from);
        range.vacate(from);
        self.mappings.release(range.mappings_to_fill(from));
    }

    /// Moves mapped pages to a new mapping outside all reservations.
    fn park(&self, table: &mut MemoryTable, physical: PhysicalHandle) -> Result<()> {
        let Place::Mapped(from) = table.physical(physical).place else {
            panic!("{physical:?} is not mapped")
        };
        self.mappings.take(1)?;
        let refused = |refusal: Refusal| {
            self.mappings.release(1);
            refusal.error(&format!("unmapping {} from {from:x?}", display_bytes(from.bytes)))
        };
        let parking = pages::reserve(from.bytes, GRANULE_BYTES).map_err(refused)?;
        // SAFETY: this device owns the new mapping and the pages to move. The caller of `unmap` or
        // `relocate` upholds that nothing uses these pages.
        if let Err(refusal) = unsafe { pages::move_pages(from, parking.base, true) } {
            if pages::reclaim(parking) {
                // The result is ignored: a failure only leaks addresses without memory.
                // SAFETY: `reclaim` confirmed ownership, and no thread knows the address.
                let _ = unsafe { pages::unmap(parking) };
            }
            return Err(refused(refusal));
        }
        table.physical(physical).place = Place::Parked(parking);
        self.vacate(table, from);
        Ok(())
    }

    /// The error of a failed `commit`. `ENOMEM` means that the kernel has too little memory.
    fn commit_error(&self, refusal: Refusal, target: Span) -> Error {
        if refusal.code == libc::ENOMEM {
            return self.capacity.out_of_memory(target.bytes);
        }
        refusal.error(&format!("mapping {} at {target:x?}", display_bytes(target.bytes)))
    }
}

// SAFETY: ranges and pages come from the kernel; the table records them until their release.
unsafe impl contract::VirtualMemory for CpuVirtualMemory {
    fn granularity_bytes(&self) -> usize {
        GRANULE_BYTES
    }

    fn reserve(&self, bytes: usize) -> Result<Address> {
        assert_granules(bytes);
        self.mappings.take(1)?;
        let span = pages::reserve(bytes, GRANULE_BYTES).map_err(|refusal| {
            self.mappings.release(1);
            if refusal.code == libc::ENOMEM {
                return self.capacity.out_of_memory(bytes); // the process is out of addresses
            }
            refusal.error(&format!("reserving {} of addresses", display_bytes(bytes)))
        })?;
        self.table.lock().reservations.insert(span.base, Reservation::new(span));
        Ok(span.address())
    }

    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()> {
        let span = Span::new(range, bytes);
        let mut table = self.table.lock();
        let reservation = table.reservation(span);
        assert_eq!(reservation.span(), span, "a range is given back as it was reserved");
        assert!(reservation.is_empty(), "pages are mapped in {span:x?}");
        reservation.recover(span, pages::reclaim);
        for piece in reservation.owned() {
            // SAFETY: the device owns the empty range; the caller upholds that nothing uses it.
            if let Err(refusal) = unsafe { pages::unmap(piece) } {
                let attempt = format!("giving {} of addresses back", display_bytes(piece.bytes));
                return Err(refusal.error(&attempt));
            }
            // If a later piece cannot be unmapped, the reservation remains without this piece.
            reservation.mark_lost(piece);
        }
        self.mappings.release(reservation.num_mappings());
        table.reservations.remove(&span.base);
        Ok(())
    }

    fn create(&self, bytes: usize) -> Result<PhysicalHandle> {
        assert_granules(bytes);
        self.capacity.take(bytes, bytes)?;
        Ok(self.table.lock().create(bytes))
    }

    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()> {
        let mut table = self.table.lock();
        let Physical { bytes, place } = *table.physical(physical);
        assert!(!matches!(place, Place::Mapped(_)), "{physical:?} is mapped already");
        let target = target(to, bytes);
        self.place(&mut table, physical, target)
    }

    unsafe fn unmap(&self, physical: PhysicalHandle) -> Result<()> {
        self.park(&mut self.table.lock(), physical)
    }

    unsafe fn relocate(&self, physical: PhysicalHandle, to: Address) -> Result<()> {
        let mut table = self.table.lock();
        let Physical { bytes, place } = *table.physical(physical);
        let Place::Mapped(from) = place else { panic!("{physical:?} is not mapped") };
        let target = target(to, bytes);
        if target == from {
            return Ok(());
        }
        if !target.overlaps(from) {
            return self.place(&mut table, physical, target);
        }
        // The kernel cannot move pages to an overlapping range: move them out first, then in.
        self.park(&mut table, physical)?;
        self.place(&mut table, physical, target).inspect_err(|_| {
            // Moves the pages back. The result is ignored: a failure leaves the memory unmapped.
            let _ = self.place(&mut table, physical, from);
        })
    }

    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()> {
        let mut table = self.table.lock();
        let Physical { bytes, place } = *table.physical(physical);
        match place {
            Place::Nowhere => {}
            Place::Parked(span) => {
                // SAFETY: the device owns the mapping, which holds only this physical memory.
                unsafe { pages::unmap(span) }.map_err(|refusal| {
                    refusal.error(&format!("giving {} back", display_bytes(bytes)))
                })?;
                self.mappings.release(1);
            }
            // A failed `unmap` has left the memory in its reservation; free it there.
            Place::Mapped(from) => self.vacate(&mut table, from),
        }
        table.physical.remove(&physical.0);
        self.capacity.release(bytes);
        Ok(())
    }
}

fn assert_granules(bytes: usize) {
    assert!(bytes > 0 && bytes.is_multiple_of(GRANULE_BYTES), "{bytes} B are not whole granules");
}

fn target(to: Address, bytes: usize) -> Span {
    let target = Span::new(to, bytes);
    assert!(target.base.is_multiple_of(GRANULE_BYTES), "{to:x?} is not at a granule");
    target
}

impl Drop for CpuVirtualMemory {
    fn drop(&mut self) {
        let mut table = std::mem::take(&mut *self.table.lock());
        for range in table.reservations.values_mut() {
            range.recover(range.span(), pages::reclaim);
        }
        let parked = table.physical.values().filter_map(|physical| match physical.place {
            Place::Parked(span) => Some(span),
            Place::Nowhere | Place::Mapped(_) => None,
        });
        let reserved = table.reservations.values().flat_map(Reservation::owned);
        for span in parked.clone().chain(reserved) {
            // The result is ignored: pages that the kernel refuses to unmap remain until the exit.
            // SAFETY: this device owns these ranges, and their users were dropped before it.
            let _ = unsafe { pages::unmap(span) };
        }
        let in_reservations: usize =
            table.reservations.values().map(Reservation::num_mappings).sum();
        self.mappings.release(in_reservations + parked.count());
        self.capacity.release(table.physical.values().map(|physical| physical.bytes).sum());
    }
}

#[cfg(all(test, not(loom)))]
#[path = "virtual_memory_tests.rs"]
mod stories;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backend::contract::VirtualMemory as _;
    use crate::base::device::Device;
    use crate::base::error::MemoryError;
    use crate::trusted::TrustedPages;

    #[test]
    fn too_many_mappings_and_too_much_memory_are_refused_before_the_kernel_would() {
        let capacity = Arc::new(Capacity::new(Device::cpu(0), 4 * GRANULE_BYTES));
        let mappings = MapCount::for_test(3);
        let memory = TrustedPages(Box::new(CpuVirtualMemory::with_mappings(capacity, mappings)));
        let range = memory.reserve(64 * GRANULE_BYTES).unwrap();
        let handles = [(); 4].map(|()| memory.create(GRANULE_BYTES).unwrap());
        assert!(matches!(
            memory.create(GRANULE_BYTES),
            Err(Error::Memory(MemoryError::OutOfMemory { .. }))
        ));
        assert!(matches!(
            memory.reserve(1 << 60),
            Err(Error::Memory(MemoryError::OutOfMemory { .. }))
        ));
        memory.map(range, handles[0]).unwrap();
        let apart = memory.map(range.offset(32 * GRANULE_BYTES), handles[1]).unwrap_err();
        assert!(apart.to_string().contains("vm.max_map_count = 3"), "{apart}");
        memory.map(range.offset(GRANULE_BYTES), handles[1]).unwrap();
        drop(memory);
        assert_eq!(mappings.used(), 0);
    }

    #[test]
    fn memory_whose_unmap_was_refused_is_freed_in_place() {
        let capacity = Arc::new(Capacity::new(Device::cpu(0), 4 * GRANULE_BYTES));
        let mappings = MapCount::for_test(3);
        let memory = TrustedPages(Box::new(CpuVirtualMemory::with_mappings(
            Arc::clone(&capacity),
            mappings,
        )));
        let range = memory.reserve(4 * GRANULE_BYTES).unwrap();
        let middle = range.offset(GRANULE_BYTES);
        let handle = memory.create(GRANULE_BYTES).unwrap();
        memory.map(middle, handle).unwrap();
        memory.unmap(handle).unwrap_err(); // one mapping above the limit
        memory.release(handle).unwrap();
        assert_eq!(capacity.info().free_bytes, 4 * GRANULE_BYTES);
        let again = memory.create(GRANULE_BYTES).unwrap();
        memory.map(middle, again).unwrap();
        drop(memory);
        assert_eq!(mappings.used(), 0);
    }

    #[test]
    #[should_panic(expected = "holds other pages")]
    fn mapping_over_other_pages_panics() {
        let capacity = Arc::new(Capacity::new(Device::cpu(0), 4 * GRANULE_BYTES));
        let memory = TrustedPages(Box::new(CpuVirtualMemory::new(capacity).unwrap()));
        let range = memory.reserve(2 * GRANULE_BYTES).unwrap();
        let handles = [1, 2].map(|n| memory.create(n * GRANULE_BYTES).unwrap());
        memory.map(range.offset(GRANULE_BYTES), handles[0]).unwrap();
        let _ = memory.map(range, handles[1]);
    }
}
