//! Memory by its address: allocations with a stream, and what memory an address belongs to.
#![expect(unsafe_code, reason = "exports functions by name")]

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::Arc;

use accelrt::internal::{Interrupt, LockRank, Mutex, Origin, fork};
use accelrt::{Buffer, CachingAllocator, DeviceKind, Runtime, Stream};

use crate::arguments::{Growing, null, place, write_sized};
use crate::buffer::{MEMORY_DEVICE, MEMORY_PINNED, MEMORY_SHARED, origin_in};
use crate::device::CDevice;
use crate::last_error::guard;
use crate::runtime::runtime;
use crate::status::{Outcome, Refused, Status};
use crate::stream::{CStream, stream_of};

/// The number of parts of the table, so that threads seldom meet at a lock.
const PARTS: usize = 16;

type Part = Mutex<Option<HashMap<u64, Buffer>>>;

/// What `accelrt_memory_allocate` has given out, by address.
static ALLOCATIONS: [Part; PARTS] = [const { Mutex::new(LockRank::Bindings, None) }; PARTS];

/// The part for an address: blocks are multiples of 512 bytes on devices and of 64 on the host.
fn part_of(address: u64) -> &'static Part {
    #[expect(clippy::cast_possible_truncation, reason = "some bits of it are enough")]
    let number = (address >> 9 ^ address >> 6) as usize;
    &ALLOCATIONS[number % PARTS]
}

fn allocate(home: &Stream, bytes: usize, origin: &Origin) -> Outcome<u64> {
    if bytes == 0 {
        return Ok(0);
    }
    let buffer = Buffer::allocate(home, bytes, origin, &mut Interrupt::default())?;
    let address = buffer.address()?;
    part_of(address).lock().get_or_insert_default().insert(address, buffer);
    Ok(address)
}

/// Allocates `bytes` bytes with unspecified contents for tasks of a stream, aligned to 512 bytes or
/// more. `accelrt_memory_free` gives them back, in stream order. The address of 0 bytes is 0.
/// Blocks only while memory is short and streams still use memory that was freed.
///
/// A handle costs less than an address, by which the allocation is found again: see
/// `accelrt_buffer_create_on`.
///
/// Fails with `ACCELRT_STATUS_OUT_OF_MEMORY`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_allocate(
    stream: *mut CStream,
    bytes: usize,
    address: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(address, "address")?;
        let stream = stream_of(stream)?.clone(); // the call may block
        to.write(allocate(&stream, bytes, &runtime()?.origin(stream.device())?)?);
        Ok(())
    })
}

/// As `accelrt_memory_allocate`, for the thread's current stream of the device, in device memory
/// (`ACCELRT_MEMORY_DEVICE`), memory of the host that the devices of the kind reach
/// (`ACCELRT_MEMORY_PINNED`), or memory that device and host share (`ACCELRT_MEMORY_SHARED`).
///
/// Fails besides with `ACCELRT_STATUS_UNSUPPORTED` on a device without shared memory.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_allocate_in(
    device: CDevice,
    memory: i32,
    bytes: usize,
    address: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(address, "address")?;
        let (runtime, device) = (runtime()?, device.device()?);
        let origin = origin_in(runtime, device, memory)?;
        to.write(allocate(&runtime.current_stream_of(device)?, bytes, &origin)?);
        Ok(())
    })
}

/// Frees what `accelrt_memory_allocate` gave out, by its address, behind all work of its stream and
/// every recorded use. 0 is allowed. Does not block.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND` for another address, and for one that was freed.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_free(address: u64) -> Status {
    guard(|| {
        if address == 0 || fork::is_child() {
            return Ok(());
        }
        let freed = part_of(address).lock().as_mut().and_then(|known| known.remove(&address));
        let freed = freed.ok_or_else(|| not_allocated(address))?;
        drop(freed); // without the lock, because the free may call a backend
        Ok(())
    })
}

/// Says that all work which is enqueued on `stream` by now may use an allocation of
/// `accelrt_memory_allocate`: it stays until that is done. Does not block.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND` for another address.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_record_use(address: u64, stream: *mut CStream) -> Status {
    guard(|| {
        let stream = stream_of(stream)?;
        fork::check()?;
        let known = part_of(address).lock().as_ref().and_then(|known| known.get(&address).cloned());
        Ok(known.ok_or_else(|| not_allocated(address))?.record_use(stream)?)
    })
}

#[cold]
fn not_allocated(address: u64) -> Refused {
    let text = format!("{address:#x} is no address of accelrt_memory_allocate, or was freed");
    Refused::new(Status::NotFound, text)
}

/// The memory that an address belongs to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CMemoryInfo {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// The device of the memory; of pinned memory one of its kind.
    pub device: CDevice,
    /// The first address of the allocation.
    pub address: u64,
    /// The bytes of the allocation, at least those that were asked for.
    pub bytes: u64,
    /// The bytes that were asked for.
    pub requested_bytes: u64,
    /// `ACCELRT_MEMORY_DEVICE`, `ACCELRT_MEMORY_PINNED` or `ACCELRT_MEMORY_SHARED`.
    pub memory: i32,
    /// 1 when `accelrt_memory_allocate` has given it out; else it is a buffer's, of any language.
    pub is_freed_by_address: i32,
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CMemoryInfo {
    const FIRST_VERSION_BYTES: usize = 48;
}

/// Writes which allocation of accelrt contains an address: its device, its first address and sizes,
/// and what memory it is, whichever language asked for it. Waits for no device.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND` for an address in no memory that is in use, as one of
/// `malloc` or of the driver.
///
/// # Safety
/// `info` begins with the size of the memory that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_memory_find(address: u64, info: *mut CMemoryInfo) -> Status {
    guard(|| {
        if info.is_null() {
            return Err(null("info"));
        }
        let found = find(runtime()?, address)?;
        // SAFETY: the caller passes a struct that begins with its size.
        unsafe { write_sized(&found, info, "info") }
    })
}

fn find(runtime: &Runtime, address: u64) -> Outcome<CMemoryInfo> {
    for kind in DeviceKind::registered() {
        let pinned = runtime.existing_pinned_allocator(kind)?;
        let pinned = pinned.iter().map(|it| (Arc::clone(it), MEMORY_PINNED));
        let of_devices = runtime.existing_allocators_of(kind)?;
        let of_devices = of_devices.into_iter().map(|allocator| {
            let own = runtime.existing_allocator(allocator.device());
            let is_own = matches!(own, Ok(Some(own)) if Arc::ptr_eq(&own, &allocator));
            (allocator, if is_own { MEMORY_DEVICE } else { MEMORY_SHARED })
        });
        for (allocator, memory) in of_devices.chain(pinned) {
            if let Some(found) = describe(&allocator, memory, address) {
                return Ok(found);
            }
        }
    }
    let text = format!("{address:#x} is in no memory of accelrt that is in use");
    Err(Refused::new(Status::NotFound, text))
}

fn describe(allocator: &CachingAllocator, memory: i32, address: u64) -> Option<CMemoryInfo> {
    let block = allocator.block_at(address)?;
    let is_known = |known: &HashMap<u64, Buffer>| known.contains_key(&block.address);
    let is_freed_by_address = part_of(block.address).lock().as_ref().is_some_and(is_known);
    Some(CMemoryInfo {
        size: size_of::<CMemoryInfo>(),
        device: CDevice::of(allocator.device()),
        address: block.address,
        bytes: block.bytes as u64,
        requested_bytes: block.requested_bytes as u64,
        memory,
        is_freed_by_address: is_freed_by_address.into(),
    })
}
