//! Detects a fork of a process that had initialised the runtime.
//!
//! Threads do not survive a fork. In the child, calls that need threads fail, queries succeed, and
//! drops of inherited objects have no effect. Source: `pthread_atfork(3)`.
#![expect(unsafe_code, reason = "registers a handler with the C library")]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Once, OnceLock};

use crate::base::error::{Error, Result, RuntimeError};
use crate::base::sync::unmodelled::IS_FORKED_CHILD;
use crate::base::sync::{Ordering, is_forked_child};

/// Called in a child as well, on the thread that forked: only stores.
pub(crate) static ON_CHILD: OnceLock<fn()> = OnceLock::new();

/// Registers the fork handler once. Called before the runtime starts its first thread.
///
/// # Panics
/// When the system has no memory for it.
pub fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // SAFETY: the handler is a function of this library that only stores a flag and clears a
        // word of its thread, which is allowed between fork and exec. When this library is closed,
        // the C library removes its handlers.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(refused, 0, "pthread_atfork fails only without memory");
    });
}

extern "C" fn in_child() {
    // Relaxed: the child has one thread, and threads that it starts see the store.
    IS_FORKED_CHILD.store(true, Ordering::Relaxed);
    ON_CHILD.get().copied().unwrap_or(|| ())();
}

/// True in a child whose parent had initialised the runtime.
#[inline]
#[must_use]
pub fn is_child() -> bool {
    is_forked_child()
}

/// Fails with [`RuntimeError::BadFork`] in a forked child.
#[inline]
pub fn check() -> Result<()> {
    if is_child() { Err(Error::Runtime(RuntimeError::BadFork)) } else { Ok(()) }
}

/// A value whose drop has no effect in a forked child, which does not have the parent's threads.
#[derive(Debug)]
pub struct Inherited<T>(ManuallyDrop<T>);

impl<T> Inherited<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: Clone> Clone for Inherited<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Inherited<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Inherited<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Inherited<T> {
    fn drop(&mut self) {
        if !is_child() {
            // SAFETY: the value is not used again: this is its owner's drop.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
