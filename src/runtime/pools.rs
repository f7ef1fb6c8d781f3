//! Private pools: device memory for the requests of threads inside the pool.
//!
//! With `PoolOptions::use_on_oom`, a pool also serves other requests when memory is short.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::device::Device;
use crate::base::error::Result;
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;
use crate::memory::allocator::recording::Moment;
use crate::memory::allocator::snapshot::SegmentInfo;
use crate::memory::allocator::{PoolId, PoolOptions};
use crate::runtime::Runtime;
use crate::runtime::current::{self, PoolCore, Selected};

/// A private pool of one device. Handles are cheap to clone. The drop of the last handle returns
/// the pool's free memory to the device. Memory in use returns after its free, when a program
/// creates another pool (not under policy `torch`) or empties the cache.
///
/// ```
/// use accelrt::{Config, Device, MemPool, PoolOptions, Runtime};
/// let runtime = Runtime::new(Config::default())?;
/// let pool = MemPool::new(&runtime, Device::cpu(0), PoolOptions::default())?;
/// let buffer = {
///     let _inside = pool.enter(); // this thread alone
///     runtime.empty(1000, Device::cpu(0))?
/// };
/// assert_eq!(pool.segments().len(), 1);
/// assert_eq!(pool.segments()[0].requested_bytes, 1000);
/// # drop(buffer);
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemPool {
    inner: Arc<PoolCore>,
}

impl MemPool {
    /// Creates an empty pool of a device. Fails as [`Runtime::allocator`].
    pub fn new(runtime: &Runtime, device: Device, options: PoolOptions) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let allocator = runtime.allocator(device)?;
        // Relaxed: only uniqueness matters.
        let id = PoolId(0, NEXT.fetch_add(1, Ordering::Relaxed));
        allocator.trim_left_pools(); // so that memory of dropped pools does not accumulate
        allocator.retain_pool(id, options);
        let runtime = runtime.id();
        Ok(Self { inner: Arc::new(PoolCore { runtime, allocator, id }) })
    }

    /// The id that the pool's segments have in snapshots.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.inner.id
    }

    /// The device whose requests the pool serves.
    #[must_use]
    pub fn device(&self) -> Device {
        self.inner.allocator.device()
    }

    /// The pool's segments. Empty in a forked child, because the parent owns the segments.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.moment().segments
    }

    /// The pool's segments, and the known blocks of the device at the same moment.
    #[doc(hidden)]
    #[must_use]
    pub fn moment(&self) -> Moment {
        let mut moment = self.inner.allocator.moment(None, || ());
        moment.segments.retain(|segment| segment.pool == self.inner.id);
        moment
    }

    /// Makes the pool serve this thread's requests of memory on its device, except shared and
    /// pinned memory, until the guard is dropped. Of several entered pools of a device, the one
    /// that was entered last serves.
    pub fn enter(&self) -> PoolGuard {
        self.push();
        PoolGuard { pool: self.clone(), this_thread: PhantomData }
    }

    #[doc(hidden)]
    pub fn push(&self) {
        let PoolCore { runtime, allocator, .. } = &*self.inner;
        current::push_pool(*runtime, allocator.device(), Arc::clone(&self.inner));
    }

    #[doc(hidden)]
    pub fn add_to(&self, selected: &mut Selected) {
        selected.push_pool(self.device(), Arc::clone(&self.inner));
    }

    #[doc(hidden)]
    #[expect(clippy::must_use_candidate, reason = "callers may ignore what was there before")]
    pub fn pop(&self) -> bool {
        let PoolCore { runtime, allocator, id } = &*self.inner;
        current::pop_pool(*runtime, allocator.device(), *id).is_some()
    }
}

/// Keeps its thread inside a [`MemPool`] until the guard is dropped.
#[derive(Debug)]
#[must_use = "requests are served from elsewhere again when the guard is dropped"]
pub struct PoolGuard {
    pool: MemPool,
    this_thread: PhantomData<*const ()>,
}

impl Drop for PoolGuard {
    fn drop(&mut self) {
        self.pool.pop();
    }
}

impl Runtime {
    /// The id of the pool that this thread entered last on a device, else [`PoolId::DEFAULT`]. It
    /// serves the thread's requests, except those for shared and pinned memory.
    #[must_use]
    pub fn current_pool(&self, device: Device) -> PoolId {
        current::pool(self.id(), device)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::config::Config;

    #[test]
    fn a_pool_entered_twice_is_left_innermost_first() {
        let runtime = Runtime::new(Config::default()).unwrap();
        let device = Device::cpu(0);
        let pool = || MemPool::new(&runtime, device, PoolOptions::default()).unwrap();
        let (outer, inner) = (pool(), pool());
        let entered = [outer.enter(), inner.enter(), outer.enter()];
        let left = entered.into_iter().rev().map(|guard| {
            let current = runtime.current_pool(device);
            drop(guard);
            current
        });
        assert_eq!(left.collect::<Vec<_>>(), [outer.id(), inner.id(), outer.id()]);
        assert_eq!(runtime.current_pool(device), PoolId::DEFAULT);
    }

    #[test]
    fn a_thread_that_ends_inside_a_pool_frees_its_memory() {
        // Goal: the end of a thread returns the memory of a pool that the thread never left.
        // Method: each thread allocates half of a device's memory in such a pool, and drops the
        // pool's last handle before the thread ends.
        for settings in ["policy:native", "policy:torch"] {
            let config = Config {
                cpu_memory_bytes: Some(64 << 20),
                allocator: settings.parse().unwrap(),
                ..Config::default()
            };
            let (runtime, device) = (Runtime::new(config).unwrap(), Device::cpu(0));
            for number in 0..5 {
                let runtime = runtime.clone();
                let inside = std::thread::spawn(move || {
                    let pool = MemPool::new(&runtime, device, PoolOptions::default()).unwrap();
                    pool.push();
                    drop(pool);
                    drop(runtime.empty(32 << 20, device).unwrap());
                });
                assert!(inside.join().is_ok(), "{settings}, thread {number}");
            }
            assert!(runtime.empty(60 << 20, device).is_ok(), "{settings}");
        }
    }
}
