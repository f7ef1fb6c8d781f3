//! The memory of the devices and of the host: who has which addresses, and what is behind them.
//!
//! Addresses of a device are numbers beyond what processors can dereference. Only the threads of
//! the pool translate them, as a memory unit on a board would.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::Mutex;

use accelrt::backend::contract::{Address, MemoryInfo, MemoryKind, PointerOwner};

use crate::{CAPACITY_BYTES, DEVICE_COUNT};

/// The least alignment of the contract.
const LEAST_ALIGN_BYTES: usize = 64;

/// The first address of device 0; each device has 2^48 of them.
const FIRST_ADDRESS: u64 = 1 << 62;
const DEVICE_SHIFT: u32 = 48;

/// An allocation, by its first address.
#[derive(Debug)]
struct Allocation {
    /// The device, or `None` for host memory.
    device: Option<usize>,
    bytes: usize,
    storage: *mut u8,
    layout: Layout,
}

// SAFETY: the storage belongs to the allocation, and who reads and writes it is ordered by the
// callers of the contract.
unsafe impl Send for Allocation {}

#[derive(Debug)]
struct Table {
    by_address: BTreeMap<u64, Allocation>,
    /// The next free address of each device: none is given out twice.
    next: [u64; DEVICE_COUNT],
    used_bytes: [usize; DEVICE_COUNT],
}

#[derive(Debug)]
pub(crate) struct Memory(Mutex<Table>);

impl Memory {
    pub(crate) fn new() -> Self {
        let first = |device| FIRST_ADDRESS + ((device as u64) << DEVICE_SHIFT);
        let next = std::array::from_fn(first);
        let used_bytes = [0; DEVICE_COUNT];
        Self(Mutex::new(Table { by_address: BTreeMap::new(), next, used_bytes }))
    }

    /// `Err` has what was free.
    pub(crate) fn allocate(
        &self,
        device: usize,
        bytes: usize,
        align_bytes: usize,
    ) -> Result<Address, MemoryInfo> {
        let mut table = self.0.lock().unwrap();
        let free_bytes = CAPACITY_BYTES - table.used_bytes[device];
        let refusal = MemoryInfo { free_bytes, total_bytes: CAPACITY_BYTES };
        let align_bytes = align_bytes.max(LEAST_ALIGN_BYTES);
        if bytes > free_bytes {
            return Err(refusal);
        }
        let (storage, layout) = storage(bytes, LEAST_ALIGN_BYTES).ok_or(refusal)?;
        let address = table.next[device].next_multiple_of(align_bytes as u64);
        table.next[device] = address + bytes as u64;
        table.used_bytes[device] += bytes;
        let allocation = Allocation { device: Some(device), bytes, storage, layout };
        table.by_address.insert(address, allocation);
        Ok(Address(address))
    }

    /// Memory that both reach by its address; `None` when the system has none.
    pub(crate) fn allocate_host(&self, bytes: usize, align_bytes: usize) -> Option<Address> {
        let (storage, layout) = storage(bytes, align_bytes.max(LEAST_ALIGN_BYTES))?;
        let address = storage.expose_provenance() as u64;
        let allocation = Allocation { device: None, bytes, storage, layout };
        self.0.lock().unwrap().by_address.insert(address, allocation);
        Some(Address(address))
    }

    pub(crate) fn release(&self, address: Address) {
        let mut table = self.0.lock().unwrap();
        let gone =
            table.by_address.remove(&address.0).expect("released once, by its first address");
        if let Some(device) = gone.device {
            table.used_bytes[device] -= gone.bytes;
        }
        // SAFETY: `storage` made it with this layout, and it left the table with the allocation.
        unsafe { dealloc(gone.storage, gone.layout) };
    }

    pub(crate) fn info(&self, device: usize) -> MemoryInfo {
        let free_bytes = CAPACITY_BYTES - self.0.lock().unwrap().used_bytes[device];
        MemoryInfo { free_bytes, total_bytes: CAPACITY_BYTES }
    }

    pub(crate) fn owner(&self, address: Address) -> Option<PointerOwner> {
        let table = self.0.lock().unwrap();
        let (base, allocation) = table.holding(address)?;
        Some(PointerOwner {
            device_index: allocation.device.unwrap_or(0),
            base: Address(base),
            bytes: allocation.bytes,
            memory: if allocation.device.is_some() { MemoryKind::Device } else { MemoryKind::Host },
        })
    }

    /// Where the bytes of an address are: for a thread of the pool alone. What is no address of a
    /// device is memory of the process.
    pub(crate) fn translate(&self, address: Address) -> *mut u8 {
        let table = self.0.lock().unwrap();
        match table.holding(address) {
            Some((base, allocation)) => {
                allocation.storage.wrapping_add(usize::try_from(address.0 - base).unwrap())
            }
            None => std::ptr::with_exposed_provenance_mut(usize::try_from(address.0).unwrap()),
        }
    }
}

impl Table {
    fn holding(&self, address: Address) -> Option<(u64, &Allocation)> {
        let (base, allocation) = self.by_address.range(..=address.0).next_back()?;
        (address.0 - base < allocation.bytes as u64).then_some((*base, allocation))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for allocation in self.by_address.values() {
            // SAFETY: `storage` made it with this layout, and the table is gone.
            unsafe { dealloc(allocation.storage, allocation.layout) };
        }
    }
}

fn storage(bytes: usize, align_bytes: usize) -> Option<(*mut u8, Layout)> {
    let layout = Layout::from_size_align(bytes, align_bytes).ok()?;
    // SAFETY: the contract has no requests of zero bytes.
    let storage = unsafe { alloc_zeroed(layout) };
    (!storage.is_null()).then_some((storage, layout))
}
