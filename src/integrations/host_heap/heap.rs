//! A heap over the host cache: memory for programs that call `malloc`, from any thread.
//!
//! Small objects share slabs of one size class, and threads keep some of what they free (`kept`).
//! Larger ones are blocks of the host cache, of which threads keep a few as well. Which of the two
//! an address is, and whether it is of this heap at all, its page says (`owners`).

use std::sync::Arc;

use crate::base::size::to_usize;
use crate::base::spin::SpinMutex;
use crate::base::sync::{LockRank, Mutex};
use crate::integrations::host_heap::boundary::{self, leak};
use crate::integrations::host_heap::kept::{Spare, ThreadCache, ThreadCaches};
use crate::integrations::host_heap::owners::{Owner, Owners};
use crate::integrations::host_heap::size_class::{
    CLASS_COUNT, MOST_SMALL_BYTES, PAGE_BYTES, class_of, most_kept, object_bytes, slab_bytes,
};
use crate::integrations::host_heap::stock::{Batch, Stock};
use crate::integrations::host_heap::tally::{Out, Tally};
use crate::memory::allocator::{Allocated, CachingAllocator, HostStatistics, Request};

/// See the head of this file. Addresses are numbers here: the memory is its user's.
pub(super) struct Heap {
    allocator: Arc<CachingAllocator>,
    owners: Owners,
    stocks: [Mutex<Stock>; CLASS_COUNT],
    pub(super) caches: ThreadCaches,
    /// What threads without a cache count: those that end.
    tally: SpinMutex<Tally>,
    out: Out,
}

impl Heap {
    /// A heap whose memory is an allocator's of the host; nothing else asks that one.
    pub(super) fn new(allocator: Arc<CachingAllocator>) -> Self {
        Self {
            allocator,
            owners: Owners::new(),
            stocks: std::array::from_fn(|class| Mutex::new(LockRank::HostHeap, Stock::new(class))),
            caches: ThreadCaches::new(),
            tally: SpinMutex::new(Tally::default()),
            out: Out::default(),
        }
    }

    pub(super) fn allocator(&self) -> &Arc<CachingAllocator> {
        &self.allocator
    }

    /// Memory of at least so many bytes, aligned to 64; `None` when there is not enough.
    #[inline]
    pub(super) fn allocate(&self, cache: Option<&ThreadCache>, bytes: usize) -> Option<usize> {
        if bytes > MOST_SMALL_BYTES {
            return self.allocate_large(cache, bytes);
        }
        let class = class_of(bytes);
        if let Some(ThreadCache(kept)) = cache {
            let mut kept = kept.lock();
            if let Some(address) = kept.pop(class) {
                kept.tally.give(object_bytes(class));
                return Some(address);
            }
        }
        self.refill(cache, class)
    }

    /// Gives memory back; false when it is not of this heap. Of two frees of one large block, one
    /// after the other or at once, the first counts. Of small objects nothing tells that, nor
    /// anything of a free that comes when its place is in use again.
    #[inline]
    pub(super) fn free(&self, cache: Option<&ThreadCache>, address: usize) -> bool {
        match self.owners.at(address) {
            None => return false,
            Some(Owner::Large { pages }) => self.free_large(cache, address, pages),
            Some(Owner::Spare { .. }) => {} // freed before: that one counts
            Some(Owner::Slab { class, .. }) => {
                let surplus = if let Some(ThreadCache(kept)) = cache {
                    let mut kept = kept.lock();
                    kept.tally.free(object_bytes(class));
                    kept.push(class, address)
                } else {
                    self.tally.lock().free(object_bytes(class));
                    let mut one = Batch::new();
                    one.push(address);
                    Some(one)
                };
                if let Some(surplus) = surplus {
                    self.put(class, &surplus);
                }
            }
        }
        true
    }

    /// How many bytes there are at an address that was handed out; `None` when it is not of this
    /// heap.
    pub(super) fn usable_bytes(&self, address: usize) -> Option<usize> {
        Some(match self.owners.at(address)? {
            Owner::Slab { class, .. } => object_bytes(class),
            Owner::Large { pages } | Owner::Spare { pages } => pages * PAGE_BYTES,
        })
    }

    /// Objects of a class for a thread, of which the caller gets one.
    #[cold]
    fn refill(&self, cache: Option<&ThreadCache>, class: usize) -> Option<usize> {
        let count = if cache.is_some() { most_kept(class).div_ceil(2) } else { 1 };
        let batch = self.take(class, count)?;
        let (last, others) = batch.addresses().split_last()?;
        let Some(ThreadCache(kept)) = cache else {
            self.tally.lock().give(object_bytes(class));
            return Some(*last);
        };
        let mut kept = kept.lock();
        kept.tally.give(object_bytes(class));
        for address in others {
            let surplus = kept.push(class, *address);
            assert!(surplus.is_none(), "the thread had none");
        }
        Some(*last)
    }

    /// Up to `count` objects out of the slabs; one is made when all are full.
    fn take(&self, class: usize, count: usize) -> Option<Batch> {
        let mut batch = Batch::new();
        self.stocks[class].lock().take(count, &mut batch);
        if batch.addresses().is_empty() {
            let bytes = slab_bytes(class);
            let block = self.block(bytes)?;
            let base = to_usize(block.address());
            let mut stock = self.stocks[class].lock();
            let id = stock.add(block);
            for page in (base..base + bytes).step_by(PAGE_BYTES) {
                self.owners.set(page, Some(Owner::Slab { class, id }));
            }
            stock.take(count, &mut batch);
        }
        self.out.took(batch.addresses().len(), object_bytes(class));
        Some(batch)
    }

    /// Puts objects of a class back into their slabs.
    #[cold]
    fn put(&self, class: usize, batch: &Batch) {
        let (mut whole, mut count) = (Vec::new(), 0);
        let mut stock = self.stocks[class].lock();
        for address in batch.addresses() {
            let owner = self.owners.at(*address);
            let Some(Owner::Slab { id, .. }) = owner.filter(|owner| stock.has(*owner, *address))
            else {
                leak(format_args!("{address:#x} is freed, and no object in use begins there"));
                continue;
            };
            count += 1;
            whole
                .extend(stock.put(id, *address).inspect(|slab| self.disown(class, slab.address())));
        }
        drop(stock); // the allocator's own comes next
        self.out.put(count, object_bytes(class));
        for slab in whole {
            self.free_slab(slab);
        }
    }

    /// The pages of a slab are not this heap's any more.
    fn disown(&self, class: usize, base: u64) {
        let base = to_usize(base);
        for page in (base..base + slab_bytes(class)).step_by(PAGE_BYTES) {
            self.owners.set(page, None);
        }
    }

    #[inline(never)]
    fn allocate_large(&self, cache: Option<&ThreadCache>, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let pages = bytes / PAGE_BYTES;
        if let Some(ThreadCache(kept)) = cache {
            let mut kept = kept.lock();
            if let Some(address) = kept.pop_spare(pages) {
                kept.tally.give(bytes);
                self.owners.set(address, Some(Owner::Large { pages }));
                return Some(address);
            }
        }
        // The address is what the program has: `free_at` finds the block by it.
        let address = to_usize(self.block(bytes)?.address());
        self.owners.set(address, Some(Owner::Large { pages }));
        self.out.took(1, bytes);
        self.count(cache, |tally| tally.give(bytes));
        Some(address)
    }

    #[inline(never)]
    fn free_large(&self, cache: Option<&ThreadCache>, address: usize, pages: usize) {
        if !self.owners.end_large(address, pages) {
            return; // another free of it came first
        }
        let mut spare = Some(Spare { address, pages });
        if let Some(ThreadCache(kept)) = cache {
            let mut kept = kept.lock();
            kept.tally.free(pages * PAGE_BYTES);
            if kept.push_spare(Spare { address, pages }) {
                spare = kept.pop_surplus();
            }
        } else {
            self.tally.lock().free(pages * PAGE_BYTES);
        }
        while let Some(surplus) = spare {
            self.give_back(surplus);
            spare = cache.and_then(|ThreadCache(kept)| kept.lock().pop_surplus());
        }
    }

    /// A block of its own goes back to the allocator.
    #[cold]
    fn give_back(&self, Spare { address, pages }: Spare) {
        self.owners.set(address, None);
        // One of several frees of an address is the one that counts; nothing aborts in the others.
        if self.allocator.free_at(address as u64) {
            self.out.put(1, pages * PAGE_BYTES);
        }
    }

    fn free_slab(&self, slab: Allocated) {
        self.allocator.free(slab).expect("slabs are of this allocator");
    }

    /// A block of the host cache; when there is none, what threads keep goes back first.
    #[cold]
    fn block(&self, bytes: usize) -> Option<Allocated> {
        let request = Request::new(bytes, 0).aligned_to(PAGE_BYTES);
        self.allocator.allocate(request).ok().or_else(|| {
            self.empty();
            self.allocator.allocate(request).ok()
        })
    }

    fn count(&self, cache: Option<&ThreadCache>, note: impl FnOnce(&mut Tally)) {
        match cache {
            Some(ThreadCache(kept)) => note(&mut kept.lock().tally),
            None => note(&mut self.tally.lock()),
        }
    }

    /// What a thread keeps goes back to the slabs.
    fn flush(&self, ThreadCache(kept): &ThreadCache) {
        for class in 0..CLASS_COUNT {
            let batch = kept.lock().take_all(class);
            if !batch.addresses().is_empty() {
                self.put(class, &batch);
            }
        }
        let oldest = || kept.lock().pop_oldest();
        std::iter::from_fn(oldest).for_each(|spare| self.give_back(spare));
    }

    /// The thread of a cache ends.
    pub(super) fn retire(&self, cache: &'static ThreadCache) {
        if super::is_serving() {
            self.flush(cache);
            self.caches.leave(cache);
        }
    }

    /// What threads keep and slabs that are free go back to the allocator.
    pub(super) fn empty(&self) {
        self.caches.all().into_iter().for_each(|cache| self.flush(cache));
        for (class, stock) in self.stocks.iter().enumerate() {
            let take = || {
                let mut stock = stock.lock();
                stock.remove_whole().inspect(|slab| self.disown(class, slab.address()))
            };
            std::iter::from_fn(take).for_each(|slab| self.free_slab(slab));
        }
    }

    /// What the allocator counts of its segments, and the heap of what programs have.
    pub(super) fn statistics(&self) -> HostStatistics {
        let mut tally = *self.tally.lock();
        for ThreadCache(kept) in self.caches.all() {
            tally.add(&kept.lock().tally);
        }
        let (active_requests, active_bytes) = tally.stats(&self.out);
        let of_segments = self.allocator.host_statistics().unwrap_or_default();
        let num_leaks = boundary::leaks();
        HostStatistics { active_requests, active_bytes, num_leaks, ..of_segments }
    }

    /// Asserts the laws of the slabs and of the allocator.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.stocks.iter().for_each(|stock| stock.lock().check());
        self.allocator.check_all();
    }
}
