//! One device of the null kind: settings, properties, capacity and memory accounting.
#![expect(unsafe_code, reason = "implements the contract's unsafe methods, on numbers")]

use std::collections::BTreeSet;

use accelrt::backend::contract::{
    Address, MemoryKind, PagePlaces, PhysicalHandle, VirtualMemory, no_shared_memory,
};
use accelrt::internal::{LockRank, Mutex, out_of_memory};
use accelrt::size::{GIB, MIB};
use accelrt::{Device, DeviceKind, DeviceProperties, MemoryInfo, PriorityRange, Result};

use super::memory::{Allocations, Arena, Pages, Place, Reuse};
use super::timeline::CompletionMode;

/// Settings of a [`NullBackend`](super::NullBackend): its kind, devices and capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent capabilities")]
pub struct NullConfig {
    /// The kind that the backend reports, even if the machine has no hardware of this kind.
    pub kind: DeviceKind,
    /// Whether the devices report that they are GPUs.
    pub is_gpu: bool,
    /// The number of devices, 0 to 128.
    pub device_count: usize,
    /// The memory of each device, shared by allocations and physical memory.
    pub capacity_bytes: usize,
    /// Page size of the virtual memory: a power of two of at least 64.
    pub granularity_bytes: usize,
    /// When the devices complete submissions.
    pub completion: CompletionMode,
    /// When the arenas reuse released addresses.
    pub reuse: Reuse,
    /// Whether the kind has a compiler and launches kernels.
    pub has_kernels: bool,
    /// Whether the compiler defines the macro `cl_khr_fp64`, which announces double precision.
    pub has_fp64: bool,
    /// Whether the devices have shared memory; without it, `allocate_shared` is unsupported.
    pub has_shared_memory: bool,
}

impl Default for NullConfig {
    /// One device of 16 GiB with pages of 2 MiB. It completes each submission at once.
    fn default() -> Self {
        Self {
            kind: DeviceKind::NULL,
            is_gpu: false,
            device_count: 1,
            capacity_bytes: 16 * GIB,
            granularity_bytes: 2 * MIB,
            completion: CompletionMode::AtOnce,
            reuse: Reuse::Late,
            has_kernels: true,
            has_fp64: true,
            has_shared_memory: true,
        }
    }
}

/// The objects and bytes of a backend that are live now: all 0 after a program without a leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceCounts {
    /// Streams, including wrapped ones.
    pub streams: usize,
    /// Marks, done or not.
    pub marks: usize,
    /// Device memory from `allocate` and `allocate_shared`.
    pub device_bytes: usize,
    /// Memory from `allocate_host`.
    pub host_bytes: usize,
    /// Address ranges from `VirtualMemory::reserve`.
    pub reserved_bytes: usize,
    /// Memory from `VirtualMemory::create`.
    pub physical_bytes: usize,
    /// Programs from `Kernels::compile`.
    pub programs: usize,
    /// Kernels from `Kernels::kernel`.
    pub kernels: usize,
}

/// The null kind's stream priorities, which equal those of the xpu kind.
pub(super) const PRIORITIES: PriorityRange = PriorityRange { least: 1, greatest: -1 };

#[derive(Debug)]
pub(super) struct NullDevice {
    device: Device,
    config: NullConfig,
    accounting: Mutex<Accounting>,
}

/// Live memory. Invariant: allocated and physical bytes are together at most the capacity.
#[derive(Debug)]
struct Accounting {
    arena: Arena,
    allocations: Allocations,
    /// First addresses of the allocations from `allocate_shared`.
    shared: BTreeSet<Address>,
    pages: Pages,
}

impl Accounting {
    fn used_bytes(&self) -> usize {
        self.allocations.allocated_bytes() + self.pages.physical_bytes()
    }

    fn containing(&self, address: Address) -> Option<(u64, usize)> {
        let mapping = || self.pages.mapping_containing(address);
        self.allocations.containing(address).or_else(mapping)
    }
}

impl NullDevice {
    pub(super) fn new(device: Device, config: &NullConfig) -> Self {
        let index = device.index();
        // Each device has its own range of handle ids, so that a handle of another device panics.
        let pages = Pages::new(config.granularity_bytes, ((index as u64) << 48) + 1);
        let arena = Arena::new(Place::Device(index), config.reuse);
        let (allocations, shared) = (Allocations::default(), BTreeSet::new());
        let accounting = Accounting { arena, allocations, shared, pages };
        Self { device, config: *config, accounting: Mutex::new(LockRank::Backend, accounting) }
    }

    pub(super) fn properties(&self) -> DeviceProperties {
        let NullConfig { capacity_bytes, is_gpu, has_shared_memory, .. } = self.config;
        let mut properties = DeviceProperties::new("Numbers without memory", capacity_bytes);
        properties.is_gpu = is_gpu;
        properties.has_shared_memory = has_shared_memory;
        properties
    }

    pub(super) fn memory_info(&self) -> MemoryInfo {
        self.info(&self.accounting.lock())
    }

    fn info(&self, accounting: &Accounting) -> MemoryInfo {
        let total_bytes = self.config.capacity_bytes;
        MemoryInfo { free_bytes: total_bytes - accounting.used_bytes(), total_bytes }
    }

    /// Adds the device's live bytes to `counts`.
    pub(super) fn count_resources(&self, counts: &mut ResourceCounts) {
        let accounting = self.accounting.lock();
        counts.device_bytes += accounting.allocations.allocated_bytes();
        counts.reserved_bytes += accounting.pages.reserved_bytes();
        counts.physical_bytes += accounting.pages.physical_bytes();
    }

    pub(super) fn allocate(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        let mut accounting = self.accounting.lock();
        self.check_capacity(&accounting, bytes)?;
        let Accounting { arena, allocations, .. } = &mut *accounting;
        let address = allocations.allocate(arena, bytes, align_bytes);
        address.ok_or_else(|| out_of_memory(self.device, bytes, self.info(&accounting)))
    }

    pub(super) fn allocate_shared(&self, bytes: usize, align_bytes: usize) -> Result<Address> {
        if !self.config.has_shared_memory {
            return Err(no_shared_memory(self.device.kind()));
        }
        let address = self.allocate(bytes, align_bytes)?;
        self.accounting.lock().shared.insert(address);
        Ok(address)
    }

    pub(super) fn release_allocation(&self, address: Address) {
        let mut accounting = self.accounting.lock();
        accounting.shared.remove(&address);
        let Accounting { arena, allocations, .. } = &mut *accounting;
        allocations.release(arena, address);
        drop(accounting);
        self.config.reuse.yield_after_release();
    }

    /// The base, size and kind of the allocation or mapping that contains an address.
    pub(super) fn containing(&self, address: Address) -> Option<(u64, usize, MemoryKind)> {
        let accounting = self.accounting.lock();
        let (base, bytes) = accounting.containing(address)?;
        let is_shared = accounting.shared.contains(&Address(base));
        let kind = if is_shared { MemoryKind::Shared } else { MemoryKind::Device };
        Some((base, bytes, kind))
    }

    /// True when every byte of the range is allocated or mapped. The range may cross from one
    /// mapping into the next, because a copy may do so.
    pub(super) fn covers(&self, range: Address, bytes: usize) -> bool {
        let accounting = self.accounting.lock();
        let Some(end) = range.0.checked_add(bytes as u64) else { return false };
        let mut next = range.0;
        while next < end {
            let Some((base, bytes)) = accounting.containing(Address(next)) else { return false };
            next = base + bytes as u64;
        }
        true
    }

    fn check_capacity(&self, accounting: &Accounting, requested_bytes: usize) -> Result<()> {
        let info = self.info(accounting);
        if requested_bytes <= info.free_bytes {
            return Ok(());
        }
        Err(out_of_memory(self.device, requested_bytes, info))
    }
}

// SAFETY: no memory backs the addresses, and no live handle is issued twice.
unsafe impl VirtualMemory for NullDevice {
    fn granularity_bytes(&self) -> usize {
        self.config.granularity_bytes
    }

    fn reserve(&self, bytes: usize) -> Result<Address> {
        let mut accounting = self.accounting.lock();
        let Accounting { arena, pages, .. } = &mut *accounting;
        let range = pages.reserve(arena, bytes);
        range.ok_or_else(|| out_of_memory(self.device, bytes, self.info(&accounting)))
    }

    unsafe fn unreserve(&self, range: Address, bytes: usize) -> Result<()> {
        let mut accounting = self.accounting.lock();
        let Accounting { arena, pages, .. } = &mut *accounting;
        pages.unreserve(arena, range, bytes);
        drop(accounting);
        self.config.reuse.yield_after_release();
        Ok(())
    }

    fn create(&self, bytes: usize) -> Result<PhysicalHandle> {
        let mut accounting = self.accounting.lock();
        self.check_capacity(&accounting, bytes)?;
        Ok(accounting.pages.create(bytes))
    }

    unsafe fn map(&self, to: Address, physical: PhysicalHandle) -> Result<()> {
        self.accounting.lock().pages.map(to, physical);
        Ok(())
    }

    unsafe fn unmap(&self, physical: PhysicalHandle) -> Result<()> {
        self.accounting.lock().pages.unmap(physical);
        Ok(())
    }

    unsafe fn relocate(&self, physical: PhysicalHandle, to: Address) -> Result<()> {
        self.accounting.lock().pages.relocate(physical, to);
        Ok(())
    }

    unsafe fn create_mapped(
        &self,
        places: PagePlaces<'_>,
        mapped: &mut Vec<PhysicalHandle>,
    ) -> Result<()> {
        let mut accounting = self.accounting.lock();
        for to in places.addresses() {
            self.check_capacity(&accounting, places.page_bytes)?;
            mapped.push(accounting.pages.create_mapped(to, places.page_bytes));
        }
        Ok(())
    }

    unsafe fn relocate_all(
        &self,
        pieces: &[PhysicalHandle],
        places: PagePlaces<'_>,
        relocated: &mut Vec<PhysicalHandle>,
    ) -> Result<()> {
        let mut accounting = self.accounting.lock();
        for (physical, to) in pieces.iter().zip(places.addresses()) {
            accounting.pages.relocate(*physical, to);
            relocated.push(*physical);
        }
        Ok(())
    }

    unsafe fn release(&self, physical: PhysicalHandle) -> Result<()> {
        self.accounting.lock().pages.release(physical);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use accelrt::{Error, MemoryError};

    use super::*;
    use crate::trusted::TrustedPages;

    const GRANULE: usize = 4096;

    fn device(capacity_bytes: usize) -> TrustedPages<Box<NullDevice>> {
        let device = Device::new(DeviceKind::NULL, 1).unwrap();
        let config =
            NullConfig { capacity_bytes, granularity_bytes: GRANULE, ..NullConfig::default() };
        TrustedPages(Box::new(NullDevice::new(device, &config)))
    }

    #[test]
    fn allocations_and_physical_memory_share_one_capacity() {
        // Goal: `OutOfMemory` reports the correct numbers. Method: allocate device memory and
        // physical memory, then request too much of each.
        let null = device(4 * GRANULE);
        let address = null.allocate(2 * GRANULE, 64).unwrap();
        let physical = null.create(GRANULE).unwrap();
        for refused in
            [null.allocate(GRANULE + 1, 64).map(drop), null.create(2 * GRANULE).map(drop)]
        {
            let Err(Error::Memory(MemoryError::OutOfMemory {
                device,
                free_bytes,
                total_bytes,
                ..
            })) = refused
            else {
                panic!("{refused:?} where one granule is free");
            };
            assert_eq!((device.index(), free_bytes, total_bytes), (1, GRANULE, 4 * GRANULE));
        }
        null.release_allocation(address);
        null.release(physical).unwrap();
        assert_eq!(null.memory_info().free_bytes, 4 * GRANULE);
    }

    #[test]
    fn pages_before_the_first_refused_one_are_mapped_and_listed() {
        let null = device(3 * GRANULE);
        let base = null.reserve(4 * GRANULE).unwrap();
        let places = PagePlaces { base, page_bytes: GRANULE, numbers: &[1, 0, 3, 2] };
        let mut mapped = Vec::new();
        null.create_mapped(places, &mut mapped).unwrap_err();
        assert_eq!((mapped.len(), null.memory_info().free_bytes), (3, 0));
        assert!(null.covers(base, 2 * GRANULE) && !null.covers(base.offset(2 * GRANULE), 1));
        for page in mapped {
            null.unmap(page).unwrap();
            null.release(page).unwrap();
        }
        assert_eq!(null.memory_info().free_bytes, 3 * GRANULE);
    }

    #[test]
    fn a_range_over_touching_pages_is_covered_and_one_over_a_hole_is_not() {
        let null = device(4 * GRANULE);
        let range = null.reserve(4 * GRANULE).unwrap();
        for place in [0, 1, 3] {
            null.map(range.offset(place * GRANULE), null.create(GRANULE).unwrap()).unwrap();
        }
        assert!(null.covers(range.offset(1), 2 * GRANULE - 1));
        assert!(!null.covers(range.offset(1), 2 * GRANULE));
        assert!(!null.covers(range.offset(2 * GRANULE), 1));
        assert!(null.covers(range.offset(3 * GRANULE), GRANULE));
    }

    #[test]
    fn an_allocation_larger_than_the_arena_is_refused_and_not_counted() {
        let null = device(usize::MAX);
        let bytes = 1 << 50;
        for refused in [null.allocate(bytes, 64), null.reserve(bytes)] {
            assert!(
                matches!(refused, Err(Error::Memory(MemoryError::OutOfMemory { .. }))),
                "{refused:?}"
            );
        }
        assert_eq!(null.memory_info().free_bytes, usize::MAX);
    }
}
