//! What is served at once: requests that free memory serves, for callers that must not wait.

use std::sync::Arc;

use crate::engine::stream::core::StreamCore;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::books::Request;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::native::own::Front;

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
        let books = self.books.lock();
        if books.serves_natively(request.pool) {
            drop(books); // its steps are its own
            return self.take_native_ready(request, home);
        }
        // Searches are counted then, and who fails here searches again.
        let plan = if books.is_collecting() { None } else { books.plan(request) };
        drop(books);
        let id = self.search(&plan?)?;
        Some(Allocated::of(id, &self.books.lock()))
    }
}
