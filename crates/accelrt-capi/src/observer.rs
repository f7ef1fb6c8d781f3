//! Observers of shortages: functions that are told of each request that fails for want of memory.
#![expect(unsafe_code, reason = "exports functions by name, and calls functions of the caller")]

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use accelrt::internal::fork;
use accelrt::{Error, MemoryError};

use crate::arguments::{null, place};
use crate::device::CDevice;
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::last_error::guard;
use crate::launch::{DropFunction, Owned};
use crate::runtime::runtime;
use crate::status::Status;

/// An observer of shortages. A handle is a number in a pointer's clothes.
pub struct CObserver {
    _private: [u8; 0],
}

static OBSERVERS: Slots<u64> = Slots::new(11, "observer", None);

/// A request that failed for want of memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CShortage {
    /// The size of this struct in bytes.
    pub size: usize,
    /// The device; of pinned memory one of its kind.
    pub device: CDevice,
    /// The bytes that were asked for.
    pub requested_bytes: u64,
    /// The bytes that the device had free.
    pub free_bytes: u64,
    /// The capacity; 0 where it is not known.
    pub total_bytes: u64,
    /// The text of the error, valid during the call.
    pub text: *const c_char,
}

/// Is told of a shortage. Must not throw or jump out.
pub type ObserverFunction =
    Option<unsafe extern "C" fn(data: *mut c_void, shortage: *const CShortage)>;

/// Calls `run(data, shortage)` for each request of an allocator that fails for want of memory, on
/// the requesting thread and without a lock, before that function returns
/// `ACCELRT_STATUS_OUT_OF_MEMORY`. Whichever language has made the request; shortages inside of an
/// observer are not told. `drop(data)` is called once, on any thread: when the observer was
/// destroyed and no thread is inside of it, or when this function fails.
///
/// # Safety
/// Any thread may call `run`, several at once, and `drop`, with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_observer_create(
    run: ObserverFunction,
    data: *mut c_void,
    drop: DropFunction,
    observer: Option<&mut MaybeUninit<*mut CObserver>>,
) -> Status {
    let owned = Shared(Owned { data, drop });
    guard(|| {
        fork::check()?;
        let to = place(observer, "observer")?;
        let run = run.ok_or_else(|| null("run"))?;
        let tell = move |error: &Error| {
            let Shared(owned) = &owned;
            tell(run, owned.data, error);
        };
        to.write(to_pointer(OBSERVERS.insert(runtime()?.add_oom_observer(tell))?));
        Ok(())
    })
}

/// Ends the calls, and makes the handle stale. A thread that is inside of a call goes on. Does not
/// block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_observer_destroy(observer: *mut CObserver) -> Status {
    guard(|| {
        let id = OBSERVERS.remove(of_pointer(observer))?;
        runtime()?.remove_oom_observer(id);
        Ok(())
    })
}

/// Data that several threads may use at once.
struct Shared(Owned);

// SAFETY: the caller of `accelrt_observer_create` promises that several threads may.
unsafe impl Sync for Shared {}

fn tell(
    run: unsafe extern "C" fn(*mut c_void, *const CShortage),
    data: *mut c_void,
    error: &Error,
) {
    let Error::Memory(MemoryError::OutOfMemory {
        device,
        requested_bytes,
        free_bytes,
        total_bytes,
        ..
    }) = error
    else {
        return;
    };
    let text = CString::new(error.to_string()).unwrap_or_default();
    let shortage = CShortage {
        size: size_of::<CShortage>(),
        device: CDevice::of(*device),
        requested_bytes: *requested_bytes as u64,
        free_bytes: *free_bytes as u64,
        total_bytes: *total_bytes as u64,
        text: text.as_ptr(),
    };
    // SAFETY: the caller promises a function for this data, on any thread.
    unsafe { run(data, &raw const shortage) };
}
