//! The lifetime of an event's core: handles and queued records are counted on separate cache lines.
//!
//! With one count, its cache line would move between processors at every record: the recording
//! thread increments the count, and the consumer decrements it. So there are two counts: `recorded`
//! (records begun) and `finished.records` (records passed or dropped). The drop of the last handle
//! subtracts `recorded`, now final, from `finished.records`. The thread that then brings
//! `finished.records` to zero frees the core; no other thread touches the core again. A record that
//! bypasses the queue ends before its handle. `direct` counts these records, and the last handle
//! subtracts `direct` from `recorded` first.
#![expect(unsafe_code, reason = "a core is reached by raw pointers whose counts are kept here")]

use std::ops::Deref;
use std::ptr::NonNull;

use crate::base::sync::Ordering;
use crate::engine::event::core::{EventCore, Latest};

/// A counted reference to a core, held by each [`Event`](super::Event) handle.
pub(super) struct Shared(NonNull<EventCore>);

/// A queued record, with its reference to the core. The drop counts the record as ended.
pub(super) struct PendingRecord {
    core: NonNull<EventCore>,
    pub(super) version: u64,
}

// SAFETY: `EventCore` is `Send` and `Sync` (asserted below), and its counts free it once.
unsafe impl Send for Shared {}
// SAFETY: `EventCore` is `Send` and `Sync` (asserted below), and its counts free it once.
unsafe impl Sync for Shared {}
// SAFETY: `EventCore` is `Send` and `Sync` (asserted below), and its counts free it once.
unsafe impl Send for PendingRecord {}

#[cfg(not(loom))] // in models `life` contains a cell, which is not `Sync`
const _: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<EventCore>();
};

impl Shared {
    pub(super) fn new(core: EventCore) -> Self {
        Self(NonNull::from(Box::leak(Box::new(core))))
    }

    /// Begins the next version. The caller takes the ticket under the same lock, so versions and
    /// tickets of one stream grow together.
    #[inline]
    pub(super) fn begin(&self, _under_lock: &mut Latest) -> PendingRecord {
        // Relaxed, and no atomic add: `recorded` changes only under the lock.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        // Release: a thread that sees the version also sees the event's device; pairs with
        // `Event::version`. No model: loom does not see the standard library's cell of the device.
        self.recorded.store(version, Ordering::Release);
        PendingRecord { core: self.0, version }
    }

    /// As [`Shared::begin`], for a record that ends before the caller's handle, which keeps the
    /// core alive. Returns the version.
    #[inline]
    pub(super) fn begin_direct(&self, _under_lock: &mut Latest) -> u64 {
        // Relaxed, and no atomic adds: both counts change only under the lock.
        let version = self.recorded.load(Ordering::Relaxed) + 1;
        self.direct.store(self.direct.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Release: pairs with `Event::version`. No model: for the reason given in `begin`.
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
        // AcqRel: pairs with the drops of the other handles, whose uses come before the last drop.
        if self.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Relaxed: the handles that began records are ordered before this by the AcqRel above.
        let begun = self.recorded.load(Ordering::Relaxed) - self.direct.load(Ordering::Relaxed);
        // AcqRel: acquires the finished records' uses of the core; releases the handles' uses to
        // the record that frees the core.
        if self.finished.records.fetch_sub(begun, Ordering::AcqRel) == begun {
            // SAFETY: the count is zero, so no handle and no record is left. This subtraction made
            // the count zero, so no record's drop frees the core.
            unsafe { free(self.0) };
        }
    }
}

impl Deref for PendingRecord {
    type Target = EventCore;

    #[inline]
    fn deref(&self) -> &EventCore {
        // SAFETY: the core is freed only after every record has finished (head of this file). This
        // record finishes in its drop.
        unsafe { self.core.as_ref() }
    }
}

impl Drop for PendingRecord {
    #[inline]
    fn drop(&mut self) {
        self.life.note_use();
        // AcqRel: releases this record's uses of the core to the thread that frees it, and acquires
        // the other uses in case this thread frees the core. The count is below zero only after the
        // last handle's drop.
        if self.finished.records.fetch_add(1, Ordering::AcqRel) == u64::MAX {
            // SAFETY: this addition made the count zero, so no handle and no other record is left,
            // and no other thread frees the core.
            unsafe { free(self.core) };
        }
    }
}

/// # Safety
/// `core` must come from [`Shared::new`] and must not be used again.
#[cold]
unsafe fn free(core: NonNull<EventCore>) {
    // SAFETY: `Shared::new` leaked the core from a box, and the caller does not use it again.
    let core = unsafe { Box::from_raw(core.as_ptr()) };
    core.life.note_end();
    drop(core);
}
