//! What is served at once: requests that free memory serves, for callers that must not wait.

use crate::allocator::books::Request;
use crate::allocator::caching::{Allocated, CachingAllocator};

impl CachingAllocator {
    /// As [`CachingAllocator::allocate`] where free memory serves the request. `None` when it does
    /// not, and nothing has changed then: the device would have to be asked, or waited for.
    pub(crate) fn allocate_cached(&self, request: Request) -> Option<Allocated> {
        if request.bytes == 0 {
            return Some(Allocated::default());
        }
        let books = self.books.lock();
        // Searches are counted then, and who fails here searches again.
        let plan = if books.is_collecting() { None } else { books.plan(&request) };
        drop(books);
        let id = self.search(&plan?)?;
        Some(Allocated::of(id, &self.books.lock()))
    }
}
