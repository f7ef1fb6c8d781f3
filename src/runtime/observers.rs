//! Out-of-memory callbacks and reclaimers for the allocators of a runtime's buffers.

use std::sync::Arc;

use crate::base::error::Error;
use crate::engine::log::immediate::Immediate;
use crate::runtime::Runtime;

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
        self.shortages().subscribe(observer)
    }

    /// Removes an observer by the id that [`Runtime::add_oom_observer`] returned. An unknown id has
    /// no effect.
    pub fn remove_oom_observer(&self, id: u64) {
        self.shortages().unsubscribe(id);
    }

    /// Asks `reclaimer` for memory before a request of this runtime's allocators fails, as
    /// [`add_reclaimer`](crate::CachingAllocator::add_reclaimer) of an allocator. Returns the id
    /// for [`Runtime::remove_reclaimer`].
    pub fn add_reclaimer(&self, reclaimer: impl Fn(&Error) -> bool + Send + Sync + 'static) -> u64 {
        self.reclaimers().subscribe(reclaimer)
    }

    /// Removes a reclaimer by the id that [`Runtime::add_reclaimer`] returned. An unknown id has no
    /// effect.
    pub fn remove_reclaimer(&self, id: u64) {
        self.reclaimers().unsubscribe(id);
    }

    fn reclaimers(&self) -> Arc<Immediate<Error, bool>> {
        Arc::clone(&self.inner.allocators.lock().reclaimers)
    }

    fn shortages(&self) -> Arc<Immediate<Error>> {
        Arc::clone(&self.inner.allocators.lock().shortages)
    }
}
