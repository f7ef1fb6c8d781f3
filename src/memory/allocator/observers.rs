//! Observers: functions that are told of requests that fail for want of memory.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering, assert_no_lock_held};

/// Called with the error before the request fails.
type Observer = dyn Fn(&Error) + Send + Sync;

/// Creates a number that no other observer of this process has. An allocator or runtime that did
/// not issue it ignores it.
pub(crate) fn new_observer_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    NEXT_ID.fetch_add(1, Ordering::Relaxed) // only uniqueness matters
}

/// The observers of one allocator.
pub(super) struct Observers {
    pub(super) list: Mutex<Vec<(u64, Arc<Observer>)>>,
}

impl Observers {
    pub(super) fn new() -> Self {
        Self { list: Mutex::new(LockRank::Allocator, Vec::new()) }
    }

    /// Calls each observer, without a lock. A request that fails inside an observer is not
    /// reported, because its report could recurse without end.
    pub(super) fn tell(&self, error: &Error) {
        let Some(_telling) = Telling::begin() else { return };
        let observers = self.list.lock().clone();
        assert_no_lock_held();
        for (_, observer) in observers {
            observer(error);
        }
    }
}

/// This thread executes observers, until the drop.
struct Telling;

thread_local! {
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Telling {
    /// `None` inside another observer.
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
