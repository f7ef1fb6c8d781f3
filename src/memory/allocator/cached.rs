//! What is served at once: requests that free memory serves, for callers that must not wait.

use std::sync::Arc;

use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::native::own::Front;
use crate::memory::allocator::request::Request;
use crate::memory::allocator::torch::Plan;

impl CachingAllocator {
    /// As [`CachingAllocator::allocate_unless`] where free memory serves the request. `None` when
    /// it does not, and nothing has changed then: the device would have to be asked, or waited
    /// for.
    #[inline(always)]
    pub(crate) fn allocate_cached(
        &self,
        request: Request,
        home: &Arc<StreamCore>,
    ) -> Option<Allocated> {
        if let Some(block) = self.caches.take(Front::get(), &request) {
            return Some(block);
        }
        self.search_shared(&request, home)
    }

    #[cold]
    fn search_shared(&self, request: &Request, home: &Arc<StreamCore>) -> Option<Allocated> {
        if request.bytes == 0 {
            return Some(Allocated::default());
        }
        if self.is_native_for_sure(request) {
            return self.take_native_ready(request, home);
        }
        let plan = {
            let ledger = &self.state.lock().ledger;
            // Searches are counted then, and a request that fails here searches again.
            let is_counted = ledger.is_collecting();
            let is_native = ledger.serves_natively(request.pool);
            (!is_native).then(|| if is_counted { None } else { Plan::of(request, ledger) })
        };
        let Some(plan) = plan else {
            return self.take_native_ready(request, home); // its steps are its own
        };
        self.search(&plan?)
    }
}
