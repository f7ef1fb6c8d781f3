//! Pieces of the host heap by their addresses alone, as for `malloc`.

use crate::base::size::to_usize;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::caching::CachingAllocator;
use crate::memory::allocator::native::addresses::{Addresses, Owner};
use crate::memory::allocator::native::handle::Handle;
use crate::memory::allocator::native::marks::Mark;
use crate::memory::allocator::request::Request;

impl CachingAllocator {
    /// Allocates at least `bytes` bytes, aligned to 64. `None` when memory is short.
    #[inline]
    pub fn give(&self, bytes: usize) -> Option<usize> {
        let block = self.allocate(Request::new(bytes.max(1), 0)).ok()?;
        let address = to_usize(block.address());
        if let Some(Mark::Block(_)) = block.handle().mark() {
            self.addresses().begin(address);
        }
        Some(address)
    }

    /// Frees a piece from [`Self::give`]. A repeated free has no effect, nor has a concurrent one
    /// of a larger piece; after the memory was handed out again it ends the new use. False when no
    /// piece in use begins at the address, `None` when this allocator has no memory there.
    #[inline]
    pub fn free_at(&self, address: usize) -> Option<bool> {
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

    /// Returns the size of the piece that begins at an address; `None` when none does.
    pub fn usable_bytes_at(&self, address: usize) -> Option<usize> {
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
