//! Per-thread hints for the next buffer: a cached stream and allocator, and vacant allocations.
//!
//! A *hint* is the stream and the allocator that served a request. A thread has one hint for
//! requests without a device and one for the last named device. Both depend on the thread's current
//! device, stream, pool and mode, so a change of any of these clears the hints. *Vacant*
//! allocations have no memory. They retain their stream and allocator, so a request for the same
//! stream and allocator changes no reference count.
//!
//! Hints extend no lifetime: they refer to the process's runtime, which is never dropped. A vacant
//! allocation is cached only when its stream and allocator live as long as that runtime.

use std::cell::RefCell;

use crate::base::device::Device;
use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::memory::buffer::allocation::{Allocation, LastHandle, Origin};
use crate::memory::buffer::handle::Buffer;

const MAX_VACANT: usize = 64;

type Hint = (Stream, Origin);

struct ThreadHints {
    /// For requests that name no device.
    default: Option<Hint>,
    /// For the last device that a request named.
    named: Option<Hint>,
    vacant: Vec<LastHandle<Allocation>>,
}

thread_local! {
    static HINTS: RefCell<ThreadHints> = const {
        RefCell::new(ThreadHints {
            default: None,
            named: None,
            vacant: Vec::new(),
        })
    };
}

pub(super) fn take() -> Option<LastHandle<Allocation>> {
    // `try_with`, here and below, because buffers may be created or dropped while the thread's
    // locals are destroyed.
    HINTS.try_with(|hints| hints.borrow_mut().vacant.pop()).ok().flatten()
}

/// Caches an allocation for this thread; drops it when the cache is full or destroyed.
#[inline]
pub(super) fn cache(allocation: LastHandle<Allocation>) {
    let _ = HINTS.try_with(|hints| {
        let vacant = &mut hints.borrow_mut().vacant;
        if vacant.len() < MAX_VACANT {
            vacant.push(allocation);
        }
    });
}

/// Allocates with this thread's hint for the device, or with the hint for requests without a
/// device. `None` when there is no hint or cached memory does not suffice.
#[inline(always)]
pub fn empty(bytes: usize, device: Option<Device>) -> Result<Option<Buffer>> {
    let served = HINTS.try_with(|hints| {
        let mut borrowed = hints.borrow_mut();
        let ThreadHints { default, named, vacant } = &mut *borrowed;
        let hint = match device {
            None => default.as_ref(),
            Some(device) => named.as_ref().filter(|(home, _)| home.device() == device),
        };
        let Some((home, origin)) = hint else { return Ok(None) };
        if home.core().on_host {
            return Allocation::cached(home.core(), bytes, origin, || vacant.pop());
        }
        // Copied before the borrow ends: a driver's poll may drop buffers, which borrow the hints.
        let (home, origin) = (home.clone(), origin.clone());
        drop(borrowed);
        Allocation::cached(home.core(), bytes, &origin, take)
    });
    let allocation = served.unwrap_or(Ok(None))?;
    Ok(allocation.map(|allocation| Buffer::of(allocation, bytes)))
}

/// Sets a hint of this thread, until [`forget`]: with `is_default` the hint for requests without a
/// device, else the hint for the stream's device. The allocator must live as long as the process.
/// The stream must live as long, or be current on this thread.
pub(crate) fn remember(home: Stream, origin: Origin, is_default: bool) {
    let replaced = HINTS.try_with(|hints| {
        let ThreadHints { default, named, .. } = &mut *hints.borrow_mut();
        if is_default { default } else { named }.replace((home, origin))
    });
    drop(replaced); // outside the borrow: a hint may hold the last handle of a stream
}

/// Clears the hints; called when the thread's current device, stream, pool or mode changes.
pub fn forget() {
    let forgotten = HINTS.try_with(|hints| {
        let ThreadHints { default, named, .. } = &mut *hints.borrow_mut();
        (default.take(), named.take())
    });
    drop(forgotten); // outside the borrow: a hint may hold the last handle of a stream
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    #[test]
    fn a_thread_keeps_a_limited_number_of_vacant_allocations() {
        let runtime = Runtime::global().unwrap();
        let request = |_| runtime.empty(512, Device::cpu(0)).unwrap();
        drop((0..2 * MAX_VACANT).map(request).collect::<Vec<_>>());
        assert_eq!(HINTS.with_borrow(|hints| hints.vacant.len()), MAX_VACANT);
    }
}
