//! Buffers: memory by handle, freed in stream order; copies and fills of buffers and addresses.
#![expect(unsafe_code, reason = "exports functions by name, and copies memory of the caller")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::slice;

use accelrt::backend::contract::Address;
use accelrt::internal::{Checked, CopyCommand, CopyRanges, FillCommand, Interrupt, Origin, fork};
use accelrt::{Buffer, Device, Runtime};
use accelrt_observe::internal::{Act, CallerScope};

use crate::arguments::{
    DropFunction, Growing, Owned, array, check_count, null, place, write_sized,
};
use crate::device::{CDevice, limit};
use crate::handle::{LocalPlaces, Slots, of_pointer, to_pointer};
use crate::runtime::runtime;
use crate::status::{Outcome, Refused, Status, guard};
use crate::stream::{CStream, handle_of, stream_of};

// Buffers: views, what they are, their release.

/// A buffer: a view of memory. A handle is a number in a pointer's clothes.
pub struct CBuffer {
    _private: [u8; 0],
}

thread_local! {
    static PLACES: LocalPlaces = const { LocalPlaces::new(|places| BUFFERS.take_back(places)) };
}

static BUFFERS: Slots<Buffer> = Slots::new(3, "buffer", Some(&PLACES));

#[inline(always)]
pub(super) fn buffer_of(handle: *mut CBuffer) -> Outcome<&'static Buffer> {
    BUFFERS.get(of_pointer(handle))
}

/// Memory of a device alone, which the host reaches by copies; on cpu the host's own.
pub const MEMORY_DEVICE: i32 = 0;
/// Pinned memory of the host, which the devices of a kind reach.
pub const MEMORY_PINNED: i32 = 1;
/// Memory that a device shares with the host.
pub const MEMORY_SHARED: i32 = 2;

#[inline]
pub(super) fn handle_of_buffer(buffer: Buffer) -> Outcome<*mut CBuffer> {
    fork::check()?; // also where the thread has a vacant place
    Ok(to_pointer(BUFFERS.insert(buffer)?))
}

/// Where memory of a kind comes from.
pub(super) fn origin_in(runtime: &Runtime, device: Device, memory: i32) -> Outcome<Origin> {
    Ok(match memory {
        MEMORY_DEVICE => runtime.origin(device)?,
        MEMORY_PINNED => runtime.pinned_origin(device)?,
        MEMORY_SHARED => runtime.shared_origin(device)?,
        other => {
            let text = format!("There is no memory {other}: allowed are 0, 1 and 2");
            return Err(Refused::argument(text));
        }
    })
}

/// Allocates `bytes` bytes with unspecified contents on a device, aligned to 512 bytes or more. The
/// buffer's home is the thread's current stream of the device: its memory is freed behind all work
/// of that stream. 0 bytes need no memory. Blocks only while memory is short and streams still use
/// memory that was freed.
///
/// Fails with `ACCELRT_STATUS_OUT_OF_MEMORY` and `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_create(
    device: CDevice,
    bytes: usize,
    buffer: Option<&mut MaybeUninit<*mut CBuffer>>,
) -> Status {
    guard(|| {
        let to = place(buffer, "buffer")?;
        let _caller = CallerScope::of(Act::Allocates);
        to.write(handle_of_buffer(runtime()?.empty(bytes, device.device()?)?)?);
        Ok(())
    })
}

/// As `accelrt_buffer_create`, with a stream as the home.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_create_on(
    stream: *mut CStream,
    bytes: usize,
    buffer: Option<&mut MaybeUninit<*mut CBuffer>>,
) -> Status {
    guard(|| {
        let to = place(buffer, "buffer")?;
        let stream = stream_of(stream)?.clone(); // the call may block
        let origin = runtime()?.origin(stream.device())?;
        let _caller = CallerScope::of(Act::Allocates);
        to.write(handle_of_buffer(Buffer::allocate(
            &stream,
            bytes,
            &origin,
            &mut Interrupt::default(),
        )?)?);
        Ok(())
    })
}

/// As `accelrt_buffer_create`, in memory of the host (`ACCELRT_MEMORY_PINNED`) or shared with it
/// (`ACCELRT_MEMORY_SHARED`). Pinned memory is used by all devices of the kind; its address is a
/// multiple of 64.
///
/// Fails besides with `ACCELRT_STATUS_UNSUPPORTED` on a device without shared memory.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_create_in(
    device: CDevice,
    memory: i32,
    bytes: usize,
    buffer: Option<&mut MaybeUninit<*mut CBuffer>>,
) -> Status {
    guard(|| {
        let to = place(buffer, "buffer")?;
        let (runtime, device) = (runtime()?, device.device()?);
        let origin = origin_in(runtime, device, memory)?;
        let home = runtime.current_stream_of(device)?;
        let _caller = CallerScope::of(Act::Allocates);
        to.write(handle_of_buffer(Buffer::allocate(
            &home,
            bytes,
            &origin,
            &mut Interrupt::default(),
        )?)?);
        Ok(())
    })
}

/// Makes the handle stale. With the last view of it the memory is freed in stream order, behind all
/// work of the home stream and every recorded use. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_destroy(buffer: *mut CBuffer) -> Status {
    guard(|| {
        let _caller = CallerScope::of(Act::Frees);
        BUFFERS.remove(of_pointer(buffer)).map(drop)
    })
}

/// Returns a view of `bytes` bytes of a buffer from `offset_bytes` on, which keeps the memory
/// allocated. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` for a range beyond the buffer, and with
/// `ACCELRT_STATUS_INVALID_STATE` behind a release.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_slice(
    buffer: *mut CBuffer,
    offset_bytes: usize,
    bytes: usize,
    view: Option<&mut MaybeUninit<*mut CBuffer>>,
) -> Status {
    guard(|| {
        let to = place(view, "view")?;
        let end = offset_bytes.saturating_add(bytes);
        to.write(handle_of_buffer(buffer_of(buffer)?.slice(offset_bytes..end)?)?);
        Ok(())
    })
}

/// What a buffer is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CBufferInfo {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// The device; of pinned memory one of the kind that it was asked of.
    pub device: CDevice,
    /// The address of the first byte; 0 of an empty buffer and behind a release.
    pub address: u64,
    /// The bytes of this view.
    pub bytes: u64,
    /// Where in its allocation the view begins.
    pub offset_bytes: u64,
    /// `ACCELRT_MEMORY_DEVICE`, `ACCELRT_MEMORY_PINNED` or `ACCELRT_MEMORY_SHARED`.
    pub memory: i32,
    /// 1 when the host can read and write at the address, once the uses are done.
    pub is_host_accessible: i32,
    /// 1 behind a release of the memory.
    pub is_released: i32,
    /// 0.
    pub reserved: i32,
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CBufferInfo {
    const FIRST_VERSION_BYTES: usize = 56;
}

/// Writes what a buffer is. Does not block.
///
/// # Safety
/// `info` begins with the size of the memory that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_buffer_get_info(
    buffer: *mut CBuffer,
    info: *mut CBufferInfo,
) -> Status {
    guard(|| {
        let buffer = buffer_of(buffer)?;
        let memory = match (buffer.is_pinned(), buffer.is_shared()) {
            (true, _) => MEMORY_PINNED,
            (_, true) => MEMORY_SHARED,
            _ => MEMORY_DEVICE,
        };
        let value = CBufferInfo {
            size: size_of::<CBufferInfo>(),
            device: CDevice::of(buffer.device()),
            address: buffer.address().unwrap_or(0),
            bytes: buffer.nbytes() as u64,
            offset_bytes: buffer.offset() as u64,
            memory,
            is_host_accessible: buffer.is_host_accessible().into(),
            is_released: buffer.is_released().into(),
            reserved: 0,
        };
        // SAFETY: the caller passes a struct that begins with its size.
        unsafe { write_sized(&value, info, "info") }
    })
}

/// Writes the address of a buffer's first byte; 0 of an empty one. Tasks may still use the memory:
/// `accelrt_buffer_wait` waits for them. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_STATE` behind a release.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_get_address(
    buffer: *mut CBuffer,
    address: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(address, "address")?;
        to.write(buffer_of(buffer)?.address()?);
        Ok(())
    })
}

/// Returns the home stream of a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_get_home(
    buffer: *mut CBuffer,
    stream: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let to = place(stream, "stream")?;
        to.write(handle_of(buffer_of(buffer)?.stream())?);
        Ok(())
    })
}

/// Says that all work which is enqueued on `stream` by now may use the buffer's memory: for uses
/// that accelrt cannot see, as those of a function that was told the address. The memory stays
/// until they are done. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_STATE` behind a release.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_record_use(buffer: *mut CBuffer, stream: *mut CStream) -> Status {
    guard(|| Ok(buffer_of(buffer)?.record_use(stream_of(stream)?)?))
}

/// Frees the memory in stream order although other views are there; later uses of any view fail
/// with `ACCELRT_STATUS_INVALID_STATE`. A second release does nothing. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_STATE` while the memory is exported, as to Python.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_release(buffer: *mut CBuffer) -> Status {
    guard(|| Ok(buffer_of(buffer)?.release()?))
}

/// Blocks until every recorded use of the memory is done, for at most `timeout_ms` milliseconds
/// unless that is `ACCELRT_NO_LIMIT`: the host may then read and write at the address, where it can
/// access the memory at all. Fails with the errors of the uses, and ends them for later tasks.
///
/// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`,
/// `ACCELRT_STATUS_TIMED_OUT`, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside of a task that uses
/// the memory.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_wait(buffer: *mut CBuffer, timeout_ms: i64) -> Status {
    guard(|| {
        let buffer = buffer_of(buffer)?.clone(); // which a task may destroy meanwhile
        match limit(timeout_ms) {
            None => buffer.wait_for_host()?,
            Some(timeout) => buffer.wait_for_host_timeout(timeout)?,
        }
        Ok(())
    })
}

// Copies and fills: of buffers, behind conflicting uses; of addresses, ordered by a stream alone.

/// Copies all bytes of the buffer `from` to the buffer `to` of the same size, on `stream`. The copy
/// runs behind every conflicting use that is known, on any stream: tasks that write either buffer,
/// and tasks that read `to`. Does not wait for it, and blocks only as `accelrt_stream_launch`. The
/// buffers may be destroyed at once.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when the sizes differ, the ranges overlap or the
/// stream is of neither buffer's device, and with `ACCELRT_STATUS_INVALID_STATE` behind a release.
/// A copy that the device refuses fails the stream.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_copy(
    to: *mut CBuffer,
    from: *mut CBuffer,
    stream: *mut CStream,
) -> Status {
    guard(|| {
        // Tasks may destroy the handles while the stream's limit blocks the call.
        let (to, from) = (buffer_of(to)?.clone(), buffer_of(from)?.clone());
        to.copy_from(&from, &stream_of(stream)?.clone())?;
        Ok(())
    })
}

/// Sets every byte of a buffer to `byte`, on `stream`. Is ordered, blocks and fails as
/// `accelrt_buffer_copy`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_buffer_fill(
    buffer: *mut CBuffer,
    byte: u8,
    stream: *mut CStream,
) -> Status {
    guard(|| {
        // As in `accelrt_buffer_copy`.
        let (buffer, stream) = (buffer_of(buffer)?.clone(), stream_of(stream)?.clone());
        buffer.fill(byte, &stream)?;
        Ok(())
    })
}

/// Copies `bytes` bytes of the host, as many as the buffer has, to the buffer, on `stream`. Blocks
/// until that is done. Is ordered and fails as `accelrt_buffer_copy`, besides with the error that
/// made the copy fail, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside of a task of the stream.
///
/// # Safety
/// `source` has `bytes` bytes, which do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_buffer_write(
    buffer: *mut CBuffer,
    source: *const c_void,
    bytes: usize,
    stream: *mut CStream,
) -> Status {
    guard(|| {
        let (buffer, stream) = (buffer_of(buffer)?.clone(), stream_of(stream)?.clone());
        // SAFETY: the caller passes as many bytes, and does not change them during the call.
        let source = unsafe { array(source.cast::<u8>(), bytes, "source") }?;
        Ok(buffer.copy_from_slice(source, &stream)?)
    })
}

/// Copies a buffer to `bytes` bytes of the host, as many as the buffer has, on `stream`, and blocks
/// until that is done. Is ordered and fails as `accelrt_buffer_write`; behind a failure the bytes
/// are unspecified.
///
/// # Safety
/// `target` has `bytes` bytes, which nothing else uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_buffer_read(
    buffer: *mut CBuffer,
    target: *mut c_void,
    bytes: usize,
    stream: *mut CStream,
) -> Status {
    guard(|| {
        let (buffer, stream) = (buffer_of(buffer)?.clone(), stream_of(stream)?.clone());
        let mut target = HostBytes::new(target, bytes, None, "target")?;
        Ok(buffer.copy_to_slice(target.as_mut(), &stream)?)
    })
}

/// As `accelrt_buffer_write`, without waiting for the copy. `drop(source)` is called once, on any
/// thread, when the bytes are no longer needed: also when this function fails. Without a `drop` the
/// caller keeps the bytes as they are until the copy is done, which the stream shows.
///
/// # Safety
/// `source` has `bytes` bytes, which any thread may read until they are given back or the copy is
/// done. Any thread may call `drop`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_buffer_write_later(
    buffer: *mut CBuffer,
    source: *mut c_void,
    bytes: usize,
    drop: DropFunction,
    stream: *mut CStream,
) -> Status {
    guard(|| {
        let source = HostBytes::new(source, bytes, drop, "source")?;
        // As in `accelrt_buffer_copy`.
        let (buffer, stream) = (buffer_of(buffer)?.clone(), stream_of(stream)?.clone());
        buffer.copy_from_host(source, &stream)?;
        Ok(())
    })
}

/// As `accelrt_buffer_read`, without waiting for the copy. `drop(target)` is called once, on any
/// thread, behind the copy or in its place: also when this function fails. Without a `drop` the
/// caller leaves the bytes alone until the copy is done, which the stream shows.
///
/// # Safety
/// `target` has `bytes` bytes, which any thread may write until they are given back or the copy is
/// done. Any thread may call `drop`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_buffer_read_later(
    buffer: *mut CBuffer,
    target: *mut c_void,
    bytes: usize,
    drop: DropFunction,
    stream: *mut CStream,
) -> Status {
    guard(|| {
        let target = HostBytes::new(target, bytes, drop, "target")?;
        // The memory is the caller's: no thread waits here to return it.
        let (buffer, stream) = (buffer_of(buffer)?.clone(), stream_of(stream)?.clone());
        let _transfer = buffer.copy_to_host(target, &stream)?;
        Ok(())
    })
}

/// Copies `bytes` bytes from one address to another one that do not overlap, on `stream`: of device
/// memory, pinned memory, or of the host where the driver can read that. Ordered by the stream
/// alone: what else uses the bytes, and the end of their memory, is the caller's matter. Does not
/// wait for the copy, and blocks only as `accelrt_stream_launch`. A copy that the device refuses
/// fails the stream.
///
/// # Safety
/// The device can access both ranges until the copy is done, and what else uses them is ordered
/// before or behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_copy(
    stream: *mut CStream,
    to: u64,
    from: u64,
    bytes: usize,
) -> Status {
    guard(|| {
        let stream = stream_of(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        check_address(to, "to")?;
        check_address(from, "from")?;
        // The caller keeps the ranges and orders their uses, as the header says.
        let ranges = CopyRanges { to: Address(to), from: Address(from), bytes };
        stream.core().enqueue(CopyCommand(ranges), Checked)?;
        Ok(())
    })
}

/// Sets `bytes` bytes at an address to `byte`, on `stream`. Is ordered, blocks and fails as
/// `accelrt_stream_copy`.
///
/// # Safety
/// The device can access the range until the fill is done, and what else uses it is ordered before
/// or behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_fill(
    stream: *mut CStream,
    address: u64,
    byte: u8,
    bytes: usize,
) -> Status {
    guard(|| {
        let stream = stream_of(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        check_address(address, "address")?;
        // As above.
        stream.core().enqueue(FillCommand { to: Address(address), bytes, byte }, Checked)?;
        Ok(())
    })
}

fn check_address(address: u64, name: &'static str) -> Outcome {
    if address == 0 { Err(null(name)) } else { Ok(()) }
}

/// Bytes of the caller, which a copy reads or writes.
struct HostBytes {
    first: *mut u8,
    count: usize,
    _owned: Owned,
}

// SAFETY: the caller of a copy promises that any thread may use the bytes until the copy is done.
unsafe impl Send for HostBytes {}

impl HostBytes {
    /// Takes the bytes, which are given back by the drop, also when this fails.
    fn new(
        data: *mut c_void,
        count: usize,
        drop: DropFunction,
        name: &'static str,
    ) -> Outcome<Self> {
        let owned = Owned { data, drop };
        if data.is_null() && count > 0 {
            return Err(null(name));
        }
        check_count::<u8>(count, name)?;
        let first = if data.is_null() { std::ptr::dangling_mut() } else { data.cast() };
        Ok(Self { first, count, _owned: owned })
    }
}

impl AsRef<[u8]> for HostBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller promises as many bytes, which stay as they are until the drop.
        unsafe { slice::from_raw_parts(self.first, self.count) }
    }
}

impl AsMut<[u8]> for HostBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the caller promises as many bytes, which nothing else uses until the drop.
        unsafe { slice::from_raw_parts_mut(self.first, self.count) }
    }
}
