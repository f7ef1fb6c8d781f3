//! What one thread keeps of the objects that it freed, to have them again without a shared lock.
//!
//! Its own lock is one that others take only to add up what it counts or to empty it. The caches
//! are made once and handed on from thread to thread: whoever has the address of one may use it.

use std::cell::Cell;

use crate::base::spin::SpinMutex;
use crate::base::sync::{LockRank, Mutex};
use crate::integrations::host_heap::boundary;
use crate::integrations::host_heap::size_class::{
    ALL_SPARES_BYTES, CLASS_COUNT, MOST_SPARE_BYTES, PAGE_BYTES, most_kept,
};
use crate::integrations::host_heap::stock::Batch;
use crate::integrations::host_heap::tally::Tally;

/// How many blocks of their own a thread keeps: programs ask for the same few sizes again.
const MOST_SPARES: usize = 8;

/// A block of its own that a thread has freed: where it is, and its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    pub(super) address: usize,
    pub(super) pages: usize,
}

/// What a thread keeps and counts.
#[derive(Debug)]
pub(super) struct Kept {
    bins: [Vec<usize>; CLASS_COUNT],
    /// The oldest first.
    spares: Vec<Spare>,
    spare_pages: usize,
    pub(super) tally: Tally,
}

impl Kept {
    fn new() -> Self {
        let (bins, spares) = (std::array::from_fn(|_| Vec::new()), Vec::new());
        Self { bins, spares, spare_pages: 0, tally: Tally::default() }
    }

    /// The object of a class that was freed last.
    #[inline]
    pub(super) fn pop(&mut self, class: usize) -> Option<usize> {
        self.bins[class].pop()
    }

    /// Keeps an object. When there are as many as there may be, the older half goes.
    #[inline]
    pub(super) fn push(&mut self, class: usize, address: usize) -> Option<Batch> {
        let bin = &mut self.bins[class];
        if bin.len() < bin.capacity() {
            bin.push(address);
            return None;
        }
        self.push_full(class, address)
    }

    #[cold]
    fn push_full(&mut self, class: usize, address: usize) -> Option<Batch> {
        let (bin, most) = (&mut self.bins[class], most_kept(class));
        if bin.capacity() < most {
            bin.reserve_exact(most - bin.len());
        }
        let mut surplus = Batch::new();
        if bin.len() >= most {
            bin.drain(..most / 2).for_each(|address| surplus.push(address));
        }
        bin.push(address);
        (!surplus.addresses().is_empty()).then_some(surplus)
    }

    /// A block of exactly this size.
    pub(super) fn pop_spare(&mut self, pages: usize) -> Option<usize> {
        let place = self.spares.iter().rposition(|spare| spare.pages == pages)?;
        self.spare_pages -= pages;
        Some(self.spares.remove(place).address)
    }

    /// Keeps a block of its own, if it is not too large.
    pub(super) fn push_spare(&mut self, spare: Spare) -> bool {
        let is_kept = spare.pages * PAGE_BYTES <= MOST_SPARE_BYTES;
        if is_kept {
            self.spares.push(spare);
            self.spare_pages += spare.pages;
        }
        is_kept
    }

    /// The oldest block of those that are too many.
    pub(super) fn pop_surplus(&mut self) -> Option<Spare> {
        let is_full = self.spare_pages * PAGE_BYTES > ALL_SPARES_BYTES;
        (is_full || self.spares.len() > MOST_SPARES).then(|| self.pop_oldest()).flatten()
    }

    /// The oldest block.
    pub(super) fn pop_oldest(&mut self) -> Option<Spare> {
        let oldest = (!self.spares.is_empty()).then(|| self.spares.remove(0))?;
        self.spare_pages -= oldest.pages;
        Some(oldest)
    }

    /// All of a class, which it does not keep any more.
    pub(super) fn take_all(&mut self, class: usize) -> Batch {
        let mut batch = Batch::new();
        self.bins[class].drain(..).for_each(|address| batch.push(address));
        batch
    }
}

/// The cache of one thread, on cache lines of its own: two, for processors that fetch pairs.
#[repr(align(128))]
pub(super) struct ThreadCache(pub(super) SpinMutex<Kept>);

/// All caches of a heap, and those of which the threads have ended.
#[derive(Default)]
struct List {
    all: Vec<&'static ThreadCache>,
    unused: Vec<&'static ThreadCache>,
}

/// The caches of a heap.
pub(super) struct ThreadCaches(Mutex<List>);

impl ThreadCaches {
    pub(super) fn new() -> Self {
        let list = List { all: Vec::new(), unused: Vec::new() };
        Self(Mutex::new(LockRank::HostHeap, list))
    }

    /// A cache for one thread: one that another thread has left, else a new one.
    pub(super) fn join(&self) -> &'static ThreadCache {
        let mut list = self.0.lock();
        list.unused.pop().unwrap_or_else(|| {
            let made: &ThreadCache = Box::leak(Box::new(ThreadCache(SpinMutex::new(Kept::new()))));
            list.all.push(made);
            made
        })
    }

    /// The thread of a cache has ended, and the cache is empty.
    pub(super) fn leave(&self, cache: &'static ThreadCache) {
        self.0.lock().unused.push(cache);
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<&'static ThreadCache> {
        self.0.lock().all.clone()
    }
}

/// This thread's cache of the process's heap.
struct Own(Cell<Option<&'static ThreadCache>>);

thread_local! {
    /// The same as in `OWN`. Needs no drop: it is found in a step, as long as the thread is there.
    static FRONT: Cell<Option<&'static ThreadCache>> = const { Cell::new(None) };
    static OWN: Own = const { Own(Cell::new(None)) };
}

impl Drop for Own {
    fn drop(&mut self) {
        FRONT.set(None); // what the thread still frees goes to the slabs
        if let (Some(cache), Some(heap)) = (self.0.take(), super::process_heap()) {
            boundary::contain((), || heap.retire(cache)); // a panic here would end the process
        }
    }
}

/// This thread's cache, if it has one.
#[inline]
pub(super) fn own() -> Option<&'static ThreadCache> {
    FRONT.get()
}

/// Makes `caches` give this thread one; `None` while the thread ends.
#[cold]
pub(super) fn join(caches: &ThreadCaches) -> Option<&'static ThreadCache> {
    OWN.try_with(|own| {
        let cache = caches.join();
        own.0.set(Some(cache));
        FRONT.set(Some(cache));
        cache
    })
    .ok()
}
