//! A spin lock for small values: one exchange takes the lock, and one store releases it.
//!
//! A parking mutex needs a second exchange to unlock, which costs a quarter of an event record.
//! Threads hold the lock for short steps: they push to queues, search small maps and clone values.
#![expect(unsafe_code, reason = "the flag is the lock of the value")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::base::sync::{AtomicBool, Ordering, UnsafeCell, spin_hint, yield_now};

/// Attempts before a waiting thread yields its processor.
const SPINS: u32 = 64;

/// A value behind a spin lock. The lock has no rank and no poisoning, and is not fair.
pub struct SpinMutex<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the flag gives one thread at a time access to the value.
unsafe impl<T: Send> Sync for SpinMutex<T> {}
// SAFETY: the owner of the lock owns the value, which is `Send`.
unsafe impl<T: Send> Send for SpinMutex<T> {}

impl<T> SpinMutex<T> {
    /// Creates an unlocked lock.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[cfg(loom)] // loom's constructors are not `const`
    pub(crate) fn new(value: T) -> Self {
        Self { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Locks; spins, and later yields, while another thread holds the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// `None` when the lock is held. In a forked child, a thread that the child lacks may hold it.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: pairs with the release in the guard's drop. Relaxed on failure: no value is
        // read.
        let taking =
            self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taking.is_ok().then(|| SpinGuard(self))
    }

    /// Calls `change` without locking: the exclusive borrow rules out other users of the value.
    #[inline]
    pub(crate) fn with_mut<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the lock is borrowed exclusively, so no guard exists.
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

/// Access to the value of a [`SpinMutex`]. Its drop releases the lock.
pub struct SpinGuard<'a, T>(&'a SpinMutex<T>);

impl<T> fmt::Debug for SpinGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinGuard").finish_non_exhaustive()
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the flag, which one thread holds at a time.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's thread holds the flag, and the guard is borrowed exclusively.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_lock`.
        self.0.is_taken.store(false, Ordering::Release);
    }
}

impl<T> fmt::Debug for SpinMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpinMutex")
    }
}
