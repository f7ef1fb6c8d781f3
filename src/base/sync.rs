//! The one door to atomics, locks and parking: std in production, loom's models under `--cfg loom`.
//!
//! Orderings. A protocol of the shape "publish mine, then look at yours" (Dekker) uses `SeqCst` on
//! all four accesses, which is enough in the language's model and costs no fence on x86 where the
//! publishing access is a read-modify-write. loom treats `SeqCst` accesses as `AcqRel`; in models
//! the atomics add what is missing, so that a model fails when any of the four asks for less
//! (`sync/modelled.rs`).
//!
//! Locks have ranks: a thread takes them in increasing order, which debug builds assert. No lock is
//! held while the GIL is asked for, a user's function runs or a device is waited for.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(loom)]
mod modelled;
#[cfg(all(test, loom))]
pub(crate) mod models;

#[cfg(loom)]
pub(crate) use self::modelled::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

pub(crate) use std::sync::atomic::{Ordering, compiler_fence};

/// `thread_local`, of which each thread of a model has its own.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $initial:expr;) => {
        #[cfg(not(loom))]
        thread_local! {
            $(#[$attribute])*
            static $name: $type = const { $initial };
        }
        #[cfg(loom)]
        loom::thread_local! {
            $(#[$attribute])*
            static $name: $type = $initial;
        }
    };
}
pub(crate) use per_thread;

/// A place that a value's users read and whoever frees it writes: lets loom see a free that does
/// not come after every use, and one that never comes. Nothing outside of models.
pub(crate) struct Life {
    #[cfg(loom)]
    place: loom::alloc::Track<UnsafeCell<()>>,
}

#[cfg_attr(not(loom), expect(clippy::unused_self, reason = "there is nothing outside of models"))]
impl Life {
    pub(crate) fn new() -> Self {
        #[cfg(loom)]
        let place = loom::alloc::Track::new(UnsafeCell::new(()));
        Self {
            #[cfg(loom)]
            place,
        }
    }

    #[inline]
    pub(crate) fn note_use(&self) {
        #[cfg(loom)]
        self.place.get_ref().with(|_| ());
    }

    #[inline]
    pub(crate) fn note_end(&self) {
        #[cfg(loom)]
        self.place.get_ref().with_mut(|_| ());
    }
}

/// Atomics for statics and counters that no model covers; loom's cannot be built in constants.
pub(crate) mod unmodelled {
    pub(crate) use std::sync::atomic::AtomicPtr;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
}

/// `UnsafeCell` with loom's closure interface, so that models see every access.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer that the caller may read from while nobody writes.
    #[inline(always)]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer that the caller alone may use.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// A fence, in models too.
#[inline]
#[cfg_attr(loom, track_caller)]
pub(crate) fn fence(ordering: Ordering) {
    #[cfg(not(loom))]
    std::sync::atomic::fence(ordering);
    #[cfg(loom)]
    modelled::fence(ordering);
}

/// One turn of a spin loop.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Gives the rest of this thread's time slice away.
#[inline]
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Where a lock stands in the order in which one thread may take several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LockRank {
    /// Where one library that prints verbose lines is.
    Libraries = 4,
    /// The verbose levels of one library.
    VerboseLevels = 5,
    /// Whether descriptor 1 is a pipe of ours.
    Capture = 6,
    /// What reads that pipe.
    Drain = 7,
    /// Start, fork and shutdown of a runtime.
    Runtime = 10,
    /// The default generators of a runtime.
    Defaults = 12,
    /// What a runtime's generators know of its devices.
    Generators = 14,
    /// The streams of one device.
    StreamTable = 20,
    /// The threads' caches of the host heap, or the slabs of one of its sizes.
    #[cfg(not(loom))]
    HostHeap = 24,
    /// Which threads have caches of one allocator.
    ThreadCaches = 25,
    /// What the allocator of one device knows.
    Allocator = 30,
    /// The errors of one stream, and the threads that synchronise with it.
    ErrorLog = 40,
    /// What one synchronising thread is told.
    SyncPoint = 45,
    /// The frontier history of one stream.
    Frontier = 50,
    /// What is held until a device has passed a task of one driver stream.
    Marks = 60,
    /// Who waits for one stream's counter.
    Waiters = 70,
    /// What one deferred task's end is waited for with.
    Gate = 75,
    /// The worker threads of one device.
    Workers = 78,
    /// Work handed to the threads of one device.
    RunQueue = 80,
    /// Bookkeeping inside one backend: the innermost.
    Backend = 90,
    /// What the Python bindings know of objects.
    Bindings = 95,
}

thread_local! {
    /// Of the locks that this thread holds, oldest first; used in debug builds.
    static HELD_RANKS: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) };
}

/// Calls `check` with the ranks held by this thread, in debug builds. At the exit of a process the
/// handlers run after the thread's own variables are gone: nothing is checked then.
fn with_held_ranks(check: impl FnOnce(&mut Vec<LockRank>)) {
    if cfg!(debug_assertions) {
        let _ = HELD_RANKS.try_with(|held| check(&mut held.borrow_mut()));
    }
}

fn rank_taken(rank: LockRank) {
    with_held_ranks(|held| {
        if let Some(last) = held.last() {
            assert!(*last < rank, "lock {rank:?} taken while {last:?} is held: wrong order");
        }
        held.push(rank);
    });
}

fn rank_given_back(rank: LockRank) {
    with_held_ranks(|held| {
        let position = held.iter().rposition(|taken| *taken == rank);
        held.remove(position.expect("a lock that is given back was taken by this thread"));
    });
}

/// Asserts in debug builds that this thread holds no lock of ours: before a user's function or a
/// wait for a device (law 7).
#[inline]
pub(crate) fn assert_no_lock_held() {
    with_held_ranks(|held| {
        assert!(held.is_empty(), "held across a user's function or a wait: {held:?}");
    });
}

// The standard library's: a forked child may wait for it. Locks that park threads in one table of
// the process find that table locked, by a thread that the child does not have.
#[cfg(not(loom))]
type InnerMutex<T> = std::sync::Mutex<T>;
#[cfg(not(loom))]
type InnerGuard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(loom)]
type InnerMutex<T> = loom::sync::Mutex<T>;
#[cfg(loom)]
type InnerGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// A mutex without poisoning, with a rank.
pub(crate) struct Mutex<T> {
    rank: LockRank,
    inner: InnerMutex<T>,
}

impl<T> Mutex<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(rank: LockRank, value: T) -> Self {
        Self { rank, inner: InnerMutex::new(value) }
    }

    #[cfg(loom)]
    pub(crate) fn new(rank: LockRank, value: T) -> Self {
        Self { rank, inner: InnerMutex::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        rank_taken(self.rank);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { rank: self.rank, inner }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({:?})", self.rank)
    }
}

/// Access to what a [`Mutex`] holds, until dropped.
pub(crate) struct MutexGuard<'a, T> {
    rank: LockRank,
    inner: InnerGuard<'a, T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        rank_given_back(self.rank);
    }
}

#[cfg(loom)]
pub(crate) use loom::thread::Thread;
#[cfg(not(loom))]
pub(crate) use std::thread::Thread;

/// The calling thread.
pub(crate) fn current_thread() -> Thread {
    #[cfg(not(loom))]
    return std::thread::current();
    #[cfg(loom)]
    return loom::thread::current();
}

/// A thread that sleeps until somebody wakes it; a wake before the sleep is not lost.
#[derive(Debug)]
pub(crate) struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Sleeper {
    /// For the calling thread, which alone may sleep on it.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { thread: current_thread(), is_woken: AtomicBool::new(false) })
    }

    /// Ends the sleep.
    pub(crate) fn wake(&self) {
        // Release: pairs with `is_woken`.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// True once somebody called [`Sleeper::wake`].
    pub(crate) fn is_woken(&self) -> bool {
        // Acquire: pairs with `wake`; what the waker wrote is visible.
        self.is_woken.load(Ordering::Acquire)
    }

    /// Sleeps until woken, and is ready for another sleep then.
    pub(crate) fn sleep(&self) {
        while !self.is_woken() {
            park(None);
        }
        self.get_ready();
    }

    /// As [`Sleeper::sleep`]. False when `end` comes first: somebody may still wake it.
    pub(crate) fn sleep_until(&self, end: Instant) -> bool {
        while !self.is_woken() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            park(Some(left));
        }
        self.get_ready();
        true
    }

    fn get_ready(&self) {
        // Relaxed: whoever wakes next has learned of this sleeper after this.
        self.is_woken.store(false, Ordering::Relaxed);
    }
}

/// Sleeps until this thread is woken, `timeout` passed, or for no reason: callers loop.
pub(crate) fn park(timeout: Option<Duration>) {
    #[cfg(not(loom))]
    match timeout {
        Some(timeout) => std::thread::park_timeout(timeout),
        None => std::thread::park(),
    }
    #[cfg(loom)]
    {
        // A model has no clock: a timed wait is one that is always woken.
        let _ = timeout;
        loom::thread::park();
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "wrong order")]
    fn locks_taken_against_their_ranks_are_caught() {
        let inner = Mutex::new(LockRank::Backend, ());
        let outer = Mutex::new(LockRank::Runtime, ());
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[test]
    #[should_panic(expected = "held across")]
    fn a_lock_across_a_users_function_is_caught() {
        let lock = Mutex::new(LockRank::Runtime, ());
        let _held = lock.lock();
        assert_no_lock_held();
    }
}
