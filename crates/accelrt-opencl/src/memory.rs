//! Memory of the devices and of the host, and the lookup of an address's allocation.
use std::collections::BTreeMap;
use std::sync::Arc;

use accelrt::backend::contract::{Address, MemoryInfo, MemoryKind, PointerOwner};
use accelrt::internal::{Capacity, out_of_memory};
use accelrt::internal::{LockRank, Mutex, machine_memory};
use accelrt::size::to_usize;
use accelrt::{Device, DriverError, Error, Result};

use crate::device::{XpuDevice, driver_error};
use crate::driver::{CallError, CallResult};
use crate::session::Session;
use crate::sys::{self, DeviceId};

/// Minimum alignment: a cache line.
const LEAST_ALIGN_BYTES: usize = 64;

/// Live allocations of all devices and of the host, by first address.
///
/// Invariant: each device's capacity counts the bytes of the device's allocations as used, and
/// `host` those of host memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The capacity for host memory: all memory of the machine.
    host: Capacity,
    allocations: Mutex<BTreeMap<u64, Allocation>>,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: usize,
    /// The driver's address to free. The allocation may begin behind it: see [`aligned`].
    raw: u64,
    /// 0 for host memory, which belongs to no device.
    device_index: usize,
    kind: MemoryKind,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let machine_bytes = machine_memory::total(&machine_memory::file, None);
        let host = Capacity::new(Device::cpu(0), machine_bytes);
        Self { host, allocations: Mutex::new(LockRank::Backend, BTreeMap::new()) }
    }

    /// Allocates memory. Host memory counts against `host`, other kinds against `device`.
    pub(crate) fn allocate(
        &self,
        session: &Session,
        device: &XpuDevice,
        bytes: usize,
        align_bytes: usize,
        kind: MemoryKind,
    ) -> Result<Address> {
        assert!(align_bytes.is_power_of_two(), "alignment {align_bytes} is a power of two");
        let (capacity, device_index) = match kind {
            MemoryKind::Host => (&self.host, 0),
            MemoryKind::Device | MemoryKind::Shared => (&*device.capacity, device.device.index()),
        };
        capacity.take(bytes, bytes)?;
        let taken = aligned(session, bytes, align_bytes.max(LEAST_ALIGN_BYTES), |bytes, align| {
            session.usm.allocate(session.context, device.info.id, kind, bytes, align)
        });
        let (address, raw) = taken.map_err(|refusal| {
            capacity.release(bytes);
            let is_short = is_shortage(refusal.code);
            if kind == MemoryKind::Host {
                return if is_short {
                    capacity.out_of_memory(bytes)
                } else {
                    driver_error(refusal)
                };
            }
            // The code for a lack of memory may also come from a lost device. The shortage is
            // therefore reported only when the device is not lost.
            match device.lost_or_refused(&session.driver, refusal) {
                Error::Driver(DriverError::Refused { .. }) if is_short => {
                    shortage_error(device, bytes)
                }
                error => error,
            }
        })?;
        let allocation = Allocation { bytes, raw, device_index, kind };
        let before = self.allocations.lock().insert(address, allocation);
        assert!(before.is_none(), "the allocation at {address:#x} was never given back");
        Ok(Address(address))
    }

    pub(crate) fn host_info(&self) -> MemoryInfo {
        self.host.info()
    }

    /// Frees an allocation of a device, or of the host when `device` is `None`.
    pub(crate) fn release(
        &self,
        session: &Session,
        device: Option<&XpuDevice>,
        address: Address,
    ) -> CallResult {
        let allocation = self.allocations.lock().remove(&address.0);
        let Allocation { bytes, raw, device_index, kind } = allocation
            .unwrap_or_else(|| panic!("no allocation begins at the address {:#x}", address.0));
        let owner = (kind != MemoryKind::Host).then_some(device_index);
        assert_eq!(owner, device.map(|device| device.device.index()), "whose memory it is");
        let freed = session.usm.free_memory(session.context, raw);
        device.map_or(&self.host, |device| &*device.capacity).release(bytes);
        freed
    }

    /// The allocation of this backend that contains an address; `None` for other memory.
    pub(crate) fn owner(&self, address: Address) -> Option<PointerOwner> {
        let allocations = self.allocations.lock();
        let (base, allocation) = allocations.range(..=address.0).next_back()?;
        let Allocation { bytes, device_index, kind, .. } = *allocation;
        let is_inside = address.0 - base < bytes as u64;
        is_inside.then_some(PointerOwner {
            device_index,
            base: Address(*base),
            bytes,
            memory: kind,
        })
    }
}

/// Asks the driver for the owner of memory that other code allocated in this context.
pub(crate) fn foreign_owner(
    session: &Session,
    devices: &[Arc<XpuDevice>],
    address: Address,
) -> CallResult<Option<PointerOwner>> {
    let ask = |what| session.usm.alloc_info::<u64>(session.context, address.0, what);
    let kind: u32 =
        session.usm.alloc_info(session.context, address.0, sys::MEM_ALLOC_TYPE_INTEL)?;
    if kind == sys::MEM_TYPE_UNKNOWN_INTEL {
        return Ok(None);
    }
    let (base, bytes) = (ask(sys::MEM_ALLOC_BASE_PTR_INTEL)?, ask(sys::MEM_ALLOC_SIZE_INTEL)?);
    let what = sys::MEM_ALLOC_DEVICE_INTEL;
    let id: DeviceId = session.usm.alloc_info(session.context, address.0, what)?;
    let device_index = devices.iter().position(|device| device.info.id == id).unwrap_or(0);
    Ok(Some(PointerOwner {
        device_index,
        base: Address(base),
        bytes: to_usize(bytes),
        memory: match kind {
            sys::MEM_TYPE_HOST_INTEL => MemoryKind::Host,
            sys::MEM_TYPE_SHARED_INTEL => MemoryKind::Shared,
            _ => MemoryKind::Device,
        },
    }))
}

/// Returns the aligned address to use and the address to free. A driver may reject or ignore an
/// alignment above that of its largest type. `aligned` then allocates more and rounds up.
fn aligned(
    session: &Session,
    bytes: usize,
    align_bytes: usize,
    allocate: impl Fn(usize, u32) -> CallResult<u64>,
) -> CallResult<(u64, u64)> {
    match allocate(bytes, u32::try_from(align_bytes).unwrap_or(0)) {
        Ok(raw) if raw.is_multiple_of(align_bytes as u64) => return Ok((raw, raw)),
        Ok(raw) => session.usm.free_memory(session.context, raw)?,
        Err(refusal) if refusal.code != sys::INVALID_VALUE => return Err(refusal),
        Err(_) => {}
    }
    let refusal = CallError { call: "clDeviceMemAllocINTEL", code: sys::INVALID_BUFFER_SIZE };
    let raw = allocate(bytes.checked_add(align_bytes).ok_or(refusal)?, 0)?;
    Ok((raw.next_multiple_of(align_bytes as u64), raw))
}

/// True for an allocation's error codes that mean a lack of memory.
fn is_shortage(code: i32) -> bool {
    matches!(
        code,
        sys::INVALID_BUFFER_SIZE
            | sys::MEM_OBJECT_ALLOCATION_FAILURE
            | sys::OUT_OF_RESOURCES
            | sys::OUT_OF_HOST_MEMORY
    )
}

/// The error when the driver lacks memory. Its free bytes are at most the largest allocation.
fn shortage_error(device: &XpuDevice, requested_bytes: usize) -> Error {
    let mut info = device.capacity.info();
    if device.info.largest_bytes > 0 {
        info.free_bytes = info.free_bytes.min(device.info.largest_bytes);
    }
    out_of_memory(device.device, requested_bytes, info)
}
