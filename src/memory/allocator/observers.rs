//! Who hears of requests that lack memory: observers of their errors, and reclaimers before.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::error::{Error, MemoryError};
use crate::engine::log::immediate::Immediate;
use crate::memory::allocator::caching::CachingAllocator;

impl CachingAllocator {
    /// Calls `observer` with the error of each request that fails for want of memory, on the
    /// requesting thread and without a lock. Returns a number that ends the calls.
    pub fn add_oom_observer(&self, observer: impl Fn(&Error) + Send + Sync + 'static) -> u64 {
        self.shortages.subscribe(observer)
    }

    /// Ends the calls of an observer of this allocator. Does nothing for any other number.
    pub fn remove_oom_observer(&self, id: u64) {
        self.shortages.unsubscribe(id);
    }

    /// Asks `reclaimer` for memory before a request fails, with the error that it would fail with:
    /// on the requesting thread and without a lock. True says that the reclaimer has freed some,
    /// and the request is tried again, behind the streams that still use it; so a reclaimer may
    /// free a little at a time. Reclaimers are asked in their order until one says so. A request
    /// inside of a reclaimer or an observer asks none, and neither does one above the limit.
    /// Returns a number that ends the calls.
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

    /// Asks all reclaimers of a runtime, as one of this allocator.
    pub(crate) fn add_reclaimers(&self, reclaimers: Arc<Immediate<Error, bool>>) {
        self.reclaimers.subscribe(move |error| {
            reclaimers.has_any().then(|| reclaimers.ask(error, |freed| freed))
        });
    }

    /// Ends the calls of a reclaimer of this allocator. Does nothing for any other number.
    pub fn remove_reclaimer(&self, id: u64) {
        self.reclaimers.unsubscribe(id);
    }

    /// Counts a failed request and calls its observers.
    pub(super) fn told(&self, refusal: Error) -> Error {
        self.state.lock().ledger.statistics.num_ooms += 1;
        self.told_of(refusal)
    }

    /// Calls the observers of a rejected request, which counts as rejected only.
    pub(super) fn told_of(&self, error: Error) -> Error {
        if let Error::Memory(MemoryError::OutOfMemory { requested_bytes, free_bytes, .. }) = error {
            self.state.lock().ledger.recorder.note_refused(requested_bytes, free_bytes);
            // Not inside a subscriber: reports could recurse without end.
            if let Some(_telling) = Telling::begin() {
                self.shortages.tell(&error);
            }
        }
        error
    }

    /// Asks reclaimers for memory, which this request lacks. True when one has freed some, `None`
    /// when none was asked.
    pub(super) fn ask_reclaimers(&self, refusal: &Error) -> Option<bool> {
        let Error::Memory(MemoryError::OutOfMemory { requested_bytes, total_bytes, cache, .. }) =
            refusal
        else {
            return None;
        };
        let limit_bytes = cache.as_ref().and_then(|cache| cache.limit_bytes);
        let most_bytes = limit_bytes.unwrap_or(*total_bytes);
        // Not inside a subscriber: what it asks for must not depend on itself.
        if most_bytes > 0 && *requested_bytes > most_bytes {
            return None;
        }
        let (_telling, is_asked) = (Telling::begin()?, Cell::new(false));
        let has_freed = self.reclaimers.ask(refusal, |freed| {
            is_asked.set(is_asked.get() || freed.is_some());
            freed == Some(true)
        });
        is_asked.get().then_some(has_freed)
    }
}

/// This thread tells of a shortage, until the drop.
struct Telling;

thread_local! {
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Telling {
    /// `None` inside a subscriber.
    fn begin() -> Option<Self> {
        // By a closure: a value made in vain would end the outer one by its drop.
        (!IS_TELLING.replace(true)).then(|| Self)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        IS_TELLING.set(false);
    }
}
