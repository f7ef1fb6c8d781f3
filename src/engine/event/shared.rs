//! The lifetime of an event's core: handles and queued records are counted on separate cache lines.
//!
//! The cache line of a single count would move at every record: the recording thread increments the
//! count, and the consumer decrements it. So there are two counts. `recorded` counts the records
//! begun, and `finished.records` the records passed or dropped. The drop of the last handle
//! subtracts the first count, now final, from the second. The thread that then brings the second
//! count to zero frees the core; other threads do not touch the core again. A record that bypasses
//! the queue ends before the handle that began it. `direct` counts these records, and the last
//! handle subtracts them from the first count.
#![expect(unsafe_code, reason = "a core is reached by raw pointers whose counts are kept here")]

use std::ops::Deref;
use std::ptr::NonNull;

use crate::base::sync::Ordering;
use crate::engine::event::core::{EventCore, Latest};

/// A handle. Clones share one core.
pub(super) struct Shared(NonNull<EventCore>);

/// A record in progress. The drop finishes the record.
pub(super) struct Pending {
    core: NonNull<EventCore>,
    pub(super) version: u64,
}

// SAFETY: a core is shared as by `Arc`: it is `Send` and `Sync` (asserted below) and freed once.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`: the core is `Send` and `Sync`, and freed once.
unsafe impl Sync for Shared {}
// SAFETY: as for `Send`: the core is `Send` and `Sync`, and freed once.
unsafe impl Send for Pending {}

#[cfg(not(loom))] // in models `life` is a cell
const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<EventCore>();
};

impl Shared {
    pub(super) fn new(core: EventCore) -> Self {
        Self(NonNull::from(Box::leak(Box::new(core))))
    }

    /// Begins the next version. The lock makes versions and tickets of one stream grow together.
    #[inline]
    pub(super) fn begin(&self, _under_lock: &mut Latest) -> Pending {
        // Relaxed, and a load and a store: advanced under the lock only.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        // Release: a thread that sees the version also sees its device; pairs with
        // `Event::version`. No model: as there.
        self.recorded.store(version, Ordering::Release);
        Pending { core: self.0, version }
    }

    /// As [`Shared::begin`], for a record that ends before the caller's handle, which keeps the
    /// core alive. Returns the version.
    #[inline]
    pub(super) fn begin_direct(&self, _under_lock: &mut Latest) -> u64 {
        // Relaxed, and loads and stores: as in `begin`.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        self.direct.store(self.direct.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Release: as in `begin`. No model: as there.
        self.recorded.store(version, Ordering::Release);
        version
    }

    /// The address of the core, which identifies the event.
    pub(super) fn address(&self) -> u64 {
        self.0.addr().get() as u64
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        // Relaxed, as in `Arc`: this handle keeps the core alive during the call.
        self.handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Deref for Shared {
    type Target = EventCore;

    #[inline]
    fn deref(&self) -> &EventCore {
        // SAFETY: this handle is alive, and the core is freed only after the last handle's drop
        // (head of this file).
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.life.note_use();
        // AcqRel: the other handles' uses come before the subtraction below by the last one.
        if self.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Relaxed: the handles that began records are ordered before this by the AcqRel above.
        let begun = self.recorded.load(Ordering::Relaxed) - self.direct.load(Ordering::Relaxed);
        // AcqRel: acquires the finished records' uses of the core; releases the handles' uses to
        // the record that frees it.
        if self.finished.records.fetch_sub(begun, Ordering::AcqRel) == begun {
            // SAFETY: no handle and no record is left. No record has freed the core: each saw a
            // count that was not below zero.
            unsafe { free(self.0) };
        }
    }
}

impl Deref for Pending {
    type Target = EventCore;

    #[inline]
    fn deref(&self) -> &EventCore {
        // SAFETY: the core is freed only when every record is finished (head of this file), and
        // this one finishes when it is dropped.
        unsafe { self.core.as_ref() }
    }
}

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        self.life.note_use();
        // AcqRel: releases this record's uses of the core to the thread that frees it, and acquires
        // the others' uses in case this one frees it. The count is below zero only when no handle
        // is left.
        if self.finished.records.fetch_add(1, Ordering::AcqRel) == u64::MAX {
            // SAFETY: no handle and no other record is left, and each of those saw another count,
            // so only this thread frees the core.
            unsafe { free(self.core) };
        }
    }
}

/// # Safety
/// The core came from [`Shared::new`] and is not used again.
#[cold]
unsafe fn free(core: NonNull<EventCore>) {
    // SAFETY: `Shared::new` leaked the core from a box, and the caller does not use it again.
    let core = unsafe { Box::from_raw(core.as_ptr()) };
    core.life.note_end();
    drop(core);
}
