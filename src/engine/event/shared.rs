//! The life of an event's core: handles and queued records are counted on lines of their own.
//!
//! One reference count would be raised by the thread that records and lowered by the consumer, and
//! its cache line would change hands at every record. Here records are counted up twice instead:
//! `recorded` when one is begun, `finished.records` when it was passed or dropped. The last handle
//! subtracts the first count, final now, from the second; whoever brings that to zero then frees
//! the core: the last handle itself or the last record. Who does not see zero does not touch the
//! core again. A record that no queue had is over before the handle that began it: `direct` counts
//! those, which leave the first count again.
#![expect(unsafe_code, reason = "a core is reached by raw pointers whose counts are kept here")]

use std::ops::Deref;
use std::ptr::NonNull;

use crate::base::sync::Ordering;
use crate::engine::event::core::{EventCore, Latest};

/// A handle. Clones share one core.
pub(super) struct Shared(NonNull<EventCore>);

/// A record that was begun. Dropping it finishes it.
pub(super) struct Pending {
    core: NonNull<EventCore>,
    pub(super) version: u64,
}

// SAFETY: a core is shared as by `Arc`: it is `Sync` (asserted below) and freed once.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Pending {}

#[cfg(not(loom))] // whose `life` is a cell
const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<EventCore>();
};

impl Shared {
    pub(super) fn new(core: EventCore) -> Self {
        Self(NonNull::from(Box::leak(Box::new(core))))
    }

    /// Begins the next version. Under the lock, so that versions and tickets of one stream grow
    /// together.
    #[inline]
    pub(super) fn begin(&self, _under_lock: &mut Latest) -> Pending {
        // Relaxed, and two steps: advanced under the lock only.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        // Release: who sees the version sees its device; pairs with `Event::version`. No model: as
        // there.
        self.recorded.store(version, Ordering::Release);
        Pending { core: self.0, version }
    }

    /// As [`Shared::begin`], for a record that is over before the caller's handle is: that keeps
    /// the core alive. Its version.
    #[inline]
    pub(super) fn begin_direct(&self, _under_lock: &mut Latest) -> u64 {
        // Relaxed, and two steps, three times: as in `begin`.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        self.direct.store(self.direct.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Release: as in `begin`. No model: as there.
        self.recorded.store(version, Ordering::Release);
        version
    }

    /// Where the core stands: names the event.
    pub(super) fn address(&self) -> u64 {
        self.0.addr().get() as u64
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        // Relaxed: as `Arc`: this handle keeps the core alive meanwhile.
        self.handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Deref for Shared {
    type Target = EventCore;

    #[inline]
    fn deref(&self) -> &EventCore {
        // SAFETY: the core is freed only when the last handle is gone (head of this file).
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.life.note_use();
        // AcqRel: what other handles did comes before the last one's orphaning.
        if self.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Relaxed: the handles that began records came before this one's end, above.
        let begun = self.recorded.load(Ordering::Relaxed) - self.direct.load(Ordering::Relaxed);
        // AcqRel: acquires what records that finished did with the core; releases what the handles
        // did to the record that frees it.
        if self.finished.records.fetch_sub(begun, Ordering::AcqRel) == begun {
            // SAFETY: no handle is left, and no record: the last one saw a number above zero.
            unsafe { free(self.0) };
        }
    }
}

impl Deref for Pending {
    type Target = EventCore;

    #[inline]
    fn deref(&self) -> &EventCore {
        // SAFETY: the core is freed only when every record is finished (head of this file), and
        // this one is when it is dropped.
        unsafe { self.core.as_ref() }
    }
}

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        self.life.note_use();
        // AcqRel: releases what this record did with the core to whoever frees it, and acquires
        // what the others did, should that be this one. Below zero only without handles.
        if self.finished.records.fetch_add(1, Ordering::AcqRel) == u64::MAX {
            // SAFETY: no handle is left, and no other record: they all saw another number.
            unsafe { free(self.core) };
        }
    }
}

/// # Safety
/// The core came from [`Shared::new`], and nobody uses it again.
#[cold]
unsafe fn free(core: NonNull<EventCore>) {
    // SAFETY: it was leaked from a box, and nobody uses it again: the caller's promise.
    let core = unsafe { Box::from_raw(core.as_ptr()) };
    core.life.note_end();
    drop(core);
}
