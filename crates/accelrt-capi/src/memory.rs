//! Memory by its address, and the allocators of devices.
#![expect(unsafe_code, reason = "exports functions by name, and reads texts from C")]

use std::collections::HashMap;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use accelrt::allocator::{DurationStat, HostStatistics, PooledStat, Stat, Statistics};
use accelrt::internal::{Interrupt, LockRank, Mutex, Origin, fork};
use accelrt::{Buffer, CachingAllocator, DeviceKind, Runtime, Stream};

use crate::arguments::{Growing, null, place, text, write_sized, write_text};
use crate::buffer::{MEMORY_DEVICE, MEMORY_PINNED, MEMORY_SHARED, origin_in};
use crate::device::CDevice;
use crate::runtime::{kind_of, runtime};
use crate::status::{Outcome, Refused, Status, guard};
use crate::stream::{CStream, stream_of};

// Memory by its address: allocations with a stream, and what memory an address belongs to.

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

// The allocators of devices: statistics, caches, limits, settings.

/// A number and its history.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CStat {
    /// The value now.
    pub current: u64,
    /// The largest value since the last reset of peaks.
    pub peak: u64,
    /// The sum of all increases since the last reset of sums.
    pub allocated: u64,
    /// The sum of all decreases since the last reset of sums.
    pub freed: u64,
}

/// A number for small and for large requests, and for both.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CPooledStat {
    /// Both.
    pub all: CStat,
    /// Small requests, up to 1 MiB.
    pub small_pool: CStat,
    /// Large ones.
    pub large_pool: CStat,
}

/// What an allocator has handed out and taken, by PyTorch's names and meanings where it has them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CMemoryStatistics {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// Blocks that are handed out and not freed.
    pub allocation: CPooledStat,
    /// Their bytes.
    pub allocated_bytes: CPooledStat,
    /// Segments from the device.
    pub segment: CPooledStat,
    /// Bytes taken from the device.
    pub reserved_bytes: CPooledStat,
    /// Blocks that are handed out, or freed and still used by streams.
    pub active: CPooledStat,
    /// Their bytes.
    pub active_bytes: CPooledStat,
    /// The bytes of these blocks that were asked for.
    pub requested_bytes: CPooledStat,
    /// Free blocks that cannot go back because others share their segment.
    pub inactive_split: CPooledStat,
    /// Their bytes.
    pub inactive_split_bytes: CPooledStat,
    /// Blocks of at least `max_split_bytes`.
    pub oversize_allocations: CStat,
    /// Segments of at least `max_split_bytes`.
    pub oversize_segments: CStat,
    /// Requests that asked the device again after free memory was to go back.
    pub num_alloc_retries: u64,
    /// Requests that failed for want of memory.
    pub num_ooms: u64,
    /// Times that all free memory was to go back.
    pub num_sync_all_streams: u64,
    /// Segments and ranges of pages taken from the device.
    pub num_device_alloc: u64,
    /// Segments and ranges of pages given back.
    pub num_device_free: u64,
    /// Requests that failed at once because a setting wants that.
    pub num_oom_rejections: u64,
    /// Pages moved to addresses that lacked them.
    pub num_pages_stolen: u64,
    /// Requests served from another stream's memory.
    pub num_frontier_reuses: u64,
    /// The setting `max_split_size_mb` in bytes; -1 without one.
    pub max_split_bytes: i64,
}

// SAFETY: numbers of eight bytes each, the first of them the size.
unsafe impl Growing for CMemoryStatistics {
    const FIRST_VERSION_BYTES: usize = 8 * (1 + 9 * 12 + 2 * 4 + 8 + 1);
}

/// Durations of one kind of call; zeros before the first.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CDurationStat {
    /// The sum, in microseconds.
    pub total_us: u64,
    /// The longest, in microseconds.
    pub max_us: u64,
    /// The shortest, in microseconds.
    pub min_us: u64,
    /// The number of calls.
    pub count: u64,
}

/// What the allocator of a kind's pinned memory has handed out and taken.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CHostStatistics {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// Blocks that are handed out, or freed and still used by streams.
    pub active_requests: CStat,
    /// Their bytes.
    pub active_bytes: CStat,
    /// Segments from the driver.
    pub allocations: CStat,
    /// Their bytes.
    pub allocated_bytes: CStat,
    /// The driver's allocations.
    pub host_alloc_time: CDurationStat,
    /// The driver's frees.
    pub host_free_time: CDurationStat,
}

// SAFETY: numbers of eight bytes each, the first of them the size.
unsafe impl Growing for CHostStatistics {
    const FIRST_VERSION_BYTES: usize = 8 * (1 + 4 * 4 + 2 * 4);
}

impl From<Stat> for CStat {
    fn from(Stat { current, peak, allocated, freed, .. }: Stat) -> Self {
        Self { current, peak, allocated, freed }
    }
}

impl From<PooledStat> for CPooledStat {
    fn from(stat: PooledStat) -> Self {
        let (small_pool, large_pool) = (stat.small_pool.into(), stat.large_pool.into());
        Self { all: stat.all.into(), small_pool, large_pool }
    }
}

impl From<DurationStat> for CDurationStat {
    fn from(DurationStat { total_us, max_us, min_us, count, .. }: DurationStat) -> Self {
        Self { total_us, max_us, min_us, count }
    }
}

impl From<&Statistics> for CMemoryStatistics {
    fn from(known: &Statistics) -> Self {
        Self {
            size: size_of::<Self>(),
            allocation: known.allocation.into(),
            allocated_bytes: known.allocated_bytes.into(),
            segment: known.segment.into(),
            reserved_bytes: known.reserved_bytes.into(),
            active: known.active.into(),
            active_bytes: known.active_bytes.into(),
            requested_bytes: known.requested_bytes.into(),
            inactive_split: known.inactive_split.into(),
            inactive_split_bytes: known.inactive_split_bytes.into(),
            oversize_allocations: known.oversize_allocations.into(),
            oversize_segments: known.oversize_segments.into(),
            num_alloc_retries: known.num_alloc_retries,
            num_ooms: known.num_ooms,
            num_sync_all_streams: known.num_sync_all_streams,
            num_device_alloc: known.num_device_alloc,
            num_device_free: known.num_device_free,
            num_oom_rejections: known.num_oom_rejections,
            num_pages_stolen: known.num_pages_stolen,
            num_frontier_reuses: known.num_frontier_reuses,
            max_split_bytes: known.max_split_size,
        }
    }
}

/// Writes the statistics of a device's memory (`ACCELRT_MEMORY_DEVICE`), or of what it shares with
/// the host (`ACCELRT_MEMORY_SHARED`); zeros before its first use. Initialises no device and waits
/// for none.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
///
/// # Safety
/// `statistics` begins with the size of the memory that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_memory_get_statistics(
    device: CDevice,
    memory: i32,
    statistics: *mut CMemoryStatistics,
) -> Status {
    guard(|| {
        let (runtime, device) = (runtime()?, device.device()?);
        let known = match memory {
            MEMORY_DEVICE => runtime.memory_statistics(device)?,
            MEMORY_SHARED => runtime.shared_memory_statistics(device)?,
            other => {
                let text =
                    format!("There are no statistics of memory {other}: allowed are 0 and 2");
                return Err(Refused::argument(text));
            }
        };
        // SAFETY: the caller passes a struct that begins with its size.
        unsafe { write_sized(&CMemoryStatistics::from(&known), statistics, "statistics") }
    })
}

/// Writes the statistics of the pinned memory of a kind's devices; zeros before its first use.
/// Waits for no device.
///
/// # Safety
/// `statistics` begins with the size of the memory that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_memory_get_host_statistics(
    kind: i32,
    statistics: *mut CHostStatistics,
) -> Status {
    guard(|| {
        let allocator = runtime()?.existing_pinned_allocator(kind_of(kind)?)?;
        let known = allocator.and_then(|allocator| allocator.host_statistics());
        let known: HostStatistics = known.unwrap_or_default();
        let value = CHostStatistics {
            size: size_of::<CHostStatistics>(),
            active_requests: known.active_requests.into(),
            active_bytes: known.active_bytes.into(),
            allocations: known.allocations.into(),
            allocated_bytes: known.allocated_bytes.into(),
            host_alloc_time: known.host_alloc_time.into(),
            host_free_time: known.host_free_time.into(),
        };
        // SAFETY: the caller passes a struct that begins with its size.
        unsafe { write_sized(&value, statistics, "statistics") }
    })
}

/// Lowers the peaks of a device's statistics to what is current.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_reset_peaks(device: CDevice) -> Status {
    guard(|| {
        for allocator in runtime()?.existing_allocators(device.device()?)? {
            allocator.reset_peak_statistics();
        }
        Ok(())
    })
}

/// Sets the sums and counts of a device's statistics to 0.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_reset_sums(device: CDevice) -> Status {
    guard(|| {
        for allocator in runtime()?.existing_allocators(device.device()?)? {
            allocator.reset_accumulated_statistics();
        }
        Ok(())
    })
}

/// Gives all free memory of a kind's devices back to them, and its free pinned memory. Blocks until
/// no stream uses it.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_empty_cache(kind: i32) -> Status {
    guard(|| {
        let (runtime, kind) = (runtime()?, kind_of(kind)?);
        let pinned = runtime.existing_pinned_allocator(kind)?;
        for allocator in runtime.existing_allocators_of(kind)?.iter().chain(&pinned) {
            allocator.empty_cache();
        }
        Ok(())
    })
}

/// Writes which fraction of a device's memory may be reserved: 1 unless it was set.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_get_fraction(
    device: CDevice,
    fraction: Option<&mut MaybeUninit<f64>>,
) -> Status {
    guard(|| {
        let to = place(fraction, "fraction")?;
        let known = runtime()?.existing_allocator(device.device()?)?;
        to.write(known.map_or(1.0, |allocator| allocator.memory_fraction()));
        Ok(())
    })
}

/// Limits later reservations of a device's memory to a fraction of it. Initialises the device.
///
/// Fails with `ACCELRT_STATUS_INVALID_SETTING` unless it is from 0 to 1, and with
/// `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_set_fraction(device: CDevice, fraction: f64) -> Status {
    guard(|| Ok(runtime()?.allocator(device.device()?)?.set_memory_fraction(fraction)?))
}

/// Writes the settings of the allocators that are in force, as text. `text`, `capacity` and
/// `length` are as in `accelrt_device_get_name`.
///
/// # Safety
/// `text` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_memory_get_settings(
    text: *mut c_char,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        fork::check()?;
        let settings = runtime()?.allocator_settings();
        // SAFETY: the caller passes room for `capacity` bytes.
        unsafe { write_text(&settings, text, capacity, length) }
    })
}

/// Applies settings to later requests of all allocators, as `max_split_size_mb:64`: the keys are
/// those of PyTorch's `PYTORCH_ALLOC_CONF`, and ours; docs/allocator.md has them.
///
/// Fails with `ACCELRT_STATUS_INVALID_SETTING`, without a change, for a text that is malformed.
///
/// # Safety
/// `settings` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_memory_set_settings(settings: *const c_char) -> Status {
    guard(|| {
        // SAFETY: the caller passes a text that ends with a zero.
        let settings = unsafe { text(settings, "settings") }?;
        Ok(runtime()?.set_allocator_settings(settings)?)
    })
}
