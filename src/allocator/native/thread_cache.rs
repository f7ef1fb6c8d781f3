//! What one thread keeps of the pieces that it freed, to have them again without a lock.
//!
//! A cache belongs to one thread, and others may reach into it: to empty it, or to add up what it
//! counts. The thread enters and leaves around each use with two stores; another one claims the
//! cache, waits until the thread is outside, and keeps it outside meanwhile.
//!
//! | | thread enters | other claims |
//! |---|---|---|
//! | publishes | `INSIDE` in `door` | `CLAIMED` in `gate` |
//! | fence | `asymmetric::light` | `asymmetric::heavy` |
//! | looks at | `gate`: stays out | `door`: waits |
//!
//! One look tells the thread whether it is outside and whether the cache is of the allocator that
//! it wants, another one whether it is claimed and whether its own fence costs something.
#![expect(unsafe_code, reason = "plain values that one thread at a time reaches, by that protocol")]

use std::cell::Cell as Unshared;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::allocator::native::kept::Kept;
use crate::sync::{AtomicU8, AtomicU64, Ordering, UnsafeCell, spin_hint};
use crate::{asymmetric, fork};

/// In the door: the thread is inside. It is the id of no allocator.
pub(super) const INSIDE: u64 = 0;
/// In the gate: the thread is to stay out.
const CLAIMED: u8 = 1;
/// In the gate, for good: the thread's fence is one that processors know of.
const FENCED: u8 = 2;

/// The cache of one thread for one allocator. On cache lines of its own, two for processors that
/// fetch them in pairs: what one thread writes all the time is in no other's way.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ThreadCache {
    /// The id of its allocator while the thread is outside.
    door: AtomicU64,
    gate: AtomicU8,
    kept: UnsafeCell<Kept>,
}

// SAFETY: `kept` is plain values, which may go from thread to thread, and is reached through
// `ThreadCache::enter` and `Claimed::with` alone: never by two threads at a time, and what one did
// happened before the next comes. The flags of this file keep that; see its head.
unsafe impl Sync for ThreadCache {}

/// The thread's own end of a cache, of which there is one: it alone enters.
#[derive(Debug)]
pub(super) struct Owner {
    cache: Arc<ThreadCache>,
    /// It may go to another thread, but two cannot have it.
    is_unshared: PhantomData<Unshared<()>>,
}

impl Owner {
    /// A cache that is empty, of the allocator with an id.
    pub(super) fn new(id: u64) -> Self {
        assert_ne!(id, INSIDE, "allocators are numbered from 1");
        let gate = if asymmetric::is_light_free() { 0 } else { FENCED };
        let cache = ThreadCache {
            door: AtomicU64::new(id),
            gate: AtomicU8::new(gate),
            kept: UnsafeCell::new(Kept::new()),
        };
        Self { cache: Arc::new(cache), is_unshared: PhantomData }
    }

    /// The end that others claim.
    pub(super) fn cache(&self) -> &Arc<ThreadCache> {
        &self.cache
    }

    /// As [`ThreadCache::enter`].
    #[cfg(all(test, loom))]
    pub(super) fn enter(&self, id: u64) -> Option<Inside<'_>> {
        // SAFETY: this is the owner's thread: the owner is there once, and is not shared.
        unsafe { self.cache.enter(id) }
    }
}

impl ThreadCache {
    /// Goes inside the cache of the allocator with an id. `None` when it is of another one, while
    /// another thread has claimed it, and when the thread is inside already.
    ///
    /// # Safety
    /// The calling thread has its [`Owner`], and keeps what is returned.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) unsafe fn enter(&self, id: u64) -> Option<Inside<'_>> {
        // Relaxed: this thread alone writes it.
        if self.door.load(Ordering::Relaxed) != id {
            return None;
        }
        // Relaxed: the fence orders it before the look; partner: `claim`.
        self.door.store(INSIDE, Ordering::Relaxed);
        asymmetric::light_if_free();
        // Acquire: pairs with the end of a claim; what it did here is visible.
        if self.gate.load(Ordering::Acquire) != 0 && !self.is_open_behind_fence() {
            // Release: as in `Inside::drop`.
            self.door.store(id, Ordering::Release);
            return None;
        }
        let kept = self.kept.with_mut(|kept| kept);
        // SAFETY: nobody else may reach it meanwhile. No other thread enters: see above. No second
        // time from here: the door was not `INSIDE`. No claimer: one whose flag was not seen sees
        // the door, by the two fences between, and waits until what is made here drops.
        let kept = unsafe { &mut *kept };
        Some(Inside { cache: self, id, kept })
    }
}

impl ThreadCache {
    /// The look at the gate once more, behind a fence that holds everywhere.
    #[cold]
    fn is_open_behind_fence(&self) -> bool {
        asymmetric::light();
        // Acquire: as in `enter`.
        self.gate.load(Ordering::Acquire) & CLAIMED == 0
    }
}

/// The owner's stay in its cache.
#[derive(Debug)]
pub(in crate::allocator) struct Inside<'a> {
    cache: &'a ThreadCache,
    id: u64,
    pub(super) kept: &'a mut Kept,
}

impl Inside<'_> {
    /// True when this is the cache.
    pub(super) fn is_of(&self, cache: &ThreadCache) -> bool {
        std::ptr::eq(self.cache, cache)
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    fn drop(&mut self) {
        self.cache.kept.with_mut(|_| ()); // so that models see how long it was in use
        // Release: pairs with a claimer's look.
        self.cache.door.store(self.id, Ordering::Release);
    }
}

/// The right of another thread to a cache.
#[derive(Debug)]
pub(super) struct Claimed<'a>(&'a ThreadCache);

/// Keeps the threads of some caches out, waiting until they are: one fence for all of them. One
/// thread at a time claims a cache.
pub(super) fn claim<'a>(
    caches: impl IntoIterator<Item = &'a Arc<ThreadCache>>,
) -> Vec<Claimed<'a>> {
    let publish = |cache: &'a Arc<ThreadCache>| {
        // Acquire: pairs with the end of the last claim; what it did here is visible. The fence
        // orders it before the look; partner: `ThreadCache::enter`.
        let was = cache.gate.fetch_or(CLAIMED, Ordering::Acquire);
        assert_eq!(was & CLAIMED, 0, "whoever claims has the lock of the list of caches");
        Claimed(cache)
    };
    let claimed: Vec<_> = caches.into_iter().map(publish).collect();
    if claimed.is_empty() {
        return claimed; // the fence is a call of the system
    }
    asymmetric::heavy();
    for Claimed(cache) in &claimed {
        // Acquire: pairs with the thread's leaving; what it did here is visible. In a forked child
        // the other threads are gone, wherever they were.
        while cache.door.load(Ordering::Acquire) == INSIDE && !fork::is_child() {
            spin_hint();
        }
    }
    claimed
}

impl Claimed<'_> {
    pub(super) fn with<R>(&mut self, with: impl FnOnce(&mut Kept) -> R) -> R {
        // SAFETY: nobody else may reach it meanwhile. No other claimer: `claim` was the one that
        // raised the flag. Not the owner: `claim` saw it outside after its fence, and it looks at
        // the flag behind its own fence until this is dropped.
        self.0.kept.with_mut(|kept| with(unsafe { &mut *kept }))
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // Release: pairs with the thread's next look, and the next claim.
        self.0.gate.fetch_and(!CLAIMED, Ordering::Release);
    }
}
