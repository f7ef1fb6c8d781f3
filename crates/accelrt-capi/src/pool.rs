//! Private pools, tags that say what memory is for, and observers of shortages.
#![expect(unsafe_code, reason = "exports functions by name, and calls functions of the caller")]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use accelrt::allocator::Stat;
use accelrt::internal::fork;
use accelrt::{Error, MemPool, MemoryError, PoolId, PoolOptions};
use accelrt_observe::memory_history::{MemoryTag, memory_tag};

use crate::arguments::{DropFunction, Growing, Owned, null, place, text, write_all};
use crate::device::CDevice;
use crate::handle::{Slots, of_pointer, to_pointer};
use crate::history::name;
use crate::memory::CStat;
use crate::runtime::runtime;
use crate::status::{Outcome, Refused, Status, guard};

// Private pools of a device's memory, and tags.

/// A private pool of a device's memory. A handle is a number in a pointer's clothes.
pub struct CPool {
    _private: [u8; 0],
}

static POOLS: Slots<MemPool> = Slots::new(12, "pool", None);

/// A pool serves other requests too, before these fail for want of memory.
pub const POOL_USE_ON_OOM: u32 = 1;
/// A request gets a whole block of the pool.
pub const POOL_NO_SPLIT: u32 = 2;

fn pool_of(handle: *mut CPool) -> Outcome<&'static MemPool> {
    POOLS.get(of_pointer(handle))
}

/// Creates an empty pool of a device: memory that serves the requests of threads inside of it only.
/// `options` is 0, or `ACCELRT_POOL_USE_ON_OOM` and `ACCELRT_POOL_NO_SPLIT`, added up. Initialises
/// the device.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_pool_create(
    device: CDevice,
    options: u32,
    pool: Option<&mut MaybeUninit<*mut CPool>>,
) -> Status {
    guard(|| {
        let to = place(pool, "pool")?;
        if options > (POOL_USE_ON_OOM | POOL_NO_SPLIT) {
            return Err(Refused::argument(format!("There are no options {options} of pools")));
        }
        let chosen = PoolOptions::default()
            .use_on_oom(options & POOL_USE_ON_OOM != 0)
            .no_split(options & POOL_NO_SPLIT != 0);
        let made = MemPool::new(runtime()?, device.device()?, chosen)?;
        to.write(to_pointer(POOLS.insert(made)?));
        Ok(())
    })
}

/// Makes the handle stale. The pool's free memory goes back to the device, what is in use behind
/// its free. Threads leave the pool before: one that is inside stays there until its end. Does not
/// block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_pool_destroy(pool: *mut CPool) -> Status {
    guard(|| POOLS.remove(of_pointer(pool)).map(drop))
}

/// Makes the pool serve the calling thread's requests of memory on its device, except shared and
/// pinned memory, until `accelrt_pool_leave`. Of several entered pools of a device the last one
/// serves. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_pool_enter(pool: *mut CPool) -> Status {
    guard(|| {
        fork::check()?;
        pool_of(pool)?.push();
        Ok(())
    })
}

/// Ends the thread's latest `accelrt_pool_enter` of the pool. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_STATE` on a thread that is not inside of the pool.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_pool_leave(pool: *mut CPool) -> Status {
    guard(|| {
        if pool_of(pool)?.pop() {
            return Ok(());
        }
        Err(Refused::new(Status::InvalidState, "The thread is not inside of the pool"))
    })
}

/// Writes the number that segments of the pool have in snapshots and histories. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_pool_get_id(
    pool: *mut CPool,
    id: Option<&mut MaybeUninit<u64>>,
) -> Status {
    guard(|| {
        let to = place(id, "id")?;
        let PoolId(_, number) = pool_of(pool)?.id();
        to.write(number);
        Ok(())
    })
}

thread_local! {
    /// The tags that the thread has entered.
    static TAGS: RefCell<Vec<MemoryTag>> = const { RefCell::new(Vec::new()) };
}

/// Gives what the calling thread allocates a tag, until `accelrt_memory_leave_tag`; the innermost
/// tag counts, and an empty one ends an outer one meanwhile. A process has 65535 tags and names of
/// threads. Does not block.
///
/// # Safety
/// `tag` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_memory_enter_tag(tag: *const c_char) -> Status {
    guard(|| {
        fork::check()?;
        // SAFETY: the caller passes a text.
        let entered = memory_tag(unsafe { text(tag, "tag") }?);
        TAGS.with_borrow_mut(|tags| tags.push(entered));
        Ok(())
    })
}

/// Ends the calling thread's latest tag. Does not block.
///
/// Fails with `ACCELRT_STATUS_INVALID_STATE` when the thread has entered none.
#[unsafe(no_mangle)]
pub extern "C" fn accelrt_memory_leave_tag() -> Status {
    guard(|| {
        let left = TAGS.with_borrow_mut(Vec::pop);
        let none = || Refused::new(Status::InvalidState, "The thread has entered no tag");
        left.map(drop).ok_or_else(none)
    })
}

/// What is in use by the tag of its requests.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CTagStatistics {
    /// The size of this struct in bytes.
    pub size: usize,
    /// The bytes.
    pub bytes: CStat,
    /// The tag, which ends with a zero and may be cut.
    pub tag: [c_char; 64],
}

// SAFETY: numbers without gaps, the first of them the size.
unsafe impl Growing for CTagStatistics {
    const FIRST_VERSION_BYTES: usize = 8 + 32 + 64;
}

impl CTagStatistics {
    fn of((tag, bytes): &(Arc<str>, Stat)) -> Self {
        Self { size: size_of::<Self>(), bytes: (*bytes).into(), tag: name(tag) }
    }
}

/// Writes at most `capacity` tags of a device's memory with what is in use by each, sorted by tag,
/// into an array whose elements have `each_bytes` bytes, `sizeof(accelrt_tag_statistics)`. `count`,
/// unless it is NULL, gets the number of all. Initialises no device and waits for none.
///
/// Fails with `ACCELRT_STATUS_NOT_FOUND`.
///
/// # Safety
/// `tags` has `capacity` elements of `each_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accelrt_memory_get_tags(
    device: CDevice,
    tags: *mut CTagStatistics,
    each_bytes: usize,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> Status {
    guard(|| {
        let allocator = runtime()?.existing_allocator(device.device()?)?;
        let known = allocator.map(|allocator| allocator.tag_statistics()).unwrap_or_default();
        let values: Vec<_> = known.iter().take(capacity).map(CTagStatistics::of).collect();
        // SAFETY: the caller passes an array of as many elements.
        unsafe { write_all(&values, tags, each_bytes, "tags") }?;
        if let Some(count) = count {
            count.write(known.len());
        }
        Ok(())
    })
}

// Observers of shortages: functions that are told of each request that fails for want of memory.

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
