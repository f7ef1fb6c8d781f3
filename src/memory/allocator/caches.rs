//! The thread caches of one allocator: their bounds, and how pieces enter and leave them.
#![expect(unsafe_code, reason = "the cache used last is found through a pointer")]

use std::cell::RefCell;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::base::size::MIB;
use crate::base::sync::unmodelled::{AtomicBool, AtomicU64, AtomicUsize};
use crate::base::sync::{LockRank, Mutex, Ordering, assert_no_lock_held, park};
use crate::base::{asymmetric, fork};
use crate::memory::allocator::addresses::Addresses;
use crate::memory::allocator::allocated::Allocated;
use crate::memory::allocator::bins::{Bins, Bound, Key};
use crate::memory::allocator::core::{Native, Returns};
use crate::memory::allocator::ledger::Ledger;
use crate::memory::allocator::live_table::LiveTable;
use crate::memory::allocator::plan::{NativePlan, Sizes};
use crate::memory::allocator::request::{PoolId, Request};
use crate::memory::allocator::state::AllocatorState;
use crate::memory::allocator::stats::Statistics;
use crate::memory::allocator::thread_cache::{
    CacheGuard, Claims, ID_STEP, LAST_USED, LastUsed, Owner, RemoteGuard, ThreadCache, claim,
};
use crate::memory::allocator::thread_counters::{BlockSize, ThreadCounters};
/// The most bytes that all thread caches together keep, apart from the last piece of each size.
const MOST_CACHED_BYTES: u64 = 256 * MIB as u64;
/// The most that they keep, as a divisor of the peak of bytes in use or cached.
const MOST_CACHED_PART: u64 = 50;
/// The least bound: small pieces are many, and this is a page of most devices.
const LEAST_CACHED_BYTES: u64 = 2 * MIB as u64;
/// The first and the longest sleep before another look at a thread that stays in its cache. Each
/// sleep is twice the one before.
const FIRST_SLEEP: Duration = Duration::from_micros(20);
const MOST_SLEEP: Duration = Duration::from_millis(1);
/// The most sleeps before memory is asked of the device that a thread may have: a millisecond.
pub(super) const MOST_GROWTH_SLEEPS: u64 = 5;
/// An id that no allocator has.
const OFF: u64 = u64::MAX;

/// The thread caches of one allocator. A thread gets its cache at its first free or miss.
#[derive(Debug)]
pub(super) struct Caches {
    /// Unique in the process, never reused.
    id: u64,
    /// The id, or [`OFF`] while another policy serves requests, or while settings disable thread
    /// caches.
    id_when_on: AtomicU64,
    /// As `id_when_on`, and [`OFF`] while requests and frees are recorded, which only slow paths
    /// do.
    id_when_fast: AtomicU64,
    /// The bound of each thread's cache.
    most_bytes: AtomicU64,
    pub(super) sizes: Sizes,
    pub(super) live: Arc<LiveTable>,
    pub(super) addresses: Option<Arc<Addresses>>,
    pub(super) state: Arc<Mutex<AllocatorState>>,
    thread_count: AtomicUsize,
    /// True when a thread that was alone may keep more than the bound.
    has_uncounted: AtomicBool,
    /// Counts the sleeps of threads that wait for another thread to leave its cache.
    #[cfg(all(test, not(loom)))]
    pub(super) sleeps: AtomicU64,
    pub(super) threads: CachePadded<Mutex<Threads>>,
}

/// The known thread caches.
#[derive(Debug, Default)]
pub(super) struct Threads {
    pub(super) caches: Vec<Arc<ThreadCache>>,
    /// Counts of threads without a cache, and of caches that were retired.
    pub(super) shared: ThreadCounters,
    /// The sums at the last reset, which reports subtract.
    pub(super) at_reset: Statistics,
}

impl Caches {
    pub(crate) fn new(state: Arc<Mutex<AllocatorState>>) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(ID_STEP);
        asymmetric::prepare();
        let (live, addresses, sizes) = {
            let native = &state.lock().native;
            (Arc::clone(&native.live), native.addresses.clone(), native.sizes)
        };
        Arc::new(Self {
            id: NEXT_ID.fetch_add(ID_STEP, Ordering::Relaxed), // only uniqueness matters
            id_when_on: AtomicU64::new(OFF),
            id_when_fast: AtomicU64::new(OFF),
            most_bytes: AtomicU64::new(0),
            sizes,
            live,
            addresses,
            state,
            thread_count: AtomicUsize::new(0),
            has_uncounted: AtomicBool::new(false),
            #[cfg(all(test, not(loom)))]
            sleeps: AtomicU64::new(0),
            threads: CachePadded::new(Mutex::new(LockRank::ThreadCaches, Threads::default())),
        })
    }

    /// Turns thread caches on or off.
    pub(crate) fn switch(&self, ledger: &Ledger) {
        let is_on = ledger.has_thread_caches() && self.live.tag().is_some();
        let id_if = |is_on| if is_on { self.id } else { OFF };
        // Relaxed: a thread that reads it late keeps a piece, or takes one: right either way.
        self.id_when_on.store(id_if(is_on), Ordering::Relaxed);
        let is_fast = is_on && !ledger.recorder.is_on();
        self.id_when_fast.store(id_if(is_fast), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    #[inline]
    pub(super) fn id_when_on(&self) -> u64 {
        // Relaxed: see `switch`.
        self.id_when_on.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn id_when_fast(&self) -> u64 {
        // Relaxed: see `switch`.
        self.id_when_fast.load(Ordering::Relaxed)
    }

    /// True when [`Caches::take`] has looked into this cache, unless another thread had claimed it.
    #[inline(always)]
    pub(super) fn has_looked(&self, inside: &CacheGuard<'_>) -> bool {
        !inside.is_closed() && self.id_when_fast() != OFF && asymmetric::is_light_free()
    }

    /// True when this thread, which is inside its cache, may have freed pieces that no bin keeps
    /// until it has the lock next: no other thread needs them.
    #[inline(always)]
    pub(super) fn may_leave(&self) -> bool {
        // Relaxed: a thread that came says so before it claims this cache, see `add`.
        self.thread_count.load(Ordering::Relaxed) == 1
    }

    /// True while engine `native` serves requests with thread caches.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.id_when_on() != OFF
    }

    #[inline]
    pub(super) fn most_bytes(&self) -> u64 {
        // Relaxed: a bound, which is as good when it is a little old.
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// The bin key of a request.
    #[inline(always)]
    pub(super) fn key(&self, request: &Request) -> Key {
        Key { stream: request.stream, bytes: self.sizes.rounded(request.bytes) }
    }

    /// Takes a piece of this thread's cache for a plain request, as [`Caches::take`].
    #[inline(always)]
    pub(super) fn take_inside(
        &self,
        inside: Option<&mut CacheGuard<'_>>,
        request: &Request,
        plan: &NativePlan,
    ) -> Option<Allocated> {
        let is_plain = request.is_plain(self.sizes.granularity.small_bytes);
        let inside = inside.filter(|_| is_plain && self.is_on())?;
        let key = Key { stream: request.stream, bytes: plan.bytes };
        inside.bins.take(key, request.bytes)
    }

    /// Counts the end of a use, and keeps the piece where allowed, with eviction of older pieces.
    /// False when the caller still has the piece.
    #[inline(always)]
    pub(super) fn end_use(
        self: &Arc<Self>,
        block: &Allocated,
        ticket: u64,
        counted: BlockSize,
        may_keep: bool,
    ) -> bool {
        self.end_use_inside(self.enter_prepared(), block, ticket, counted, may_keep)
    }

    /// As [`Self::end_use`], for a thread that has entered its cache, if it could.
    #[inline(always)]
    pub(super) fn end_use_inside(
        &self,
        inside: Option<CacheGuard<'_>>,
        block: &Allocated,
        ticket: u64,
        counted: BlockSize,
        may_keep: bool,
    ) -> bool {
        let Some(mut inside) = inside else {
            self.threads.lock().shared.end(counted);
            return false;
        };
        if may_keep && inside.is_closed() && self.state.lock().may_open_caches() {
            inside.open(); // a thread may do nothing but free what others asked for
        }
        if !may_keep || inside.is_closed() || !self.is_on() {
            inside.bins.count_end(counted);
            return false;
        }
        // Locked late: a thread that claims the cache waits for this one, and does not hold the
        // lock then.
        let (mut state, mut returns) = (None, Returns::default());
        inside.end_leaving(|piece| {
            let state = state.get_or_insert_with(|| self.state.lock());
            state.native.release_cached(piece, &mut returns);
        });
        let key = Key::of(block);
        // Relaxed: for where pieces go, which is right either way.
        let is_one_of_many = self.thread_count.load(Ordering::Relaxed) > 1;
        if is_one_of_many && let Some(older) = inside.bins.older_half(key) {
            let state = state.get_or_insert_with(|| self.state.lock());
            if state.native.batches.put(key, older) {
                inside.bins.forget_older_half(key);
            }
        }
        let is_counted = is_one_of_many || !self.sizes.has_many_pages(key.bytes);
        if is_one_of_many {
            inside.bins.count_all();
        } else if !is_counted && !self.has_uncounted.load(Ordering::Relaxed) {
            // Relaxed: `empty_for_growth` empties this cache, behind a claim, after it has taken
            // this away.
            self.has_uncounted.store(true, Ordering::Relaxed);
        }
        let bound = Bound { most_bytes: self.most_bytes(), is_counted };
        let has_room = inside.bins.make_room(key, counted.class, bound, &mut |piece| {
            let state = state.get_or_insert_with(|| self.state.lock());
            state.native.release_cached(&piece, &mut returns);
        });
        if let Some(state) = &mut state {
            state.native.end_returns(returns);
            self.set_bound(&mut state.native);
        }
        drop(state);
        let is_kept = has_room && inside.bins.stock(block, ticket);
        inside.bins.count_end(counted);
        is_kept
    }

    /// Enters this thread's cache, creating it if needed.
    #[inline(always)]
    pub(super) fn enter_prepared(self: &Arc<Self>) -> Option<CacheGuard<'_>> {
        self.enter().or_else(|| {
            self.prepare();
            self.enter()
        })
    }

    /// Stocks the cache with more pieces of a small size, fresh from the heap.
    pub(super) fn stock(
        &self,
        inside: &mut CacheGuard<'_>,
        state: &mut AllocatorState,
        plan: &NativePlan,
    ) {
        if inside.is_closed() {
            if !state.may_open_caches() {
                return;
            }
            inside.open();
        }
        let Some(size) = plan.class else { return };
        if plan.owner.pool != PoolId::DEFAULT || !self.is_on() {
            return;
        }
        let key = Key { stream: plan.owner.stream, bytes: plan.bytes };
        let class = Sizes::class(plan.bytes);
        let room = inside.bins.make_room_for_stock(key, class, self.most_bytes());
        let heap = state.native.heaps.of(plan.owner);
        inside.bins.put_stock(key, |put| {
            if state.native.batches.take(key, room, put) == 0 {
                state.native.take_stock(heap, size, room, put);
            }
        });
    }

    /// Returns evicted pieces to their heaps.
    #[cold]
    fn release<'a>(&self, native: &mut Native, pieces: impl IntoIterator<Item = &'a Allocated>) {
        let mut returns = Returns::default();
        for block in pieces {
            native.release_cached(block, &mut returns);
        }
        native.end_returns(returns);
        self.set_bound(native);
    }

    /// Empties all thread caches; true when one had pieces. Sleeps, without a lock, while a thread
    /// stays in its cache off its processor.
    pub(crate) fn empty(&self) -> bool {
        assert_no_lock_held();
        let (mut duration, mut was_any) = (FIRST_SLEEP, false);
        loop {
            let (is_any, is_whole) = self.empty_at_once();
            was_any |= is_any;
            if is_whole {
                return was_any;
            }
            self.sleep(&mut duration);
        }
    }

    /// Empties this thread's cache in the caller's hold of the allocator's lock. False, without an
    /// effect, where a request must reach for more without it: other threads' caches, or streams.
    #[inline(never)]
    pub(super) fn empty_locked(
        &self,
        inside: Option<&mut CacheGuard<'_>>,
        state: &mut AllocatorState,
    ) -> bool {
        // Relaxed: a cache was counted before its owner opened it under the lock. A closed one has
        // no pieces.
        let count = self.thread_count.load(Ordering::Relaxed);
        if count > usize::from(inside.is_some()) || !state.pending.is_empty() {
            return false;
        }
        let native = &mut state.native;
        let mut returns = Returns::default();
        if let Some(inside) = inside {
            inside.bins.drain(&mut |piece| native.release_cached(&piece, &mut returns));
        }
        for piece in native.batches.drain(self.live.tag()) {
            native.release_cached(&piece, &mut returns);
        }
        native.end_returns(returns);
        true
    }

    /// Empties thread caches before the device is asked for memory. One whose thread stays inside
    /// is passed by, at once or, where it may keep more than the bound, after some sleeps.
    pub(super) fn empty_for_growth(&self) {
        assert_no_lock_held();
        let may_be_much = self.has_uncounted.swap(false, Ordering::Relaxed); // see `end_use`
        let mut sleeps = if may_be_much { 0..MOST_GROWTH_SLEEPS } else { 0..0 };
        let mut duration = FIRST_SLEEP;
        while !self.empty_at_once().1 {
            if sleeps.next().is_none() {
                self.has_uncounted.fetch_or(may_be_much, Ordering::Relaxed); // it still may be
                break;
            }
            self.sleep(&mut duration);
        }
    }

    /// Empties all thread caches except those whose thread stays inside. Returns whether one had
    /// pieces, and whether all were emptied.
    pub(super) fn empty_at_once(&self) -> (bool, bool) {
        let mut pieces = Vec::new();
        let threads = self.threads.lock();
        // This thread enters its own cache instead of claiming it.
        let own = self.enter();
        let is_own = |cache: &ThreadCache| own.as_ref().is_some_and(|own| own.is_of(cache));
        let others = threads.caches.iter().filter(|cache| !cache.is_closed() && !is_own(cache));
        let Claims { mut claimed, is_whole } = claim(others);
        for cache in &mut claimed {
            cache.with(|kept| kept.drain(&mut |piece| pieces.push(piece)));
            cache.close();
        }
        drop(claimed);
        if let Some(mut own) = own.filter(|own| !own.is_closed()) {
            own.bins.drain(&mut |piece| pieces.push(piece));
            own.close();
        }
        let native = &mut self.state.lock().native;
        pieces.extend(native.batches.drain(self.live.tag()));
        if !pieces.is_empty() {
            self.release(native, &pieces); // before others look: they would miss it
        }
        (!pieces.is_empty(), is_whole)
    }

    /// Calls `act` while all threads are kept out of their caches. Sleeps as [`Caches::empty`].
    pub(super) fn while_closed<T>(&self, act: impl FnOnce() -> T) -> T {
        self.with_all(|_, _| act())
    }

    /// Calls `with` while all threads are kept out of their caches. Sleeps as [`Caches::empty`].
    pub(super) fn with_all<T>(
        &self,
        with: impl FnOnce(&mut Threads, &mut [RemoteGuard<'_>]) -> T,
    ) -> T {
        assert_no_lock_held();
        let mut duration = FIRST_SLEEP;
        loop {
            let mut threads = self.threads.lock();
            let caches = threads.caches.clone();
            let Claims { mut claimed, is_whole } = claim(&caches);
            if is_whole {
                return with(&mut threads, &mut claimed);
            }
            drop(claimed);
            drop(threads); // a waiting thread has no lock
            self.sleep(&mut duration);
        }
    }

    /// Sleeps while another thread stays in its cache. That thread is off its processor, and may
    /// need this one's.
    #[cfg_attr(any(not(test), loom), expect(clippy::unused_self, reason = "tests count"))]
    fn sleep(&self, duration: &mut Duration) {
        assert_no_lock_held();
        // Relaxed: a count.
        #[cfg(all(test, not(loom)))]
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        park(Some(*duration)); // no thread wakes it; what is left of an earlier wake ends it early
        *duration = (*duration * 2).min(MOST_SLEEP);
    }

    /// Sets each thread's part of the bound.
    pub(super) fn set_bound(&self, native: &mut Native) {
        let [_, peak_bytes] = native.out.all().peaks();
        // Relaxed: for a bound; see `most_bytes`.
        let threads = self.thread_count.load(Ordering::Relaxed).max(1) as u64;
        if native.caches_bound_for == (peak_bytes, threads) {
            return;
        }
        native.caches_bound_for = (peak_bytes, threads);
        let most_bytes = peak_bytes / MOST_CACHED_PART;
        let most_bytes = most_bytes.clamp(LEAST_CACHED_BYTES, MOST_CACHED_BYTES) / threads;
        if most_bytes != self.most_bytes() {
            // Written only when it changes: every free of every thread reads it. Relaxed: as above.
            self.most_bytes.store(most_bytes, Ordering::Relaxed);
        }
    }

    /// Adds a thread's cache to the list.
    pub(super) fn add(&self, cache: &Arc<ThreadCache>) {
        let mut threads = self.threads.lock();
        threads.caches.push(Arc::clone(cache));
        self.count_threads(&threads); // before the claims: from then on no pieces wait for the lock
        // The other threads' parts shrink, so their unused claims end. A thread inside its cache
        // keeps its claims until its next one.
        let open = threads.caches.iter().filter(|cache| !cache.is_closed());
        let Claims { claimed, is_whole } = claim(open);
        for mut other in claimed {
            other.with(Bins::claim_what_is_there);
            other.end_leaving(|piece| self.release(&mut self.state.lock().native, [piece]));
        }
        if !is_whole && threads.caches.iter().any(|cache| cache.has_leaving()) {
            self.has_uncounted.store(true, Ordering::Relaxed); // see `end_use`
        }
    }

    fn count_threads(&self, threads: &Threads) {
        // Relaxed: for a bound; see `most_bytes`.
        self.thread_count.store(threads.caches.len(), Ordering::Relaxed);
    }

    /// Retires the cache of a thread that ends.
    pub(super) fn retire(&self, cache: &Arc<ThreadCache>) {
        let mut pieces = Vec::new();
        let mut threads = self.threads.lock();
        let Claims { claimed, is_whole } = claim([cache]);
        assert!(is_whole, "the thread is here, and not inside");
        for mut claimed in claimed {
            claimed.with(|kept| {
                kept.drain(&mut |piece| pieces.push(piece));
                threads.shared.absorb(kept.cell());
            });
        }
        threads.caches.retain(|known| !Arc::ptr_eq(known, cache));
        let native = &mut self.state.lock().native;
        self.release(native, &pieces);
        self.count_threads(&threads); // behind it: a thread that is alone looks for no others'
        self.set_bound(native);
    }
}

#[derive(Debug)]
struct LocalEntry {
    id: u64,
    caches: Weak<Caches>,
    owner: Owner,
}

/// The caches of a thread, which are retired when the thread ends.
#[derive(Debug, Default)]
struct LocalCaches(RefCell<Vec<LocalEntry>>);

thread_local! {
    static LOCAL: LocalCaches = const { LocalCaches(RefCell::new(Vec::new())) };
}

impl Caches {
    /// Takes a cached piece for a plain request. `last_used` is the value that this thread has just
    /// read.
    #[inline(always)]
    pub(crate) fn take(&self, last_used: LastUsed, request: &Request) -> Option<Allocated> {
        if !request.is_plain(self.sizes.granularity.small_bytes) {
            return None;
        }
        // SAFETY: read by this thread since it left; nothing below enters a cache.
        let cache = unsafe { last_used.cache() }?;
        // SAFETY: as above.
        let inside = unsafe { cache.enter_at_once(self.id_when_fast()) }?;
        inside.bins.take(self.key(request), request.bytes)
    }

    /// Caches a freed piece until its stream's task `ticket`. False, without an effect, for other
    /// allocations, for a second free, and without room. `last_used` as for `take`.
    #[inline(always)]
    pub(crate) fn keep(&self, last_used: LastUsed, block: &Allocated, ticket: u64) -> bool {
        // SAFETY: as in `take`.
        let Some(cache) = (unsafe { last_used.cache() }) else { return false };
        // SAFETY: as in `take`.
        let inside = unsafe { cache.enter_at_once(self.id_when_fast()) };
        inside.is_some_and(|inside| inside.bins.keep(block, ticket))
    }

    /// Takes a freed piece that no bin keeps, until this thread has the lock next, while it is
    /// alone. False, without an effect, for all others. `last_used` as for `take`.
    #[inline(always)]
    pub(crate) fn leave(&self, last_used: LastUsed, block: &Allocated, ticket: u64) -> bool {
        // SAFETY: as in `take`.
        let Some(cache) = (unsafe { last_used.cache() }) else { return false };
        // SAFETY: as in `take`.
        let inside = unsafe { cache.enter_at_once(self.id_when_fast()) };
        inside.is_some_and(|mut inside| self.may_leave() && inside.leave(block, ticket))
    }

    /// Enters this thread's cache. `None` when the thread used another allocator last (`prepare`),
    /// when another thread has claimed the cache, and inside the cache.
    pub(super) fn enter(&self) -> Option<CacheGuard<'_>> {
        let last_used = LastUsed::get();
        // SAFETY: until the guard drops, `LAST_USED` is null.
        let cache = unsafe { last_used.cache() }?;
        // SAFETY: as above.
        let inside = unsafe { cache.enter(self.id()) }?;
        LAST_USED.set(LastUsed(ptr::null()));
        Some(CacheGuard { inside, last_used })
    }

    /// Makes this thread find its cache at the next use, creating it if needed. Has no effect while
    /// the thread ends.
    #[cold]
    pub(super) fn prepare(self: &Arc<Self>) {
        let _ = LOCAL.try_with(|own| own.make_last_used(self));
    }
}

impl LocalCaches {
    /// Finds the cache of an allocator, creating it if needed.
    fn make_last_used(&self, caches: &Arc<Caches>) -> Option<()> {
        let id = caches.id();
        let mut own = self.0.try_borrow_mut().ok()?;
        LAST_USED.set(LastUsed(ptr::null()));
        // Removes the caches of dropped allocators, whose ids are never used again.
        own.retain(|own| own.caches.strong_count() > 0);
        let position = own.iter().position(|own| own.id == id).unwrap_or_else(|| {
            let owner = Owner::new(id, caches.live.tag());
            caches.add(owner.cache());
            own.push(LocalEntry { id, caches: Arc::downgrade(caches), owner });
            own.len() - 1
        });
        let owner = &own[position].owner;
        if owner.is_outside() {
            LAST_USED.set(LastUsed(Arc::as_ptr(owner.cache())));
        }
        Some(())
    }
}

impl Drop for LocalCaches {
    fn drop(&mut self) {
        LAST_USED.set(LastUsed(ptr::null()));
        if fork::is_child() {
            return; // the parent has what they keep
        }
        for LocalEntry { caches, owner, .. } in self.0.take() {
            if let Some(caches) = caches.upgrade() {
                caches.retire(owner.cache());
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "caches_tests.rs"]
mod local_tests;
