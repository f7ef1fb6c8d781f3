//! Per-thread state for the thread's next buffer: its place, and vacant allocations to reuse.
//!
//! The *place* is the default stream and allocator of a request that names none. It depends only on
//! the thread's current state (device, stream, pool, mode), so the thread forgets it at each change
//! of that. *Vacant* allocations have no memory; they keep their stream and their allocator, so
//! that a next request for the same two changes no reference count.
//!
//! Nothing is kept alive from here: the place is that of the process's runtime, which is never
//! dropped, and vacant allocations are kept only when their stream and allocator are as lasting.

use std::cell::RefCell;

use crate::base::error::Result;
use crate::engine::stream::Stream;
use crate::memory::buffer::allocation::Allocation;
use crate::memory::buffer::allocation::Origin;
use crate::memory::buffer::counted::Alone;
use crate::memory::buffer::handle::Buffer;

/// How many vacant allocations a thread keeps.
const MOST: usize = 64;

struct Here {
    place: Option<(Stream, Origin)>,
    vacant: Vec<Alone<Allocation>>,
}

thread_local! {
    static HERE: RefCell<Here> = const {
        RefCell::new(Here {
            place: None,
            vacant: Vec::new(),
        })
    };
}

/// A vacant allocation that this thread has kept.
pub(super) fn take() -> Option<Alone<Allocation>> {
    // `try_with`, here and below: a buffer may be made or dropped while thread-locals are
    // destroyed.
    HERE.try_with(|here| here.borrow_mut().vacant.pop()).ok().flatten()
}

/// Keeps one for this thread; drops it when the thread has enough, or ends.
#[inline]
pub(super) fn keep(allocation: Alone<Allocation>) {
    let _ = HERE.try_with(|here| {
        let vacant = &mut here.borrow_mut().vacant;
        if vacant.len() < MOST {
            vacant.push(allocation);
        }
    });
}

/// Memory at the place of this thread, when it is known and free memory is enough.
#[inline(always)]
pub(crate) fn empty(bytes: usize) -> Result<Option<Buffer>> {
    let allocation = HERE.with_borrow_mut(|here| {
        let Here { place: Some((home, origin)), vacant } = here else { return Ok(None) };
        Allocation::cached(home.core(), bytes, origin, || vacant.pop())
    })?;
    Ok(allocation.map(|allocation| Buffer::of(allocation, bytes)))
}

/// Sets this thread's stream and allocator, until [`forget`]. Both last as long as the process,
/// except for a stream that is current here.
pub(crate) fn remember(home: Stream, origin: Origin) {
    let replaced = HERE.with_borrow_mut(|here| here.place.replace((home, origin)));
    drop(replaced); // outside the borrow: it may be the last handle of a stream
}

/// Called when anything current in this thread changes.
pub(crate) fn forget() {
    let forgotten = HERE.try_with(|here| here.borrow_mut().place.take());
    drop(forgotten); // as above
}
