//! A lock for a few words, held for nanoseconds: one exchange to take it, one store to give it.
//!
//! A parking mutex needs a second exchange to give back, which is a quarter of an event record.
//! Nothing is called while it is held but pushes to a queue and clones; a holder that lost its
//! processor is waited for by yielding.
#![expect(unsafe_code, reason = "the flag is the lock of the value")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::base::sync::{AtomicBool, Ordering, UnsafeCell, spin_hint, yield_now};

/// Turns before a waiting thread gives its processor away.
const SPINS: u32 = 64;

/// A value that one thread at a time uses.
pub(crate) struct SpinMutex<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the flag lets one thread at a time to the value.
unsafe impl<T: Send> Sync for SpinMutex<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: Send> Send for SpinMutex<T> {}

impl<T> SpinMutex<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[cfg(loom)] // whose types register themselves
    pub(crate) fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// `None` when a thread has it, which in a forked child may be one that is not there.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: pairs with the release in the guard's drop. Relaxed on failure: nothing is read.
        let taking =
            self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taking.is_ok().then(|| SpinGuard(self))
    }

    /// The value, without the lock: nobody else has it.
    #[inline]
    pub(crate) fn with_mut<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: borrowed exclusively, so there is no guard.
        self.value.with_mut(|value| change(unsafe { &mut *value }))
    }

    #[cold]
    fn wait(&self) -> SpinGuard<'_, T> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            if spins < SPINS {
                spin_hint();
            } else {
                yield_now();
            }
            spins += 1;
        }
    }
}

/// The right to use the value, until dropped.
pub(crate) struct SpinGuard<'a, T>(&'a SpinMutex<T>);

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while its thread has the flag, which one thread has.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `lock`.
        self.0.is_taken.store(false, Ordering::Release);
    }
}

impl<T> fmt::Debug for SpinMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpinMutex")
    }
}
