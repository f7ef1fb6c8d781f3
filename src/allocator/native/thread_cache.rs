//! What one thread keeps of the pieces that it freed, to have them again without a lock.
//!
//! A cache belongs to one thread, and others may reach into it: to empty it, or to add up what it
//! counts. The thread enters and leaves around each use with two stores; another one claims the
//! cache, waits until the thread is outside, and keeps it outside meanwhile.
//!
//! | | thread enters | other claims |
//! |---|---|---|
//! | publishes | `is_inside` | `CLAIMED` in `gate` |
//! | fence | `asymmetric::light` | `asymmetric::heavy` |
//! | looks at | `gate`: stays out | `is_inside`: waits |
//!
//! Where the thread's fence costs something, the gate says so as well: one look tells both.
#![expect(unsafe_code, reason = "plain values that one thread at a time reaches, by that protocol")]

use std::cell::Cell as Unshared;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::allocator::native::kept::Kept;
use crate::sync::{AtomicBool, AtomicU8, Ordering, UnsafeCell, spin_hint};
use crate::{asymmetric, fork};

/// In the gate: the thread is to stay out.
const CLAIMED: u8 = 1;
/// In the gate, for good: the thread's fence is one that processors know of.
const FENCED: u8 = 2;

/// The cache of one thread for one allocator. On cache lines of its own, two for processors that
/// fetch them in pairs: what one thread writes all the time is in no other's way.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ThreadCache {
    is_inside: AtomicBool,
    gate: AtomicU8,
    kept: UnsafeCell<Kept>,
}

// SAFETY: `kept` is plain values, which may go from thread to thread, and is reached through
// `Owner::enter` and `Claimed::with` alone: never by two threads at a time, and what one did
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
    /// A cache that is empty.
    pub(super) fn new() -> Self {
        let gate = if asymmetric::is_light_free() { 0 } else { FENCED };
        let cache = ThreadCache {
            is_inside: AtomicBool::new(false),
            gate: AtomicU8::new(gate),
            kept: UnsafeCell::new(Kept::default()),
        };
        Self { cache: Arc::new(cache), is_unshared: PhantomData }
    }

    /// The end that others claim.
    pub(super) fn cache(&self) -> &Arc<ThreadCache> {
        &self.cache
    }

    /// Goes inside; `None` while another thread has claimed the cache, and when it is inside.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a step of the path that takes nanoseconds")]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        let cache = &*self.cache;
        // Relaxed: this thread alone writes it.
        if cache.is_inside.load(Ordering::Relaxed) {
            return None;
        }
        // Relaxed: the fence orders it before the look; partner: `claim`.
        cache.is_inside.store(true, Ordering::Relaxed);
        asymmetric::light_if_free();
        // Acquire: pairs with the end of a claim; what it did here is visible.
        if cache.gate.load(Ordering::Acquire) != 0 && !cache.is_open_behind_fence() {
            // Release: as in `Inside::drop`.
            cache.is_inside.store(false, Ordering::Release);
            return None;
        }
        let kept = cache.kept.with_mut(|kept| kept);
        // SAFETY: nobody else may reach it meanwhile. No other owner: there is one, at one thread.
        // No second time from here: `is_inside` was false. No claimer: one whose flag was not seen
        // sees `is_inside`, by the two fences between, and waits until what is made here drops.
        let kept = unsafe { &mut *kept };
        Some(Inside { cache, kept })
    }
}

impl ThreadCache {
    /// The look at the gate once more, behind a fence that holds everywhere.
    #[cold]
    fn is_open_behind_fence(&self) -> bool {
        asymmetric::light();
        // Acquire: as in `Owner::enter`.
        self.gate.load(Ordering::Acquire) & CLAIMED == 0
    }
}

/// The owner's stay in its cache.
#[derive(Debug)]
pub(in crate::allocator) struct Inside<'a> {
    cache: &'a ThreadCache,
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
        self.cache.is_inside.store(false, Ordering::Release);
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
        // orders it before the look; partner: `Owner::enter`.
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
        while cache.is_inside.load(Ordering::Acquire) && !fork::is_child() {
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
