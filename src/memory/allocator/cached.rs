//! Requests that free memory serves at once, for callers that must not wait.

use std::sync::Arc;

use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::native::thread_cache::LastUsed;
use crate::memory::allocator::request::Request;
use crate::memory::allocator::torch::Plan;

impl CachingAllocator {
    /// As [`CachingAllocator::allocate_unless`], from free memory alone. `None`, with nothing
    /// changed, when the request would have to ask the device or wait.
    #[inline(always)]
    pub(crate) fn allocate_cached(
        &self,
        request: Request,
        home: &Arc<StreamCore>,
    ) -> Option<Allocated> {
        if let Some(block) = self.caches.take(LastUsed::get(), &request) {
            return Some(block);
        }
        self.search_shared(&request, home)
    }

    #[cold]
    fn search_shared(&self, request: &Request, home: &Arc<StreamCore>) -> Option<Allocated> {
        if request.bytes == 0 {
            return Some(Allocated::default());
        }
        let is_noted = self.begin_noting();
        let found = self.search_engines(request, home);
        if is_noted {
            LastUsed::forget_under_tag();
        }
        found
    }

    #[inline(always)]
    fn search_engines(&self, request: &Request, home: &Arc<StreamCore>) -> Option<Allocated> {
        // While searches are counted, a request that fails here would count twice.
        let plan = |ledger: &Ledger| (!ledger.is_collecting()).then(|| Plan::of(request, ledger));
        match self.unless_native(request, plan) {
            None => self.take_native_ready(request, home),
            Some(plan) => self.search(&plan??),
        }
    }
}
