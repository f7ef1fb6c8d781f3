//! What one thread keeps of the pieces that it freed, to take them again without a lock.
//!
//! A cache belongs to one thread; other threads reach into it to empty it or to sum its counts. The
//! owner enters and leaves around each use with two stores. Another thread claims the cache, sees
//! that the owner is outside, and keeps it outside meanwhile. A claim fails while the owner stays
//! inside, for instance off its processor.
//!
//! | | owner enters | other thread claims |
//! |---|---|---|
//! | publishes | `door` | `CLAIMED` in `gate` |
//! | fence | `asymmetric::light` | `asymmetric::heavy` |
//! | looks at | `gate`: stays out | `door`: looks again, a few times |
//!
//! A thread that empties a cache closes it: its owner keeps nothing until it has opened it again,
//! under the allocator's lock. So closed caches need no claim.
//!
//! The gate holds the id of the cache's allocator. One read tells the owner that no thread has
//! claimed the cache, that it is of the wanted allocator, and that its own fence is free.
//!
//! # The transfer cache
//!
//! A thread whose bin is full leaves the older half of it to other threads here, and a thread that
//! misses takes it. Neither of them touches the slabs. Emptying the thread caches empties this too.
#![expect(unsafe_code, reason = "plain values that one thread at a time reaches, by that protocol")]

use std::cell::Cell as Unshared;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;

use crate::base::size::KIB;
use crate::base::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell, spin_hint};
use crate::base::{asymmetric, fork};
use crate::engine::log::context::AllocationContext;
use crate::memory::allocator::allocated::{Allocated, CachedBlock};
use crate::memory::allocator::bins::{Bins, HALF_BIN, Key};
use crate::memory::allocator::live_table::Tag;
/// Flag in the gate, below the id: the thread must stay out.
const CLAIMED: u64 = 1;
/// Permanent flag in the gate: entering needs a processor fence.
const FENCED: u64 = 2;
/// Flag in the gate: the bins are empty, and stay empty.
const CLOSED: u64 = 4;
/// Allocator ids are multiples of this, which leaves bits for the flags.
pub(super) const ID_STEP: u64 = 8;
/// The reads of doors per claim. A stay ends after fewer, unless the thread waits for a lock or a
/// processor.
#[cfg(not(loom))]
pub(super) const MOST_LOOKS: u32 = 200;
#[cfg(loom)]
const MOST_LOOKS: u32 = 1;

/// The cache of one thread for one allocator. Aligned to two cache lines, because some processors
/// fetch lines in pairs: the owner writes here all the time.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ThreadCache {
    /// True while the thread is inside.
    door: AtomicBool,
    /// The id of the allocator, and flags.
    gate: AtomicU64,
    /// True while freed pieces wait in the bins for the lock.
    has_leaving: AtomicBool,
    bins: UnsafeCell<Bins>,
}

// SAFETY: `bins` is plain values, and only `ThreadCache::enter` and `RemoteGuard::with` reach it.
// The protocol of this file's head keeps two threads from doing so at a time, and orders their
// uses.
unsafe impl Sync for ThreadCache {}

/// The owner's end of a cache. There is one, and only it enters.
#[derive(Debug)]
pub(super) struct Owner {
    cache: Arc<ThreadCache>,
    /// Movable to another thread, but not shared.
    is_unshared: PhantomData<Unshared<()>>,
}

impl Owner {
    /// Creates an empty, closed cache for the allocator with `id` and `tag`.
    pub(super) fn new(id: u64, tag: Tag) -> Self {
        assert!(id.is_multiple_of(ID_STEP), "flags stand below the id {id}");
        let fenced = if asymmetric::is_light_free() { 0 } else { FENCED };
        let cache = ThreadCache {
            door: AtomicBool::new(false),
            gate: AtomicU64::new(id | fenced | CLOSED),
            has_leaving: AtomicBool::new(false),
            bins: UnsafeCell::new(Bins::new(tag)),
        };
        Self { cache: Arc::new(cache), is_unshared: PhantomData }
    }

    /// The end that other threads claim.
    pub(super) fn cache(&self) -> &Arc<ThreadCache> {
        &self.cache
    }

    /// True while this thread is outside. Only the owner's thread may ask.
    pub(super) fn is_outside(&self) -> bool {
        !self.cache.door.load(Ordering::Relaxed) // this thread alone writes it
    }

    #[cfg(all(test, loom))]
    pub(super) fn enter(&self, id: u64) -> Option<OwnerGuard<'_>> {
        // SAFETY: this is the owner's thread: the owner is there once, and is not shared. Tests
        // leave before they enter again.
        unsafe { self.cache.enter(id) }
    }
}

impl ThreadCache {
    /// Enters the cache of the allocator with `id`. `None` for another allocator's cache, for a
    /// claimed or closed one, and where entering needs a processor fence.
    ///
    /// # Safety
    /// The calling thread has its [`Owner`], is not inside, and keeps what is returned.
    #[inline(always)]
    pub(super) unsafe fn enter_at_once(&self, id: u64) -> Option<OwnerGuard<'_>> {
        // Relaxed: the fence orders it before the look; partner: `claim`.
        self.door.store(true, Ordering::Relaxed);
        asymmetric::light_if_free();
        // Acquire: pairs with the end of a claim. No model: models use `enter`, whose fence they
        // know.
        let gate = self.gate.load(Ordering::Acquire);
        self.inside_if(gate == id, false)
    }

    /// As [`ThreadCache::enter_at_once`], with a processor fence where needed; also enters a closed
    /// cache.
    ///
    /// # Safety
    /// As for [`ThreadCache::enter_at_once`].
    pub(super) unsafe fn enter(&self, id: u64) -> Option<OwnerGuard<'_>> {
        // Relaxed: as above.
        self.door.store(true, Ordering::Relaxed);
        asymmetric::light();
        // Acquire: as above.
        let gate = self.gate.load(Ordering::Acquire);
        self.inside_if(gate & !(FENCED | CLOSED) == id, gate & CLOSED != 0)
    }

    /// True for a closed cache. Under the lock of the list of caches, its former pieces are in
    /// their heaps; for an owner that opens it meanwhile see [`OwnerGuard::open`].
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: those locks order it; partners: `OwnerGuard::open`, `OwnerGuard::close`,
        // `RemoteGuard::close`.
        self.gate.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// True when freed pieces wait for the lock. A thread that asks behind a claim that failed may
    /// miss one that was just freed.
    pub(super) fn has_leaving(&self) -> bool {
        // Relaxed: the claim's fence orders it; partner: `OwnerGuard::leave`.
        self.has_leaving.load(Ordering::Relaxed)
    }

    /// Returns the stay, after the owner's thread has read the gate.
    #[inline(always)]
    fn inside_if(&self, may_enter: bool, is_closed: bool) -> Option<OwnerGuard<'_>> {
        if !may_enter {
            // Release: as in `OwnerGuard::drop`; the fence above may be none. No model: in models
            // it is a fence, behind which each store is a release.
            self.door.store(false, Ordering::Release);
            return None;
        }
        let bins = self.bins.with_mut(|bins| bins);
        // SAFETY: no other reference exists. The caller of `enter` upholds that this is the owner's
        // thread and was outside. A claimer whose flag this thread did not see sees the door, by
        // the two fences, and waits until the stay drops.
        let bins = unsafe { &mut *bins };
        Some(OwnerGuard { cache: self, is_closed, bins })
    }
}

/// The owner's stay in its cache.
#[derive(Debug)]
pub(super) struct OwnerGuard<'a> {
    cache: &'a ThreadCache,
    /// True for a closed cache.
    is_closed: bool,
    pub(super) bins: &'a mut Bins,
}

impl OwnerGuard<'_> {
    pub(super) fn is_of(&self, cache: &ThreadCache) -> bool {
        ptr::eq(self.cache, cache)
    }

    /// True for a closed cache, which has no pieces and gets none.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// As [`Bins::leave`].
    #[inline(always)]
    pub(super) fn leave(&mut self, block: &Allocated, ticket: u64) -> bool {
        let is_left = self.bins.leave(block, ticket);
        if is_left {
            self.cache.has_leaving.store(true, Ordering::Relaxed); // see `has_leaving`
        }
        is_left
    }

    /// As [`Bins::end_leaving`]. The caller has the allocator's lock, or takes it in `out`.
    #[inline(always)]
    pub(super) fn end_leaving(&mut self, out: impl FnMut(&Allocated)) {
        if self.bins.end_leaving(out) {
            self.cache.has_leaving.store(false, Ordering::Relaxed); // see `has_leaving`
        }
    }

    /// Opens the cache. The caller has the allocator's lock.
    pub(super) fn open(&mut self) {
        self.is_closed = false;
        // Relaxed: a thread that must see later pieces takes the allocator's lock after this one.
        // Partner: `ThreadCache::is_closed`.
        self.cache.gate.fetch_and(!CLOSED, Ordering::Relaxed);
    }

    /// Closes the emptied cache.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.cache.has_leaving.store(false, Ordering::Relaxed); // see `ThreadCache::has_leaving`
        // Relaxed: the lock of the list of caches orders this before `ThreadCache::is_closed`.
        self.cache.gate.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

impl Drop for OwnerGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cache.bins.with_mut(|_| ()); // so that models see how long it was in use
        // Release: pairs with a claimer's look.
        self.cache.door.store(false, Ordering::Release);
    }
}

/// Another thread's right to a cache.
#[derive(Debug)]
pub(super) struct RemoteGuard<'a>(&'a ThreadCache);

#[cfg(all(test, not(loom)))]
thread_local! {
    /// Claims of this thread with something to claim, and its looks at doors that were shut.
    pub(super) static CLAIMS: Unshared<u64> = const { Unshared::new(0) };
    pub(super) static LOOKS: Unshared<u64> = const { Unshared::new(0) };
}

/// Caches whose threads are kept out.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    pub(super) claimed: Vec<RemoteGuard<'a>>,
    /// False when a thread was inside, whose cache is not among them.
    pub(super) is_whole: bool,
}

/// Claims caches with one fence, except those whose owners stay inside. One thread at a time claims
/// a cache.
pub(super) fn claim<'a>(caches: impl IntoIterator<Item = &'a Arc<ThreadCache>>) -> Claims<'a> {
    let publish = |cache: &'a Arc<ThreadCache>| {
        // Relaxed: the lock of the list of caches orders claims. The fence orders it before the
        // look; partner: `ThreadCache::enter`.
        let was = cache.gate.fetch_or(CLAIMED, Ordering::Relaxed);
        assert_eq!(was & CLAIMED, 0, "a claimer has the lock of the list of caches");
        RemoteGuard(cache)
    };
    let mut claimed: Vec<_> = caches.into_iter().map(publish).collect();
    if claimed.is_empty() {
        return Claims { claimed, is_whole: true }; // the fence is a call of the system
    }
    asymmetric::heavy();
    #[cfg(all(test, not(loom)))]
    CLAIMS.set(CLAIMS.get() + 1);
    let (count, mut looks) = (claimed.len(), 0);
    claimed.retain(|RemoteGuard(cache)| {
        // Acquire: pairs with `OwnerGuard::drop`. In a forked child the other threads are gone.
        while cache.door.load(Ordering::Acquire) && !fork::is_child() {
            if looks == MOST_LOOKS {
                return false;
            }
            looks += 1;
            #[cfg(all(test, not(loom)))]
            LOOKS.set(LOOKS.get() + 1);
            spin_hint();
        }
        true
    });
    let is_whole = claimed.len() == count;
    Claims { claimed, is_whole }
}

impl RemoteGuard<'_> {
    pub(super) fn with<R>(&mut self, with: impl FnOnce(&mut Bins) -> R) -> R {
        // SAFETY: no other reference exists. `claim` raised the flag, so no other thread claims;
        // it saw the owner outside after its fence, and the owner reads the flag behind its own.
        self.0.bins.with_mut(|bins| with(unsafe { &mut *bins }))
    }

    /// As [`Bins::end_leaving`]. The caller has the allocator's lock, or takes it in `out`.
    pub(super) fn end_leaving(&mut self, out: impl FnMut(&Allocated)) {
        self.with(|bins| bins.end_leaving(out));
        self.0.has_leaving.store(false, Ordering::Relaxed); // see `ThreadCache::has_leaving`
    }

    /// Closes the emptied cache.
    pub(super) fn close(&mut self) {
        self.0.has_leaving.store(false, Ordering::Relaxed); // see `ThreadCache::has_leaving`
        // Relaxed: as `OwnerGuard::close`; the thread sees it with the end of the claim.
        self.0.gate.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

impl Drop for RemoteGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the thread's next look, and the next claim.
        self.0.gate.fetch_and(!CLAIMED, Ordering::Release);
    }
}

/// The cache that a thread used last; null for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastUsed(pub(super) *const ThreadCache);

thread_local! {
    /// The cache of one of this thread's `LOCAL` entries, or null. `make_last_used` sets it. It is
    /// null before an entry is removed, and while the thread is inside.
    pub(super) static LAST_USED: Unshared<LastUsed> =
        const { Unshared::new(LastUsed(ptr::null())) };
}

impl LastUsed {
    /// Reads this thread's. In a library loaded late this is a call: callers make it first.
    #[inline(always)]
    pub(crate) fn get() -> Self {
        LAST_USED.get()
    }

    /// Makes the next request or free take the slow path, which finds the cache again. A forked
    /// child takes nothing from the parent's cache then.
    pub(crate) fn forget() {
        LAST_USED.set(Self(ptr::null()));
    }

    /// As [`Self::forget`], if this thread's requests have a tag, which only the slow path knows.
    /// Called behind what has found the cache again.
    #[inline]
    pub(super) fn forget_under_tag() {
        if AllocationContext::has_tag() {
            Self::forget();
        }
    }

    /// The cache. The thread enters it by the id of an allocator that exists until it has left.
    ///
    /// # Safety
    /// This thread has read the value, and has entered no cache since.
    #[inline(always)]
    pub(super) unsafe fn cache<'a>(self) -> Option<&'a ThreadCache> {
        // SAFETY: an entry of this thread has the cache, by the invariant of `LAST_USED`. Entries
        // go in `make_last_used` and at the thread's end, neither between the read and the use.
        unsafe { self.0.as_ref() }
    }
}

/// This thread's stay in its cache, during which `LAST_USED` is null.
#[derive(Debug)]
pub(super) struct CacheGuard<'a> {
    pub(super) inside: OwnerGuard<'a>,
    pub(super) last_used: LastUsed,
}

impl<'a> Deref for CacheGuard<'a> {
    type Target = OwnerGuard<'a>;

    fn deref(&self) -> &OwnerGuard<'a> {
        &self.inside
    }
}

impl DerefMut for CacheGuard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inside
    }
}

impl Drop for CacheGuard<'_> {
    fn drop(&mut self) {
        LAST_USED.set(self.last_used); // its entry still exists, as this allocator does
    }
}

/// The bytes of all batches: little beside what threads cache, and many times what two threads that
/// take turns need.
const MOST_BYTES: usize = 128 * KIB;
/// The sizes and streams that have pieces here at a time, which a look goes through.
const MOST_BATCHES: usize = 8;

/// The batches of one allocator, guarded by its lock.
///
/// Equation: `bytes` is the sum of the sizes of all pieces, at most [`MOST_BYTES`].
#[derive(Debug, Default)]
pub(super) struct TransferCache {
    /// The newest one last; none is empty.
    batches: Vec<Batch>,
    bytes: usize,
}

#[derive(Debug)]
struct Batch {
    key: Key,
    count: usize,
    pieces: [CachedBlock; HALF_BIN],
}

impl TransferCache {
    /// Adds half a bin. False, without an effect, when there is no room for it.
    pub(super) fn put(&mut self, key: Key, pieces: &[CachedBlock; HALF_BIN]) -> bool {
        let bytes = self.bytes + HALF_BIN * key.bytes;
        if bytes > MOST_BYTES || self.batches.len() == MOST_BATCHES {
            return false;
        }
        self.batches.push(Batch { key, count: HALF_BIN, pieces: *pieces });
        self.bytes = bytes;
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes at most `most` pieces of the newest batch with a key. Returns their number.
    pub(super) fn take(
        &mut self,
        key: Key,
        most: usize,
        put: &mut dyn FnMut(CachedBlock),
    ) -> usize {
        let Some(place) = self.batches.iter().rposition(|batch| batch.key == key) else { return 0 };
        let batch = &mut self.batches[place];
        let left = batch.count.saturating_sub(most);
        let count = batch.count - left;
        for single in &batch.pieces[left..batch.count] {
            put(*single);
        }
        batch.count = left;
        self.bytes -= count * key.bytes;
        if left == 0 {
            self.batches.remove(place);
        }
        count
    }

    /// Takes all pieces out.
    pub(super) fn drain(&mut self, tag: Tag) -> Vec<Allocated> {
        self.bytes = 0;
        let pieces_of = |Batch { key, count, pieces }| {
            let pieces = pieces.into_iter().take(count);
            pieces.map(move |single| single.of(single.handle().tagged(tag), key.bytes, key.stream))
        };
        self.batches.drain(..).flat_map(pieces_of).collect()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "thread_cache_tests.rs"]
mod batches_tests;
