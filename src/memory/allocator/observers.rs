//! Observers: functions that are called with the errors of requests that run out of memory.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::sync::unmodelled::AtomicU64;
use crate::base::sync::{LockRank, Mutex, Ordering, assert_no_lock_held};

type Observer = dyn Fn(&Error) + Send + Sync;

/// The observers of an allocator or of a runtime, with their ids.
pub(crate) struct Observers(Mutex<Vec<(u64, Arc<Observer>)>>);

impl Observers {
    pub(crate) fn new(rank: LockRank) -> Self {
        Self(Mutex::new(rank, Vec::new()))
    }

    /// Returns an id that no other observer of this process has.
    pub(crate) fn add(&self, observer: impl Fn(&Error) + Send + Sync + 'static) -> u64 {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed); // only uniqueness matters
        self.0.lock().push((id, Arc::new(observer)));
        id
    }

    /// Removes the observer with an id. Other ids have no effect.
    pub(crate) fn remove(&self, id: u64) {
        let removed: Vec<_> = self.0.lock().extract_if(.., |(known, _)| *known == id).collect();
        drop(removed); // after the lock: the drops run user code
    }

    /// Calls each observer without the lock, so that an observer may add and remove observers.
    pub(crate) fn notify(&self, error: &Error) {
        let observers = self.0.lock().clone();
        assert_no_lock_held();
        for (_, observer) in observers {
            observer(error);
        }
    }

    /// As [`Self::notify`], except for a request that fails inside an observer: its report could
    /// recurse without end.
    pub(super) fn tell(&self, error: &Error) {
        if let Some(_telling) = Telling::begin() {
            self.notify(error);
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
        write!(f, "{} observers", self.0.lock().len())
    }
}
