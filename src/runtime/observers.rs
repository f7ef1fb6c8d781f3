//! Out-of-memory callbacks for the allocators of a runtime's buffers.

use std::fmt;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::sync::{LockRank, Mutex};
use crate::memory::allocator::new_observer_id;
use crate::runtime::Runtime;

/// A callback that receives the error of a failed request.
type Observer = dyn Fn(&Error) + Send + Sync;

pub(super) struct Observers(Mutex<Vec<(u64, Arc<Observer>)>>);

impl Observers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(LockRank::Runtime, Vec::new())))
    }

    /// Calls each observer without the lock, so that an observer may add and remove observers.
    pub(super) fn notify(&self, error: &Error) {
        let observers: Vec<_> = self.0.lock().clone();
        for (_, observer) in observers {
            observer(error);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.lock().len())
    }
}

impl Runtime {
    /// Calls `observer` with each out-of-memory error of this runtime's allocators, on the
    /// requesting thread and without a lock. Returns the id for [`Runtime::remove_oom_observer`].
    /// Errors inside an observer, of the host heap and of separate allocators are not reported.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use accelrt::{Config, Device, Runtime};
    ///
    /// let config = Config::builder().cpu_memory_bytes(8 << 20).build()?;
    /// let runtime = Runtime::new(config)?;
    /// let told = Arc::new(AtomicUsize::new(0));
    /// let counter = Arc::clone(&told);
    /// let id = runtime.add_oom_observer(move |_| _ = counter.fetch_add(1, Ordering::Relaxed));
    /// assert!(runtime.empty(1 << 30, Device::cpu(0)).is_err());
    /// runtime.remove_oom_observer(id);
    /// assert!(runtime.empty(1 << 30, Device::cpu(0)).is_err());
    /// assert_eq!(told.load(Ordering::Relaxed), 1);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn add_oom_observer(&self, observer: impl Fn(&Error) + Send + Sync + 'static) -> u64 {
        let observers = Arc::clone(&self.inner.allocators.lock().observers);
        let id = new_observer_id();
        observers.0.lock().push((id, Arc::new(observer)));
        id
    }

    /// Removes an observer by the id that [`Runtime::add_oom_observer`] returned. An unknown id has
    /// no effect.
    pub fn remove_oom_observer(&self, id: u64) {
        let observers = Arc::clone(&self.inner.allocators.lock().observers);
        let is_meant = |(known, _): &mut (u64, _)| *known == id;
        let removed: Vec<_> = observers.0.lock().extract_if(.., is_meant).collect();
        drop(removed); // after the lock: the drops run user code
    }
}
