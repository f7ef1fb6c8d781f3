//! Observers: functions that are told of requests that fail for want of memory.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering, assert_no_lock_held};

/// Called with what failed, before the request does.
type Observer = dyn Fn(&Error) + Send + Sync;

/// A number for an observer that no other one in this process has: given to an allocator or a
/// runtime that did not hand it out, it means none.
pub(crate) fn new_observer_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    NEXT_ID.fetch_add(1, Ordering::Relaxed) // only uniqueness matters
}

/// Those of one allocator.
pub(super) struct Observers {
    pub(super) list: Mutex<Vec<(u64, Arc<Observer>)>>,
}

impl Observers {
    pub(super) fn new() -> Self {
        Self { list: Mutex::new(LockRank::Allocator, Vec::new()) }
    }

    /// Calls each, without a lock. Of requests that fail inside of an observer none is told: it
    /// would be told of its own for as long as there is a stack.
    pub(super) fn tell(&self, error: &Error) {
        let Some(_telling) = Telling::begin() else { return };
        let observers = self.list.lock().clone();
        assert_no_lock_held();
        for (_, observer) in observers {
            observer(error);
        }
    }
}

/// Stands for this thread's being inside of observers, until it is dropped.
struct Telling;

thread_local! {
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Telling {
    /// `None` inside of another one.
    fn begin() -> Option<Self> {
        (!IS_TELLING.replace(true)).then_some(Self)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        IS_TELLING.set(false);
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.list.lock().len())
    }
}
