//! Memory of one device or of the host: allocations, and the lookup of an address's allocation.
//!
//! Allocations with a size or alignment of at least 2 MiB are separate mappings, aligned to 2 MiB.
//! The kernel can back these mappings with huge pages: one page fault then replaces 512. Other
//! allocations come from the Rust allocator.
#![expect(unsafe_code, reason = "allocates from and frees to the allocator and the kernel")]

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::pages::{self, HUGE_PAGE_BYTES};
use super::reservation::Span;
use crate::backend::contract::capacity::Capacity;
use crate::backend::contract::{Address, MemoryInfo};
use crate::base::error::Result;
use crate::base::sync::{LockRank, Mutex};

/// Minimum alignment: a cache line.
const LEAST_ALIGN_BYTES: usize = 64;

/// The live allocations of one device or of the host, counted against its [`Capacity`].
///
/// A device's virtual memory uses the same capacity. The keys of `allocations` are first addresses.
/// Allocations do not overlap; the sum of their `counted_bytes` is their use of the capacity.
#[derive(Debug)]
pub(crate) struct CpuMemory {
    capacity: Arc<Capacity>,
    allocations: Mutex<BTreeMap<u64, Allocation>>,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: usize,
    /// The size counted against the capacity: `bytes`, in whole pages for [`Source::Pages`].
    counted_bytes: usize,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Allocator(Layout),
    Pages,
}

impl CpuMemory {
    pub(crate) fn new(capacity: Arc<Capacity>) -> Self {
        Self { capacity, allocations: Mutex::new(LockRank::Backend, BTreeMap::new()) }
    }

    /// Allocates memory aligned to `align_bytes`, a power of two, and at least to 64 bytes. `bytes`
    /// must not be zero. Fails with `OutOfMemory` when the capacity or the kernel has too little.
    pub(crate) fn allocate(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        assert!(bytes > 0, "an allocation has bytes");
        assert!(align_bytes.is_power_of_two(), "alignment {align_bytes} is a power of two");
        let align_bytes = align_bytes.max(LEAST_ALIGN_BYTES);
        let is_pages = bytes >= HUGE_PAGE_BYTES || align_bytes >= HUGE_PAGE_BYTES;
        let granule_bytes = if is_pages { pages::page_bytes() } else { 1 };
        let out_of_memory = || self.capacity.out_of_memory(bytes);
        let counted_bytes = bytes.checked_next_multiple_of(granule_bytes);
        let counted_bytes = counted_bytes.ok_or_else(out_of_memory)?;
        self.capacity.take(bytes, counted_bytes)?;
        let taken = if is_pages {
            let span = pages::map_committed(counted_bytes, align_bytes.max(HUGE_PAGE_BYTES));
            span.ok().map(|span| (span.address(), Source::Pages))
        } else {
            allocate_from_heap(bytes, align_bytes)
        };
        let Some((address, source)) = taken else {
            self.capacity.release(counted_bytes);
            return Err(out_of_memory());
        };
        let allocation = Allocation { bytes, counted_bytes, source };
        let before = self.allocations.lock().insert(address.0, allocation);
        assert!(before.is_none(), "the allocation at {:#x} was never given back", address.0);
        Ok(address)
    }

    /// Frees memory of `allocate`. No task or thread may use the memory any more.
    pub(crate) fn release(&self, address: Address) {
        let allocation = self.allocations.lock().remove(&address.0);
        let allocation = allocation
            .unwrap_or_else(|| panic!("no allocation begins at the address {:#x}", address.0));
        self.free(address, allocation);
    }

    /// Frees an allocation that was removed from the map: another one may then get its address.
    fn free(&self, address: Address, allocation: Allocation) {
        free_allocation(address, allocation);
        self.capacity.release(allocation.counted_bytes);
    }

    /// Base address and size of the live allocation that contains `address`, if any.
    pub(crate) fn owner(&self, address: Address) -> Option<(Address, usize)> {
        let allocations = self.allocations.lock();
        let (base, allocation) = allocations.range(..=address.0).next_back()?;
        let offset_bytes = address.0 - base;
        (offset_bytes < allocation.bytes as u64).then_some((Address(*base), allocation.bytes))
    }

    pub(crate) fn info(&self) -> MemoryInfo {
        self.capacity.info()
    }
}

impl Drop for CpuMemory {
    fn drop(&mut self) {
        let allocations = std::mem::take(&mut *self.allocations.lock());
        for (address, allocation) in allocations {
            self.free(Address(address), allocation);
        }
    }
}

fn allocate_from_heap(bytes: usize, align_bytes: usize) -> Option<(Address, Source)> {
    let layout = Layout::from_size_align(bytes, align_bytes).ok()?;
    // SAFETY: requires a non-zero size, which `allocate` has asserted.
    let pointer = unsafe { std::alloc::alloc(layout) };
    // Exposes the provenance, because users recreate pointers from the address.
    let address = Address(pointer.expose_provenance() as u64);
    (!pointer.is_null()).then_some((address, Source::Allocator(layout)))
}

/// Frees an allocation. The caller has removed it from the map, so no other thread can free it.
fn free_allocation(address: Address, allocation: Allocation) {
    let span = Span::new(address, allocation.counted_bytes);
    match allocation.source {
        Source::Allocator(layout) => {
            let pointer = std::ptr::with_exposed_provenance_mut(span.base);
            // SAFETY: the memory was allocated with this layout. The caller of `release` upholds
            // that nothing uses the memory any more.
            unsafe { std::alloc::dealloc(pointer, layout) };
        }
        Source::Pages => {
            // SAFETY: the pages were mapped for this allocation. The caller of `release` upholds
            // that nothing uses them any more.
            let unmapped = unsafe { pages::unmap(span) };
            if unmapped.is_err() {
                // `munmap` fails when a split mapping would exceed the kernel's limit of mappings.
                // The addresses stay mapped; `discard` frees their memory.
                // SAFETY: the failed call left the pages mapped, and this allocation owns them.
                unsafe { pages::discard(span) };
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::faults;
    use super::*;
    use crate::base::device::Device;
    use crate::base::error::{Error, MemoryError};
    use crate::base::size::{GIB, KIB, MIB};

    fn memory(capacity_bytes: usize) -> CpuMemory {
        CpuMemory::new(Arc::new(Capacity::new(Device::cpu(1), capacity_bytes)))
    }

    fn write_all(address: Address, bytes: usize) {
        let pointer: *mut u8 = std::ptr::with_exposed_provenance_mut(address.0.try_into().unwrap());
        // SAFETY: the calling test passes an allocation of this size.
        unsafe { std::ptr::write_bytes(pointer, 0x5A, bytes) };
    }

    #[test]
    fn every_size_is_aligned_as_requested_and_at_least_to_a_line() {
        let memory = memory(GIB);
        for bytes in [1, 63, 64, 4096, 2 * MIB - 1, 2 * MIB, 3 * MIB + 5] {
            for align in [1, 64, 4 * KIB, MIB, 2 * MIB, 16 * MIB] {
                let address = memory.allocate(bytes, align).unwrap();
                let least = if bytes < 2 * MIB { 64 } else { 2 * MIB };
                assert_eq!(address.0 % align.max(least) as u64, 0, "{bytes} B at {align}");
                write_all(address, bytes);
                memory.release(address);
            }
        }
        assert_eq!(memory.info().free_bytes, GIB);
    }

    #[test]
    fn inner_addresses_have_an_owner_and_neighbouring_ones_have_none() {
        let memory = memory(GIB);
        for bytes in [100, 2 * MIB, 5 * MIB + 1] {
            let base = memory.allocate(bytes, 64).unwrap();
            for inner in [0, 1, bytes / 2, bytes - 1] {
                assert_eq!(memory.owner(base.offset(inner)), Some((base, bytes)));
            }
            for outer in [base.offset(bytes), Address(base.0 - 1), Address(0), Address(u64::MAX)] {
                assert_eq!(memory.owner(outer), None);
            }
            memory.release(base);
            assert_eq!(memory.owner(base), None);
        }
    }

    #[test]
    fn an_allocation_above_the_capacity_reports_the_numbers_and_counts_nothing() {
        let memory = memory(8 * MIB);
        let held = memory.allocate(3 * MIB + 1, 64).unwrap();
        let free = 5 * MIB - pages::page_bytes();
        for asked in [5 * MIB, usize::MAX, isize::MAX.unsigned_abs()] {
            let Err(Error::Memory(MemoryError::OutOfMemory {
                requested_bytes,
                free_bytes,
                total_bytes,
                device,
                ..
            })) = memory.allocate(asked, 64)
            else {
                panic!("{asked} B were allocated")
            };
            assert_eq!((requested_bytes, free_bytes, total_bytes), (asked, free, 8 * MIB));
            assert_eq!(device, Device::cpu(1));
        }
        let rest = memory.allocate(free, 64).unwrap();
        assert_eq!(memory.info().free_bytes, 0);
        memory.release(held);
        memory.release(rest);
        assert_eq!(memory.info(), MemoryInfo { free_bytes: 8 * MIB, total_bytes: 8 * MIB });
    }

    #[test]
    fn a_kernel_refusal_is_out_of_memory_and_counts_nothing() {
        let memory = memory(usize::MAX);
        for (bytes, align) in [(1 << 60, 64), (usize::MAX - 1, 64), (64, 1 << 62), (1, 1 << 63)] {
            let refused = memory.allocate(bytes, align);
            assert!(
                matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))),
                "{bytes} B at {align}"
            );
            assert_eq!(memory.info().free_bytes, usize::MAX);
        }
        faults::refuse_after(0, || ());
        assert!(matches!(
            memory.allocate(4 * MIB, 64),
            Err(Error::Memory(MemoryError::OutOfMemory { .. }))
        ));
        assert_eq!(memory.info().free_bytes, usize::MAX);
    }

    #[test]
    fn pages_that_cannot_be_unmapped_are_discarded() {
        let memory = memory(8 * MIB);
        let address = memory.allocate(4 * MIB, 64).unwrap();
        write_all(address, 4 * MIB);
        faults::refuse_after(0, || ());
        memory.release(address);
        assert!(!faults::clear());
        assert_eq!(memory.info().free_bytes, 8 * MIB);
        let pointer: *const u8 = std::ptr::with_exposed_provenance(address.0.try_into().unwrap());
        // SAFETY: still mapped, because `munmap` failed; only this test has the address.
        assert_eq!(unsafe { pointer.read_volatile() }, 0);
    }

    #[test]
    #[should_panic(expected = "no allocation begins at")]
    fn an_address_inside_an_allocation_cannot_be_released() {
        let memory = memory(MIB);
        let address = memory.allocate(128, 64).unwrap();
        memory.release(address.offset(64));
    }

    #[test]
    fn dropping_frees_the_remaining_allocations() {
        let capacity = Arc::new(Capacity::new(Device::cpu(0), 64 * MIB));
        let memory = CpuMemory::new(Arc::clone(&capacity));
        for bytes in [1, 100_000, 4 * MIB, 9 * MIB] {
            memory.allocate(bytes, 64).unwrap();
        }
        let unmapped_before_failure = 1;
        faults::refuse_after(unmapped_before_failure, || ());
        drop(memory);
        assert!(!faults::clear(), "both allocations of pages were unmapped");
        assert_eq!(capacity.info().free_bytes, 64 * MIB);
    }

    #[test]
    fn threads_allocate_and_release_side_by_side() {
        let memory = memory(GIB);
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let memory = &memory;
                scope.spawn(move || {
                    for round in 1..200 {
                        let bytes = thread * 700_000 + round * 13;
                        let address = memory.allocate(bytes, 64).unwrap();
                        assert_eq!(memory.owner(address.offset(bytes - 1)), Some((address, bytes)));
                        memory.release(address);
                    }
                });
            }
        });
        assert_eq!(memory.info().free_bytes, GIB);
    }
}
