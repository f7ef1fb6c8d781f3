//! The threads' caches of one allocator: how a thread finds its own, and how others reach them.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::allocator::books::{Books, Request};
use crate::allocator::caching::Allocated;
use crate::allocator::native::cell::{Cell, Counted};
use crate::allocator::native::live::Live;
use crate::allocator::native::plan::Sizes;
use crate::allocator::native::size_class::UNIT_BYTES;
use crate::allocator::native::thread_cache::{Cached, Inside, Key, ThreadCache};
use crate::allocator::pool::PoolId;
use crate::size::MIB;
use crate::sync::unmodelled::{AtomicBool, AtomicU64};
use crate::sync::{LockRank, Mutex, Ordering};
use crate::{asymmetric, fork};

/// What all threads' caches together keep at most, but for the last piece of each.
const MOST_CACHED_BYTES: u64 = 32 * MIB as u64;
/// And at most this part of the most that was out at a time.
const MOST_CACHED_PART: u64 = 100;

/// The caches of one allocator's threads. A thread's is made when it first frees or misses.
#[derive(Debug)]
pub(in crate::allocator) struct Caches {
    /// Unique in the process, never reused.
    id: u64,
    pub(super) books: Arc<Mutex<Books>>,
    pub(super) live: Arc<Live>,
    pub(super) sizes: Sizes,
    /// False while another policy serves requests, or settings want every request in one order.
    is_on: AtomicBool,
    /// What each thread may keep.
    most_bytes: AtomicU64,
    thread_count: AtomicU64,
    pub(super) threads: Mutex<Threads>,
}

/// Who has a cache.
#[derive(Debug, Default)]
pub(super) struct Threads {
    pub(super) caches: Vec<Arc<ThreadCache>>,
    /// What was counted by nobody's cache, and by caches that are gone.
    pub(super) shared: Cell,
}

/// A thread's way to its cache of one allocator.
#[derive(Debug)]
struct Own {
    id: u64,
    caches: Weak<Caches>,
    cache: Arc<ThreadCache>,
}

/// The caches of a thread, the last used first. They go back when the thread ends.
#[derive(Debug, Default)]
struct OwnCaches(RefCell<Vec<Own>>);

thread_local! {
    static OWN: OwnCaches = const { OwnCaches(RefCell::new(Vec::new())) };
}

impl Caches {
    pub(in crate::allocator) fn new(books: Arc<Mutex<Books>>) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        asymmetric::prepare();
        let (live, sizes) = {
            let books = books.lock();
            (Arc::clone(&books.native.live), books.native.sizes)
        };
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed), // only uniqueness matters
            books,
            live,
            sizes,
            is_on: AtomicBool::new(false),
            most_bytes: AtomicU64::new(0),
            thread_count: AtomicU64::new(0),
            threads: Mutex::new(LockRank::ThreadCaches, Threads::default()),
        })
    }

    /// Has threads keep pieces from now on, or not.
    pub(in crate::allocator) fn switch(&self, is_on: bool) {
        // Relaxed: whoever reads it late keeps a piece, or takes one, which is right either way.
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        // Relaxed: see `switch`.
        self.is_on.load(Ordering::Relaxed)
    }

    /// Calls `with` with this thread's cache. `None` where it has none in front (`prepare`), while
    /// somebody else has claimed it, and when `with` says so.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn inside<R>(&self, with: impl FnOnce(&Inside<'_>) -> Option<R>) -> Option<R> {
        OWN.try_with(|own| {
            let known = own.0.try_borrow().ok()?;
            if let Some(first) = known.first()
                && first.id == self.id
            {
                return with(&first.cache.enter()?);
            }
            drop(known);
            None
        })
        .ok()?
    }

    /// A piece that this thread keeps, for a request that caches serve.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(in crate::allocator) fn take(&self, request: &Request) -> Option<Allocated> {
        let is_plain = request.pool == PoolId::DEFAULT && request.align_bytes <= UNIT_BYTES;
        if !self.is_on() || !is_plain || request.bytes == 0 {
            return None;
        }
        let (bytes, class) = self.sizes.rounded(request.bytes)?;
        let key = Key { stream: request.stream, bytes };
        self.inside(|inside| {
            let Cached { piece, address, busy_until } = inside.take(key)?;
            inside.count_begin(Counted { class, bytes, requested_bytes: request.bytes });
            self.live.begin(piece, bytes, request.bytes);
            Some(Allocated::of_piece(piece, address, bytes, busy_until, request.stream))
        })
    }

    /// Keeps a piece that was in use, if this thread has a cache for it. The piece is the caller's
    /// still when not.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn keep(&self, key: Key, cached: &Cached, counted: Counted) -> bool {
        // Relaxed: a bound, which is as good when it is a little old.
        let most_bytes = self.most_bytes.load(Ordering::Relaxed);
        let mut driven_out = Vec::new();
        let is_kept = self.inside(|inside| {
            inside.put(key, cached, most_bytes, &mut driven_out);
            inside.count_end(counted);
            Some(())
        });
        if !driven_out.is_empty() {
            self.release(&driven_out);
        }
        is_kept.is_some()
    }

    /// Has this thread find its cache at the next use, which is made when there is none.
    #[cold]
    pub(super) fn prepare(self: &Arc<Self>) {
        let _ = OWN.try_with(|own| own.bring_to_front(self)); // not while the thread ends
    }

    /// How many more pieces of a size this thread may keep.
    pub(super) fn room(&self, key: Key) -> usize {
        let most_bytes = self.most_bytes.load(Ordering::Relaxed); // as in `keep`
        self.inside(|inside| Some(inside.room(key, most_bytes))).unwrap_or(0)
    }

    /// Keeps pieces that were never in use, and counts one that is from now on.
    pub(super) fn stock(&self, key: Key, stock: &[Cached], counted: Counted) {
        let mut driven_out = Vec::new();
        let is_done = self.inside(|inside| {
            for cached in stock {
                inside.put(key, cached, u64::MAX, &mut driven_out);
            }
            inside.count_begin(counted);
            Some(())
        });
        if is_done.is_none() {
            driven_out.extend_from_slice(stock);
            self.threads.lock().shared.begin(counted);
        }
        if !driven_out.is_empty() {
            self.release(&driven_out);
        }
    }

    /// Counts the end of a piece's use.
    pub(super) fn count_end(&self, counted: Counted) {
        let is_counted = self.inside(|inside| {
            inside.count_end(counted);
            Some(())
        });
        if is_counted.is_none() {
            self.threads.lock().shared.end(counted);
        }
    }

    /// Gives pieces that were kept back to their heaps.
    #[cold]
    fn release(&self, pieces: &[Cached]) {
        let mut books = self.books.lock();
        for cached in pieces {
            books.native.release(cached.piece, cached.busy_until);
        }
        self.set_bound(&books);
    }

    /// Empties the caches of all threads; true when there was anything.
    pub(in crate::allocator) fn empty(&self) -> bool {
        let mut pieces = Vec::new();
        let threads = self.threads.lock();
        for cache in &threads.caches {
            cache.claim().drain(&mut pieces);
        }
        if !pieces.is_empty() {
            self.release(&pieces); // before others look: they would miss it
        }
        drop(threads);
        !pieces.is_empty()
    }

    /// Sets what each thread may keep: its part of the whole.
    pub(super) fn set_bound(&self, books: &Books) {
        let [_, peak_bytes, _] = books.native.out.all().peak;
        let most_bytes = (peak_bytes / MOST_CACHED_PART).min(MOST_CACHED_BYTES);
        // Relaxed, both: see `keep`.
        let threads = self.thread_count.load(Ordering::Relaxed).max(1);
        self.most_bytes.store(most_bytes / threads, Ordering::Relaxed);
    }

    fn add(&self, cache: &Arc<ThreadCache>) {
        let mut threads = self.threads.lock();
        threads.caches.push(Arc::clone(cache));
        self.count_threads(&threads);
    }

    fn count_threads(&self, threads: &Threads) {
        // Relaxed: for a bound; see `keep`.
        self.thread_count.store(threads.caches.len() as u64, Ordering::Relaxed);
    }

    /// Gives the cache of a thread that ends back.
    fn retire(&self, cache: &Arc<ThreadCache>) {
        let mut pieces = Vec::new();
        let mut threads = self.threads.lock();
        let claimed = cache.claim();
        claimed.drain(&mut pieces);
        threads.shared.absorb(claimed.cell());
        drop(claimed);
        threads.caches.retain(|known| !Arc::ptr_eq(known, cache));
        self.count_threads(&threads);
        self.release(&pieces);
    }
}

impl OwnCaches {
    /// The cache of an allocator, which is made when there is none.
    #[cold]
    fn bring_to_front(&self, caches: &Arc<Caches>) -> Option<()> {
        let mut own = self.0.try_borrow_mut().ok()?;
        if let Some(place) = own.iter().position(|own| own.id == caches.id) {
            own.swap(0, place);
            return Some(());
        }
        own.retain(|own| own.caches.strong_count() > 0);
        let cache = Arc::new(ThreadCache::new());
        caches.add(&cache);
        let (id, caches) = (caches.id, Arc::downgrade(caches));
        own.insert(0, Own { id, caches, cache });
        Some(())
    }
}

impl Drop for OwnCaches {
    fn drop(&mut self) {
        if fork::is_child() {
            return; // the parent has what they keep
        }
        for Own { caches, cache, .. } in self.0.take() {
            if let Some(caches) = caches.upgrade() {
                caches.retire(&cache);
            }
        }
    }
}
