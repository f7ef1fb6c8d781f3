//! Per-thread state for the thread's next buffer: its place, and vacant allocations to reuse.
//!
//! A *place* is the stream and the allocator of a request: of one that names no device, and of the
//! last one that named its device. Both depend only on the thread's current state (device, stream,
//! pool, mode), so the thread forgets them at each change of that. *Vacant* allocations have no
//! memory; they keep their stream and their allocator, so that a next request for the same two
//! changes no reference count.
//!
//! Nothing is kept alive from here: places are those of the process's runtime, which is never
//! dropped, and vacant allocations are kept only when their stream and allocator are as lasting.

use std::cell::RefCell;

use crate::base::device::Device;
use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::memory::buffer::allocation::Allocation;
use crate::memory::buffer::allocation::Origin;
use crate::memory::buffer::counted::LastHandle;
use crate::memory::buffer::handle::Buffer;

/// How many vacant allocations a thread keeps.
const MOST: usize = 64;

type Place = (Stream, Origin);

struct ThreadHints {
    /// Of a request that names no device.
    default: Option<Place>,
    /// Of the last one that named its device.
    named: Option<Place>,
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

/// A vacant allocation that this thread has kept.
pub(super) fn take() -> Option<LastHandle<Allocation>> {
    // `try_with`, here and below: a buffer may be made or dropped while thread-locals are
    // destroyed.
    HINTS.try_with(|hints| hints.borrow_mut().vacant.pop()).ok().flatten()
}

/// Keeps one for this thread; drops it when the thread has enough, or ends.
#[inline]
pub(super) fn keep(allocation: LastHandle<Allocation>) {
    let _ = HINTS.try_with(|hints| {
        let vacant = &mut hints.borrow_mut().vacant;
        if vacant.len() < MOST {
            vacant.push(allocation);
        }
    });
}

/// Memory at this thread's place on a device, or at its default place, when that is known and free
/// memory is enough.
#[inline(always)]
pub(crate) fn empty(bytes: usize, device: Option<Device>) -> Result<Option<Buffer>> {
    let served = HINTS.try_with(|hints| {
        let mut borrowed = hints.borrow_mut();
        let ThreadHints { default, named, vacant } = &mut *borrowed;
        let place = match device {
            None => default.as_ref(),
            Some(device) => named.as_ref().filter(|(home, _)| home.device() == device),
        };
        let Some((home, origin)) = place else { return Ok(None) };
        if home.core().on_host {
            return Allocation::cached(home.core(), bytes, origin, || vacant.pop());
        }
        // A driver's stream is looked at, and drops what it held: buffers come back hints.
        let (home, origin) = (home.clone(), origin.clone());
        drop(borrowed);
        Allocation::cached(home.core(), bytes, &origin, take)
    });
    let allocation = served.unwrap_or(Ok(None))?;
    Ok(allocation.map(|allocation| Buffer::of(allocation, bytes)))
}

/// Sets this thread's place for requests that name no device, or that name its device, until
/// [`forget`]. Stream and allocator last as long as the process, except for a stream that is
/// current here.
pub(crate) fn remember(home: Stream, origin: Origin, is_default: bool) {
    let replaced = HINTS.try_with(|hints| {
        let ThreadHints { default, named, .. } = &mut *hints.borrow_mut();
        if is_default { default } else { named }.replace((home, origin))
    });
    drop(replaced); // outside the borrow: it may be the last handle of a stream
}

/// Called when anything current in this thread changes.
pub(crate) fn forget() {
    let forgotten = HINTS.try_with(|hints| {
        let ThreadHints { default, named, .. } = &mut *hints.borrow_mut();
        (default.take(), named.take())
    });
    drop(forgotten); // as above
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    #[test]
    fn a_thread_keeps_a_limited_number_of_vacant_allocations() {
        let runtime = Runtime::global().unwrap();
        let request = |_| runtime.empty(512, Device::cpu(0)).unwrap();
        drop((0..2 * MOST).map(request).collect::<Vec<_>>());
        assert_eq!(HINTS.with_borrow(|hints| hints.vacant.len()), MOST);
    }
}
