//! Reference counts whose last handle can be changed, cached and shared again.
//!
//! `std::sync::Arc` has to exclude its weak handles before it can report a unique handle, and frees
//! the memory with the last handle. A [`Counted`] has no weak handles. Its last handle becomes a
//! [`LastHandle`]. A value that is often dropped and reused therefore usually costs no allocation
//! and no locked instruction.
#![expect(unsafe_code, reason = "handles of a value that is freed with the last one")]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::base::sync::{AtomicUsize, LifetimeTracker, Ordering};

/// One of the handles that share a value.
pub(super) struct Counted<T: OnLastHandle>(NonNull<Inner<T>>);

/// The only handle of a value; gives mutable access.
pub(super) struct LastHandle<T>(NonNull<Inner<T>>);

pub(super) trait OnLastHandle: Sized {
    /// Called by the drop of the last handle; dropping `last` frees the value.
    fn end(last: LastHandle<Self>);
}

struct Inner<T> {
    /// The number of [`Counted`] handles; 1 while a [`LastHandle`] exists.
    handles: AtomicUsize,
    life: LifetimeTracker,
    value: T,
}

// SAFETY: as for `Arc`: handles on several threads share the value (`Sync`), and the handle that
// drops the value may be on any of these threads (`Send`).
unsafe impl<T: OnLastHandle + Send + Sync> Send for Counted<T> {}
// SAFETY: a shared reference can be cloned into a handle, so the bounds are those of `Send`.
unsafe impl<T: OnLastHandle + Send + Sync> Sync for Counted<T> {}
// SAFETY: this handle is the value's only owner, so sending the handle moves the value.
unsafe impl<T: Send> Send for LastHandle<T> {}
// SAFETY: a shared reference to this handle only gives a shared reference to the value.
unsafe impl<T: Sync> Sync for LastHandle<T> {}

impl<T> LastHandle<T> {
    pub(super) fn new(value: T) -> Self {
        let inner = Inner { handles: AtomicUsize::new(1), life: LifetimeTracker::new(), value };
        Self(NonNull::from(Box::leak(Box::new(inner))))
    }
}

impl<T: OnLastHandle> LastHandle<T> {
    #[inline]
    pub(super) fn share(self) -> Counted<T> {
        Counted(ManuallyDrop::new(self).0)
    }
}

impl<T> Deref for LastHandle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the allocation is live: only the drop of this handle frees it.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T> DerefMut for LastHandle<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the allocation is live until this handle drops, and no other handle refers to it.
        unsafe { &mut self.0.as_mut().value }
    }
}

impl<T> Drop for LastHandle<T> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the box, and this handle, the only one, is dropped once.
        let inner = unsafe { Box::from_raw(self.0.as_ptr()) };
        inner.life.note_end();
    }
}

impl<T: OnLastHandle> Counted<T> {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The number of handles at this moment. Other threads may clone and drop theirs.
    pub(super) fn handles(&self) -> usize {
        // Acquire: pairs with the release of each dropped handle, so that the caller sees the
        // accesses of handles that it does not count. No model: models do not count handles.
        self.inner().handles.load(Ordering::Acquire)
    }

    /// The address of the value, which identifies it while a handle exists.
    pub(super) fn address(&self) -> usize {
        self.0.addr().get()
    }

    #[inline]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: the allocation is live: this handle is counted, and only the last one frees it.
        unsafe { self.0.as_ref() }
    }
}

impl<T: OnLastHandle> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: as in `Arc`, `self` keeps the value alive during the increment.
        self.inner().handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T: OnLastHandle> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T: OnLastHandle> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        let inner = self.inner();
        inner.life.note_use();
        // Acquire: pairs with the release of each earlier handle's drop, so their accesses come
        // before `end`. A count of 1 cannot grow: only a handle creates another one, and the only
        // handle is being dropped.
        if inner.handles.load(Ordering::Acquire) != 1 {
            // AcqRel: releases this handle's accesses to the last handle, which acquires them.
            if inner.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            // Relaxed: no other handle is left to read the count.
            inner.handles.store(1, Ordering::Relaxed);
        }
        T::end(LastHandle(self.0));
    }
}
