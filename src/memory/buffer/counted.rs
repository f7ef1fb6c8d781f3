//! Counted handles without weak ones: a load identifies the last one, and its value may be reused.
//!
//! `std::sync::Arc` has to exclude its weak handles before it can say that a handle is the only
//! one, and frees its memory with the last. Here the last handle becomes a [`LastHandle`], which
//! may be changed, cached, and shared again: a value that is dropped and reused often costs no
//! allocation and no locked instruction.
#![expect(unsafe_code, reason = "a value is reached by raw pointers whose count is kept here")]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::base::sync::{AtomicUsize, Life, Ordering};

/// A value with several owners.
pub(super) struct Counted<T: OnLastHandle>(NonNull<Place<T>>);

/// A value with one owner.
pub(super) struct LastHandle<T>(NonNull<Place<T>>);

/// A value that has something to do when its last handle is dropped.
pub(super) trait OnLastHandle: Sized {
    /// Called with the value of the last handle; frees it unless the callee keeps it.
    fn end(last: LastHandle<Self>);
}

struct Place<T> {
    /// How many [`Counted`] there are; 1 while there is an [`LastHandle`].
    handles: AtomicUsize,
    life: Life,
    value: T,
}

// SAFETY: shared as by `Arc`: all handles use the value, and one of them frees it once.
unsafe impl<T: OnLastHandle + Send + Sync> Send for Counted<T> {}
// SAFETY: as above.
unsafe impl<T: OnLastHandle + Send + Sync> Sync for Counted<T> {}
// SAFETY: owning it is owning the value.
unsafe impl<T: Send> Send for LastHandle<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LastHandle<T> {}

impl<T> LastHandle<T> {
    pub(super) fn new(value: T) -> Self {
        let place = Place { handles: AtomicUsize::new(1), life: Life::new(), value };
        Self(NonNull::from(Box::leak(Box::new(place))))
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
        // SAFETY: the place is freed by the drop of this owner only.
        unsafe { &self.0.as_ref().value }
    }
}

impl<T> DerefMut for LastHandle<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and there is no other owner.
        unsafe { &mut self.0.as_mut().value }
    }
}

impl<T> Drop for LastHandle<T> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak`, and freed once: this owner is the only one.
        let place = unsafe { Box::from_raw(self.0.as_ptr()) };
        place.life.note_end();
    }
}

impl<T: OnLastHandle> Counted<T> {
    /// True for handles of one value.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    #[inline]
    fn place(&self) -> &Place<T> {
        // SAFETY: the place is freed only when the last handle is gone.
        unsafe { self.0.as_ref() }
    }
}

impl<T: OnLastHandle> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: as `Arc`: this handle keeps the value alive meanwhile.
        self.place().handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T: OnLastHandle> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.place().value
    }
}

impl<T: OnLastHandle> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        let place = self.place();
        place.life.note_use();
        // Acquire: what other handles did comes before their end. The only handle stays the only
        // one: only a handle makes another one, and this is being dropped.
        if place.handles.load(Ordering::Acquire) != 1 {
            // AcqRel: releases this handle's accesses to the last handle, which acquires them.
            if place.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            // Relaxed: no other handle is left to see it.
            place.handles.store(1, Ordering::Relaxed);
        }
        T::end(LastHandle(self.0));
    }
}
