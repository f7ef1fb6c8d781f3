//! Functions that a program registers for requests that lack memory: observers and reclaimers.
//!
//! Before such a request fails, reclaimers can free memory. After it has failed, observers are
//! called with its error.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::error::{Error, MemoryError};
use crate::engine::log::immediate::Immediate;
use crate::memory::allocator::caching::CachingAllocator;

impl CachingAllocator {
    /// Calls `observer` with the error of each request that fails for lack of memory, on the
    /// requesting thread and without a lock. Returns an id for
    /// [`CachingAllocator::remove_oom_observer`].
    pub fn add_oom_observer(&self, observer: impl Fn(&Error) + Send + Sync + 'static) -> u64 {
        self.shortages.subscribe(observer)
    }

    /// Removes an observer of this allocator by its id. An unknown id has no effect.
    pub fn remove_oom_observer(&self, id: u64) {
        self.shortages.unsubscribe(id);
    }

    /// Registers a function that frees memory when a request is about to fail. The allocator calls
    /// `reclaimer` with the error of the request, on the requesting thread and without a lock.
    /// Returns an id for [`CachingAllocator::remove_reclaimer`].
    ///
    /// A reclaimer returns true when it has freed memory. The allocator then tries the request
    /// again, and waits for streams that still use the freed memory if it must. If the request
    /// still lacks memory, the reclaimers are called again, so each call may free a little. The
    /// allocator calls reclaimers in the order of their registration, until one returns true. It
    /// calls none for a request above its limit, or for one made inside a reclaimer or an observer.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// # let config = accelrt::Config::builder().cpu_memory_bytes(64 << 20).build()?;
    /// # let runtime = accelrt::Runtime::new(config)?;
    /// # let device = accelrt::Device::cpu(0);
    /// let cached = Arc::new(Mutex::new(vec![runtime.empty(48 << 20, device)?]));
    /// let allocator = runtime.allocator(device)?;
    /// let gives = Arc::clone(&cached);
    /// let id = allocator.add_reclaimer(move |_| gives.lock().unwrap().pop().is_some());
    /// assert!(runtime.empty(48 << 20, device).is_ok());
    /// assert!(cached.lock().unwrap().is_empty());
    /// allocator.remove_reclaimer(id);
    /// # Ok::<(), accelrt::Error>(())
    /// ```
    pub fn add_reclaimer(&self, reclaimer: impl Fn(&Error) -> bool + Send + Sync + 'static) -> u64 {
        self.reclaimers.subscribe(move |error| Some(reclaimer(error)))
    }

    /// Registers all reclaimers of a runtime as one reclaimer of this allocator.
    pub(crate) fn add_reclaimers(&self, reclaimers: Arc<Immediate<Error, bool>>) {
        self.reclaimers.subscribe(move |error| {
            reclaimers.has_any().then(|| reclaimers.ask(error, |freed| freed))
        });
    }

    /// Removes a reclaimer of this allocator by its id. An unknown id has no effect.
    pub fn remove_reclaimer(&self, id: u64) {
        self.reclaimers.unsubscribe(id);
    }

    /// Counts a request that failed for lack of memory, and calls the observers with its error.
    pub(super) fn count_and_report_oom(&self, refusal: Error) -> Error {
        self.state.lock().ledger.statistics.num_ooms += 1;
        self.report_oom(refusal)
    }

    /// Calls the observers with an out-of-memory error, and ignores other errors. Does not count
    /// the request: one that the settings reject is already counted in `num_oom_rejections`.
    pub(super) fn report_oom(&self, error: Error) -> Error {
        if let Error::Memory(MemoryError::OutOfMemory { requested_bytes, free_bytes, .. }) = error {
            self.state.lock().ledger.recorder.note_refused(requested_bytes, free_bytes);
            // Not inside an observer or reclaimer, because reports could recurse without end.
            if let Some(_guard) = ReentrancyGuard::enter() {
                self.shortages.tell(&error);
            }
        }
        error
    }

    /// Calls the reclaimers for a request that lacks memory. True when one of them has freed
    /// memory, `None` when none was called.
    pub(super) fn ask_reclaimers(&self, refusal: &Error) -> Option<bool> {
        let Error::Memory(MemoryError::OutOfMemory { requested_bytes, total_bytes, cache, .. }) =
            refusal
        else {
            return None;
        };
        let limit_bytes = cache.as_ref().and_then(|cache| cache.limit_bytes);
        let most_bytes = limit_bytes.unwrap_or(*total_bytes);
        if most_bytes > 0 && *requested_bytes > most_bytes {
            return None; // no amount of freed memory would be enough
        }
        // Not inside an observer or reclaimer, whose own requests must not call them again.
        let (_guard, is_asked) = (ReentrancyGuard::enter()?, Cell::new(false));
        let has_freed = self.reclaimers.ask(refusal, |freed| {
            is_asked.set(is_asked.get() || freed.is_some());
            freed == Some(true)
        });
        is_asked.get().then_some(has_freed)
    }
}

/// While it exists, this thread is inside an observer or a reclaimer.
struct ReentrancyGuard;

thread_local! {
    static IS_ENTERED: Cell<bool> = const { Cell::new(false) };
}

impl ReentrancyGuard {
    /// `None` inside an observer or a reclaimer.
    fn enter() -> Option<Self> {
        // In a closure, because the drop of an unused guard would end the outer one.
        (!IS_ENTERED.replace(true)).then(|| Self)
    }
}

impl Drop for ReentrancyGuard {
    fn drop(&mut self) {
        IS_ENTERED.set(false);
    }
}
