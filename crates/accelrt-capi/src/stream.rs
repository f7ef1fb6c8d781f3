//! Streams: their handles, of which each stream has one, queries, waits, what is current.
//!
//! A stream has one handle however often a function returns it, so handles can be compared. The
//! handle counts how often it was returned, and is stale when it was destroyed as often.
#![expect(unsafe_code, reason = "exports functions by name, and wraps what a caller owns")]

use std::collections::HashMap;
use std::mem::MaybeUninit;

use accelrt::Stream;
use accelrt::internal::{LockRank, Mutex, fork};

use crate::arguments::{Growing, place, write_sized};
use crate::device::{CDevice, limit};
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::runtime::runtime;
use crate::status::guard;
use crate::status::{Outcome, Status};

/// A stream: in-order work on one device. A handle is a number in a pointer's clothes.
pub struct CStream {
    _private: [u8; 0],
}

static STREAMS: Slots<Stream> = Slots::new(1, "stream", None);

/// The handles of streams by their keys, which are unique in the process.
static HANDLES: Mutex<Option<HashMap<u64, Counted>>> = Mutex::new(LockRank::Runtime, None);

struct Counted {
    handle: u64,
    /// How often the handle was returned and not destroyed.
    count: usize,
}

/// The stream that a handle names.
#[inline(always)]
pub(super) fn stream_of(handle: *mut CStream) -> Outcome<&'static Stream> {
    STREAMS.get(of_pointer(handle))
}

/// Returns the handle of a stream, counted once more.
pub(super) fn handle_of(stream: Stream) -> Outcome<*mut CStream> {
    fork::check()?;
    let key = stream.core().key();
    let mut handles = HANDLES.lock();
    let known = handles.get_or_insert_default();
    if let Some(counted) = known.get_mut(&key) {
        counted.count += 1;
        let handle = counted.handle;
        drop(handles); // before `stream`, which is not the last handle, as the slot has one
        return Ok(to_pointer(handle));
    }
    let handle = STREAMS.insert(stream)?;
    known.insert(key, Counted { handle, count: 1 });
    Ok(to_pointer(handle))
}

/// Writes the handle of what a call returned.
fn write(to: &mut MaybeUninit<*mut CStream>, stream: Stream) -> Outcome {
    to.write(handle_of(stream)?);
    Ok(())
}

/// Creates a stream for the caller alone. It ends when its handle was destroyed and its work is
/// done. A smaller `priority` runs first; a priority outside of the device's range becomes the
/// nearest one in it. Initialises the device.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_create(
    device: CDevice,
    priority: i32,
    stream: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let to = place(stream, "stream")?;
        write(to, runtime()?.stream_with_priority(device.device()?, priority)?)
    })
}

/// Takes the next stream of the device's pool of 32 with this priority: request 33 gets the first
/// one again. Streams of pools live as long as the runtime. Fails as `accelrt_stream_create`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_get_pooled(
    device: CDevice,
    priority: i32,
    stream: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let to = place(stream, "stream")?;
        write(to, runtime()?.pooled_stream_with_priority(device.device()?, priority)?)
    })
}

/// Returns the device's default stream: id 0, shared by all threads, not ordered with other
/// streams.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_get_default(
    device: CDevice,
    stream: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let to = place(stream, "stream")?;
        write(to, runtime()?.default_stream(device.device()?)?)
    })
}

/// Returns the calling thread's current stream of a device; the default stream when the thread has
/// set none.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_get_current(
    device: CDevice,
    stream: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let to = place(stream, "stream")?;
        write(to, runtime()?.current_stream_of(device.device()?)?)
    })
}

/// Returns the stream with an id, whichever language has made it. Ids are never used again.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND` for an id that was not given out, or whose stream has
/// ended.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_find(
    device: CDevice,
    id: u64,
    stream: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let to = place(stream, "stream")?;
        write(to, runtime()?.stream_by_id(device.device()?, id)?)
    })
}

/// Makes a stream of the driver, which other code owns and destroys later than this one ends, a
/// stream here: on xpu a `cl_command_queue`. Work that other code submits to it is ordered with
/// ours as the driver says.
///
/// Fails with `ACCELRT_STATUS_UNSUPPORTED` on kinds without streams of a driver, as cpu.
///
/// # Safety
/// The handle is that of a stream of the driver and the device, which its owner destroys only after
/// the stream here has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_wrap(
    device: CDevice,
    native_handle: u64,
    stream: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let to = place(stream, "stream")?;
        let (runtime, device) = (runtime()?, device.device()?);
        // SAFETY: the caller owns the driver's stream and keeps it for as long, as the header says.
        write(to, unsafe { runtime.wrap_stream(device, native_handle) }?)
    })
}

/// Counts the handle once more, for a second owner who destroys it for itself. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_retain(stream: *mut CStream) -> Status {
    guard(|| handle_of(stream_of(stream)?.clone()).map(drop))
}

/// Gives the handle back: once for each time that a function has returned it. With the last one it
/// is stale, and a stream of `accelrt_stream_create` ends when its work is done. Does not block.
///
/// Of streams that the runtime keeps, the default ones and those of pools, the handle stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_destroy(stream: *mut CStream) -> Status {
    guard(|| {
        let known = stream_of(stream)?;
        if fork::is_child() || !known.is_dedicated() {
            return Ok(());
        }
        let key = known.core().key();
        let mut handles = HANDLES.lock();
        let known = handles.get_or_insert_default();
        let counted = known.get_mut(&key).filter(|it| it.handle == of_pointer(stream));
        let counted = counted.ok_or_else(|| STREAMS.stale(of_pointer(stream)))?;
        counted.count -= 1;
        if counted.count > 0 {
            return Ok(());
        }
        known.remove(&key);
        let ended = STREAMS.remove(of_pointer(stream));
        drop(handles); // before the stream, whose drop may call a backend
        ended.map(drop)
    })
}

/// Makes a stream current on its device for the calling thread, and returns the previous one unless
/// `previous` is NULL. The thread's current device stays. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_exchange(
    stream: *mut CStream,
    previous: Option<&mut MaybeUninit<*mut CStream>>,
) -> Status {
    guard(|| {
        let before = runtime()?.exchange_stream(stream_of(stream)?)?;
        previous.map_or(Ok(()), |to| write(to, before))
    })
}

/// What a stream is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CStreamInfo {
    /// The size of this struct in bytes, set by the caller.
    pub size: usize,
    /// The device that executes the stream.
    pub device: CDevice,
    /// The id on its device; 0 is the default stream.
    pub id: u64,
    /// The priority; a smaller number runs first.
    pub priority: i32,
    /// 1 for a stream that ends with its last handle.
    pub is_dedicated: i32,
    /// 1 when tasks may be functions of the host, as `accelrt_stream_launch` has them.
    pub runs_on_host: i32,
    /// 1 when everything enqueued is done and no error is left, so that a wait would not block.
    pub is_quiet: i32,
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CStreamInfo {
    const FIRST_VERSION_BYTES: usize = 40;
}

/// Writes what a stream is. Does not block. No wait: a watch of the order learns nothing from it,
/// as it does from `accelrt_stream_query`.
///
/// # Safety
/// `info` begins with the size of the memory that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_stream_get_info(
    stream: *mut CStream,
    info: *mut CStreamInfo,
) -> Status {
    guard(|| {
        let stream = stream_of(stream)?;
        let value = CStreamInfo {
            size: size_of::<CStreamInfo>(),
            device: CDevice::of(stream.device()),
            id: stream.id(),
            priority: stream.priority(),
            is_dedicated: stream.is_dedicated().into(),
            runs_on_host: stream.core().on_host.into(),
            is_quiet: stream.core().is_quiet(stream.issued_after()).into(),
        };
        // SAFETY: the caller passes a struct that begins with its size.
        unsafe { write_sized(&value, info, "info") }
    })
}

/// Writes 1 when everything that was enqueued is done, failed or not, else 0. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_query(
    stream: *mut CStream,
    is_done: Option<&mut MaybeUninit<i32>>,
) -> Status {
    guard(|| {
        let to = place(is_done, "is_done")?;
        to.write(stream_of(stream)?.is_done().into());
        Ok(())
    })
}

/// Blocks until everything that was enqueued before this call is done, for at most `timeout_ms`
/// milliseconds unless that is `ACCELRT_NO_LIMIT`. Without a limit the thread may execute short
/// tasks of the stream. Ends the stream's error and fails with it, on every thread that waits at
/// that moment.
///
/// Fails with `ACCELRT_STATUS_STREAM_FAILED`, `ACCELRT_STATUS_DEVICE_LOST`, with
/// `ACCELRT_STATUS_TIMED_OUT`, which ends no error, and with `ACCELRT_STATUS_WOULD_DEADLOCK` inside
/// of a task of the stream.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_synchronize(stream: *mut CStream, timeout_ms: i64) -> Status {
    guard(|| {
        let stream = stream_of(stream)?.clone(); // which a task may destroy meanwhile
        match limit(timeout_ms) {
            None => stream.synchronize()?,
            Some(timeout) => stream.synchronize_timeout(timeout)?,
        }
        Ok(())
    })
}

/// Writes the driver's own handle: on xpu a `cl_command_queue`. It is valid while the stream is.
///
/// Fails with `ACCELRT_STATUS_UNSUPPORTED` on kinds without such handles, as cpu.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_get_native(
    stream: *mut CStream,
    native_handle: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(native_handle, "native_handle")?;
        to.write(stream_of(stream)?.native_handle()?);
        Ok(())
    })
}

/// Makes what is enqueued on `stream` from now on run behind everything that was enqueued on
/// `other`. No thread waits; a failed `other` fails the stream.
///
/// Fails with `ACCELRT_STATUS_INVALID_ARGUMENT` when the streams are of two kinds.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_stream_wait_stream(stream: *mut CStream, other: *mut CStream) -> Status {
    guard(|| {
        // Tasks may destroy the handles while the stream's limit blocks the call.
        let (stream, other) = (stream_of(stream)?.clone(), stream_of(other)?.clone());
        Ok(stream.wait_stream(&other)?)
    })
}
