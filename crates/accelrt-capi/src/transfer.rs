//! Copies and fills: of buffers, behind conflicting uses; of addresses, ordered by a stream alone.
#![expect(unsafe_code, reason = "exports functions by name, and copies memory of the caller")]

use std::ffi::c_void;
use std::slice;

use accelrt::backend::contract::Address;
use accelrt::internal::{Checked, CopyCommand as Copy, CopyRanges as Ranges, FillCommand as Fill};

use crate::arguments::{array, check_count, null};
use crate::buffer::{CBuffer, buffer_of};
use crate::last_error::guard;
use crate::launch::{DropFunction, Owned};
use crate::status::{Outcome, Status};
use crate::stream::{CStream, stream_of};

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
        let ranges = Ranges { to: Address(to), from: Address(from), bytes };
        stream.core().enqueue(Copy(ranges), Checked)?;
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
        stream.core().enqueue(Fill { to: Address(address), bytes, byte }, Checked)?;
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
