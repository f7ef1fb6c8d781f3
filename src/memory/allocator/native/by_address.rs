//! Pieces of a heap, of which programs keep the address alone, as those of `malloc`.

use crate::base::size::to_usize;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::native::addresses::{Addresses, Owner};
use crate::memory::allocator::native::handle::Handle;
use crate::memory::allocator::native::marks::Mark;
use crate::memory::allocator::request::Request;

impl CachingAllocator {
    /// Memory of at least so many bytes, aligned to 64; `None` when there is not enough.
    #[inline]
    pub(crate) fn give(&self, bytes: usize) -> Option<usize> {
        let block = self.allocate(Request::new(bytes.max(1), 0)).ok()?;
        let address = to_usize(block.address());
        if let Some(Mark::Block(_)) = block.handle().mark() {
            self.addresses().begin(address);
        }
        Some(address)
    }

    /// Gives back what [`Self::give`] returned. Of several frees of one address, one after the
    /// other, the first counts, and of a larger piece also of those at once. A free that comes when
    /// its place is in use again ends that use: an address does not say which is meant. False when
    /// nothing in use begins there, `None` when no memory of this allocator is there.
    #[inline]
    pub(crate) fn free_at(&self, address: usize) -> Option<bool> {
        let Some(owner) = self.addresses().at(address) else {
            return self.has_memory_at(address).then_some(false);
        };
        let Some((piece, bytes)) = owner.piece(address) else { return Some(false) };
        let is_first = match owner {
            Owner::Slab { .. } => true,
            Owner::Large { id, pages } => self.addresses().end(address, id, pages),
            Owner::Spare { .. } => false,
        };
        let Some(mark) = self.caches.live.mark(piece).filter(|_| is_first) else {
            return Some(false);
        };
        let handle = Handle::of_mark(mark, self.caches.live.tag());
        let freed = self.free(Allocated::of_piece(handle, address as u64, bytes, 0, 0));
        Some(freed.is_ok())
    }

    /// How many bytes there are where a piece begins; `None` where none does.
    pub(crate) fn usable_bytes_at(&self, address: usize) -> Option<usize> {
        Some(self.addresses().at(address)?.piece(address)?.1)
    }

    #[cold]
    fn has_memory_at(&self, address: usize) -> bool {
        self.state.lock().native.has_memory_at(address as u64)
    }

    fn addresses(&self) -> &Addresses {
        self.caches.addresses.as_ref().expect("a heap's allocator")
    }
}
