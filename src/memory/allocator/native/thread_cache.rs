//! What one thread keeps of the pieces that it freed, to have them again without a lock.
//!
//! A cache belongs to one thread, and others may reach into it: to empty it, or to add up what it
//! counts. The thread enters and leaves around each use with two stores; another one claims the
//! cache, sees that the thread is outside, and keeps it outside meanwhile. A thread may be taken
//! off its processor inside: then the claim fails, and the claimer sleeps and tries again.
//!
//! | | thread enters | other claims |
//! |---|---|---|
//! | publishes | `door` | `CLAIMED` in `gate` |
//! | fence | `asymmetric::light` | `asymmetric::heavy` |
//! | looks at | `gate`: stays out | `door`: looks again, a few times |
//!
//! A thread that empties a cache closes it: its owner keeps nothing in it until it has opened it,
//! under the allocator's lock. What is closed has nothing, so no thread claims it for what it has.
//!
//! The gate is open for who has the id of the cache's allocator. So one look tells the thread that
//! no other has claimed the cache, that it is of the allocator that it wants, and that its own
//! fence costs nothing. Where that costs something the thread asks twice.
#![expect(unsafe_code, reason = "plain values that one thread at a time reaches, by that protocol")]

use std::cell::Cell as Unshared;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;

use crate::base::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell, spin_hint};
use crate::base::{asymmetric, fork};
use crate::memory::allocator::native::bins::Bins;
use crate::memory::allocator::native::marks::Tag;

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
    bins: UnsafeCell<Bins>,
}

// SAFETY: `bins` is plain values, which may go from thread to thread, and is reached through
// `ThreadCache::enter` and `Claimed::with` alone: never by two threads at a time, and what one did
// happened before the next comes. The flags of this file keep that; see its head.
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
    pub(super) fn enter(&self, id: u64) -> Option<Inside<'_>> {
        // SAFETY: this is the owner's thread: the owner is there once, and is not shared. Tests
        // leave before they enter again.
        unsafe { self.cache.enter(id) }
    }
}

impl ThreadCache {
    /// Enters the cache of the allocator with `id`. `None` for another allocator's cache, a claimed
    /// or closed one, and where entering needs a processor fence.
    ///
    /// # Safety
    /// The calling thread has its [`Owner`], is not inside, and keeps what is returned.
    #[inline(always)]
    pub(super) unsafe fn enter_at_once(&self, id: u64) -> Option<Inside<'_>> {
        // Relaxed: the fence orders it before the look; partner: `claim`.
        self.door.store(true, Ordering::Relaxed);
        asymmetric::light_if_free();
        // Acquire: pairs with the end of a claim; what it did here is visible. No model: a model's
        // threads take `enter`, whose fence is one.
        let gate = self.gate.load(Ordering::Acquire);
        self.inside_if(gate == id, false)
    }

    /// As [`ThreadCache::enter_at_once`], with a processor fence where needed; also enters a closed
    /// cache.
    ///
    /// # Safety
    /// As for [`ThreadCache::enter_at_once`].
    pub(super) unsafe fn enter(&self, id: u64) -> Option<Inside<'_>> {
        // Relaxed: as above.
        self.door.store(true, Ordering::Relaxed);
        asymmetric::light();
        // Acquire: as above.
        let gate = self.gate.load(Ordering::Acquire);
        self.inside_if(gate & !(FENCED | CLOSED) == id, gate & CLOSED != 0)
    }

    /// True for a closed cache. Read under the lock of the list of caches, its former pieces have
    /// reached their heaps. For a thread that opens it meanwhile see [`Inside::open`].
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: those locks order it; partners: `Inside::open`, `Inside::close`,
        // `Claimed::close`.
        self.gate.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Returns the stay, after the owner's thread has read the gate.
    #[inline(always)]
    fn inside_if(&self, may_enter: bool, is_closed: bool) -> Option<Inside<'_>> {
        if !may_enter {
            // Release: as in `Inside::drop`. No model: there the fence above releases, which is
            // none where the kernel has it made.
            self.door.store(false, Ordering::Release);
            return None;
        }
        let bins = self.bins.with_mut(|bins| bins);
        // SAFETY: no other may reach it meanwhile. No other thread enters, and this one was not
        // inside: who called `enter` says so. No claimer: one whose flag was not seen sees the
        // door, by the two fences between, and waits until what is made here drops.
        let bins = unsafe { &mut *bins };
        Some(Inside { cache: self, is_closed, bins })
    }
}

/// The owner's stay in its cache.
#[derive(Debug)]
pub(in crate::memory::allocator) struct Inside<'a> {
    cache: &'a ThreadCache,
    /// True for a closed cache.
    is_closed: bool,
    pub(super) bins: &'a mut Bins,
}

impl Inside<'_> {
    pub(super) fn is_of(&self, cache: &ThreadCache) -> bool {
        ptr::eq(self.cache, cache)
    }

    /// True for a closed cache, which has no pieces and gets none.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Opens the cache. The caller has the allocator's lock.
    pub(super) fn open(&mut self) {
        self.is_closed = false;
        // Relaxed: of those that pass a closed cache by, a thread that is to see what is kept from
        // now on has had the allocator's lock since. Partner: `ThreadCache::is_closed`.
        self.cache.gate.fetch_and(!CLOSED, Ordering::Relaxed);
    }

    /// Closes the emptied cache.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        // Relaxed: the lock of the list of caches orders this before `ThreadCache::is_closed`.
        self.cache.gate.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cache.bins.with_mut(|_| ()); // so that models see how long it was in use
        // Release: pairs with a claimer's look.
        self.cache.door.store(false, Ordering::Release);
    }
}

/// Another thread's right to a cache.
#[derive(Debug)]
pub(super) struct Claimed<'a>(&'a ThreadCache);

#[cfg(all(test, not(loom)))]
thread_local! {
    /// Claims of this thread with something to claim, and its looks at doors that were shut.
    pub(super) static CLAIMS: Unshared<u64> = const { Unshared::new(0) };
    pub(super) static LOOKS: Unshared<u64> = const { Unshared::new(0) };
}

/// Caches whose threads are kept out.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    pub(super) claimed: Vec<Claimed<'a>>,
    /// False when a thread was inside, whose cache is not among them.
    pub(super) is_whole: bool,
}

/// Keeps the threads of some caches out, but for those that are inside and stay there: one fence
/// for all of them. One thread at a time claims a cache.
pub(super) fn claim<'a>(caches: impl IntoIterator<Item = &'a Arc<ThreadCache>>) -> Claims<'a> {
    let publish = |cache: &'a Arc<ThreadCache>| {
        // Relaxed: the lock of the list of caches orders claims. The fence orders it before the
        // look; partner: `ThreadCache::enter`.
        let was = cache.gate.fetch_or(CLAIMED, Ordering::Relaxed);
        assert_eq!(was & CLAIMED, 0, "whoever claims has the lock of the list of caches");
        Claimed(cache)
    };
    let mut claimed: Vec<_> = caches.into_iter().map(publish).collect();
    if claimed.is_empty() {
        return Claims { claimed, is_whole: true }; // the fence is a call of the system
    }
    asymmetric::heavy();
    #[cfg(all(test, not(loom)))]
    CLAIMS.set(CLAIMS.get() + 1);
    let (count, mut looks) = (claimed.len(), 0);
    claimed.retain(|Claimed(cache)| {
        // Acquire: pairs with the thread's leaving; what it did here is visible. In a forked child
        // the other threads are gone, wherever they were.
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

impl Claimed<'_> {
    pub(super) fn with<R>(&mut self, with: impl FnOnce(&mut Bins) -> R) -> R {
        // SAFETY: no other may reach it meanwhile. No other claimer: `claim` was the one that
        // raised the flag. Not the owner: `claim` saw it outside after its fence, and it looks at
        // the flag behind its own fence until this is dropped.
        self.0.bins.with_mut(|bins| with(unsafe { &mut *bins }))
    }

    /// Says that nothing is cached: all of it was taken out.
    pub(super) fn close(&mut self) {
        // Relaxed: as `Inside::close`; the thread sees it with the end of the claim.
        self.0.gate.fetch_or(CLOSED, Ordering::Relaxed);
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // Release: pairs with the thread's next look, and the next claim.
        self.0.gate.fetch_and(!CLAIMED, Ordering::Release);
    }
}

/// The one that was used last, if any.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory::allocator) struct LastUsed(pub(super) *const ThreadCache);

thread_local! {
    /// The cache of one of the entries of this thread's `LOCAL`, in which the thread is not, or
    /// null: `make_last_used` sets it, and it is cleared before an entry goes and as long as the
    /// thread stays inside.
    ///
    /// Needs no drop: it is there as long as the thread is, found in a step.
    pub(super) static LAST_USED: Unshared<LastUsed> =
        const { Unshared::new(LastUsed(ptr::null())) };
}

impl LastUsed {
    /// Of this thread. Where libraries are loaded late it is a call, and best the first thing that
    /// is done.
    #[inline(always)]
    pub(crate) fn get() -> Self {
        LAST_USED.get()
    }

    /// In a forked child nothing is served from what the parent's thread has cached.
    pub(crate) fn forget() {
        LAST_USED.set(Self(ptr::null()));
    }

    /// To be entered by this thread, by the id of caches that are there until it has left: then it
    /// is there as well.
    ///
    /// # Safety
    /// It was read by this thread after it entered a cache last.
    #[inline(always)]
    pub(super) unsafe fn cache<'a>(self) -> Option<&'a ThreadCache> {
        // SAFETY: by the invariant of `LAST_USED` an entry of this thread has it, if there is one:
        // what was copied from there may not leave the thread. Entries go in `make_last_used` and
        // at the thread's end alone, neither of which happens between the copy and the use: they
        // are of allocators that are gone, or no code of ours runs on this thread any more.
        unsafe { self.0.as_ref() }
    }
}

/// This thread's stay in its cache. Meanwhile it does not find it.
#[derive(Debug)]
pub(super) struct CacheGuard<'a> {
    pub(super) inside: Inside<'a>,
    pub(super) last_used: LastUsed,
}

impl<'a> Deref for CacheGuard<'a> {
    type Target = Inside<'a>;

    fn deref(&self) -> &Inside<'a> {
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
        LAST_USED.set(self.last_used); // it is of the entry that it was of: this allocator is there
    }
}
