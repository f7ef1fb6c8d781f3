//! The only source of atomics, mutexes and parking: std in production, loom under `--cfg loom`.
//!
//! Orderings. A protocol in which each side stores its value and then loads the other side's value
//! (Dekker) uses `SeqCst` on all four accesses, or the fences of `asymmetric`. `SeqCst` is enough
//! in the language's model, and costs no fence on x86 if the store is a read-modify-write. loom
//! treats `SeqCst` accesses as `AcqRel`. In models the atomics add the missing fences, so that a
//! model fails when any of the four accesses is weaker (`sync/modelled.rs`).
//!
//! Locks have ranks. A thread takes locks in increasing order of rank, which debug builds assert. A
//! thread holds no lock while it acquires the GIL, runs a user's function or waits for a device.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Wake;
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

/// Declares a `thread_local`, which under loom has a separate value for each thread of a model.
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

/// Lets loom report a free that is not ordered after every use, and a missing free. Uses read the
/// cell, and the free writes it. Empty outside of models.
pub(crate) struct LifetimeTracker {
    #[cfg(loom)]
    cell: loom::alloc::Track<UnsafeCell<()>>,
}

#[cfg_attr(not(loom), expect(clippy::unused_self, reason = "there is nothing outside of models"))]
impl LifetimeTracker {
    pub(crate) fn new() -> Self {
        #[cfg(loom)]
        let cell = loom::alloc::Track::new(UnsafeCell::new(()));
        Self {
            #[cfg(loom)]
            cell,
        }
    }

    #[inline]
    pub(crate) fn note_use(&self) {
        #[cfg(loom)]
        self.cell.get_ref().with(|_| ());
    }

    #[inline]
    pub(crate) fn note_end(&self) {
        #[cfg(loom)]
        self.cell.get_ref().with_mut(|_| ());
    }
}

/// std's atomics, for statics and counters that no model covers: loom's constructors are not
/// `const`.
pub(crate) mod unmodelled {
    pub(crate) use std::sync::atomic::*;

    /// True in a forked child whose parent had initialised the runtime; `base::fork` sets it.
    pub(in crate::base) static IS_FORKED_CHILD: AtomicBool = AtomicBool::new(false);
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

    /// Calls `read` with a pointer that the caller may read from while no thread writes.
    #[inline(always)]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer that only the caller may use.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// A memory fence: std's, or loom's in models.
#[inline]
#[cfg_attr(loom, track_caller)]
pub(crate) fn fence(ordering: Ordering) {
    #[cfg(not(loom))]
    std::sync::atomic::fence(ordering);
    #[cfg(loom)]
    modelled::fence(ordering);
}

/// Tells the processor that this thread spins. Under loom, lets another thread run.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Yields the rest of this thread's time slice.
#[inline]
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// The rank of a lock, named after the protected data. A thread takes locks in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LockRank {
    /// The loaded copies of one library with verbose lines.
    Libraries = 4,
    /// The verbose levels of one library.
    VerboseLevels = 5,
    /// The pipes that captures have installed as descriptor 1.
    Capture = 6,
    /// The output that the reader of one pipe for descriptor 1 has collected.
    Drain = 7,
    /// A runtime's tables of streams and of allocators.
    Runtime = 10,
    /// The default generators of a runtime.
    Defaults = 12,
    /// The fill caches of a runtime's generators, by device.
    Generators = 14,
    /// The streams of one device.
    StreamTable = 20,
    /// The list of threads with caches of one allocator.
    ThreadCaches = 25,
    /// The state of the allocator of one device.
    Allocator = 30,
    /// The errors of one stream, and the threads that synchronise with it.
    ErrorLog = 40,
    /// The errors that consumers add for one synchronising thread.
    SyncPoint = 45,
    /// The frontier history of one stream.
    Frontier = 50,
    /// Values that one driver stream holds until the device has done a task.
    Marks = 60,
    /// The waiters for tickets of one stream.
    Waiters = 70,
    /// The latch of one deferred task.
    Latch = 75,
    /// The worker threads of one device.
    Workers = 78,
    /// The runnable streams and the sleeping workers of one device.
    RunQueue = 80,
    /// Internal state of one backend: the innermost lock of the engine.
    Backend = 90,
    /// The object tables of the bindings.
    Bindings = 95,
    /// Objects of Python, locked with the GIL held. A fork holds it too: a child finds them free.
    Python = 97,
    /// The rings of the log, and all its subscriptions, which every part of the runtime writes to.
    Log = 100,
}

thread_local! {
    /// The ranks of the locks that this thread holds, oldest first; used in debug builds.
    static HELD_RANKS: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) };
}

/// Calls `check` with the ranks that this thread holds, in debug builds. Does nothing after the
/// thread-locals are destroyed, when handlers at process exit still take locks.
fn with_held_ranks(check: impl FnOnce(&mut Vec<LockRank>)) {
    if cfg!(debug_assertions) {
        let _ = HELD_RANKS.try_with(|held| check(&mut held.borrow_mut()));
    }
}

fn note_acquisition(rank: LockRank) {
    with_held_ranks(|held| {
        if let Some(last) = held.last() {
            assert!(*last < rank, "lock {rank:?} taken while {last:?} is held: wrong order");
        }
        held.push(rank);
    });
}

fn note_release(rank: LockRank) {
    with_held_ranks(|held| {
        let position = held.iter().rposition(|taken| *taken == rank);
        held.remove(position.expect("a released lock was taken by this thread"));
    });
}

/// Asserts in debug builds that this thread holds no lock of the runtime. Called before a user's
/// function or a wait for a device.
///
/// # Panics
///
/// In debug builds, while this thread holds a lock.
#[inline]
pub fn assert_no_lock_held() {
    with_held_ranks(|held| {
        assert!(held.is_empty(), "held across a user's function or a wait: {held:?}");
    });
}

#[inline]
pub(super) fn is_forked_child() -> bool {
    // Relaxed: the child has one thread, and threads that it starts see the store.
    unmodelled::IS_FORKED_CHILD.load(Ordering::Relaxed)
}

// A mutex of parking_lot is a byte. It parks threads in a global table, which a thread that a
// forked child lacks may have locked; a child takes no lock (see `Mutex::lock`).
#[cfg(not(loom))]
type InnerMutex<T> = parking_lot::Mutex<T>;
#[cfg(not(loom))]
type InnerGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
#[cfg(loom)]
type InnerMutex<T> = loom::sync::Mutex<T>;
#[cfg(loom)]
type InnerGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// A mutex without poisoning, with a rank.
pub struct Mutex<T> {
    rank: LockRank,
    inner: InnerMutex<T>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked lock with a rank.
    #[cfg(not(loom))]
    pub const fn new(rank: LockRank, value: T) -> Self {
        Self { rank, inner: InnerMutex::new(value) }
    }

    #[cfg(loom)]
    pub(crate) fn new(rank: LockRank, value: T) -> Self {
        Self { rank, inner: InnerMutex::new(value) }
    }

    /// Locks; blocks while another thread holds the lock.
    ///
    /// # Panics
    ///
    /// In debug builds, in a forked child: a thread that the child lacks may hold the lock. Locks
    /// of verbose lines are exempt, because captures go on in a child, and so are Python's.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        debug_assert!(
            self.rank < LockRank::Runtime || self.rank == LockRank::Python || !is_forked_child(),
            "lock {:?} taken in a forked child",
            self.rank
        );
        note_acquisition(self.rank);
        #[cfg(not(loom))]
        let inner = self.inner.lock();
        #[cfg(loom)]
        let inner = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        MutexGuard { rank: self.rank, inner }
    }

    /// `None` when another thread holds the lock.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        #[cfg(not(loom))]
        let inner = self.inner.try_lock()?;
        #[cfg(loom)]
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        note_acquisition(self.rank);
        Some(MutexGuard { rank: self.rank, inner })
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({:?})", self.rank)
    }
}

/// Access to the value of a [`Mutex`], until dropped.
pub struct MutexGuard<'a, T> {
    rank: LockRank,
    inner: InnerGuard<'a, T>,
}

impl<T> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexGuard").finish_non_exhaustive()
    }
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
        note_release(self.rank);
    }
}

#[cfg(loom)]
pub(crate) use loom::thread::Thread;
#[cfg(not(loom))]
pub(crate) use std::thread::Thread;

pub(crate) fn current_thread() -> Thread {
    #[cfg(not(loom))]
    return std::thread::current();
    #[cfg(loom)]
    return loom::thread::current();
}

/// A thread that sleeps until another thread wakes it. A wake before the sleep is not lost.
#[derive(Debug)]
pub struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Sleeper {
    /// A sleeper for the calling thread, which is the only thread that may sleep on it.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { thread: current_thread(), is_woken: AtomicBool::new(false) })
    }

    /// Wakes the sleeping thread, or the next one to sleep.
    pub fn wake(&self) {
        // Release: pairs with `is_woken`.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// True after a wake that no sleep has used.
    pub fn is_woken(&self) -> bool {
        // Acquire: pairs with `wake`; the waker's writes are visible.
        self.is_woken.load(Ordering::Acquire)
    }

    /// Sleeps until woken, then resets the sleeper for another sleep.
    pub(crate) fn sleep(&self) {
        while !self.is_woken() {
            park(None);
        }
        self.reset();
    }

    /// As `sleep`. False when `end` comes first: a wake may still follow.
    pub fn sleep_until(&self, end: Instant) -> bool {
        while !self.is_woken() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            park(Some(left));
        }
        self.reset();
        true
    }

    fn reset(&self) {
        // Relaxed: the next waker learns of this sleeper after this store.
        self.is_woken.store(false, Ordering::Relaxed);
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }
}

/// Parks this thread until an unpark or until `timeout` has passed. May return earlier, so callers
/// loop.
pub fn park(timeout: Option<Duration>) {
    #[cfg(not(loom))]
    match timeout {
        Some(timeout) => std::thread::park_timeout(timeout),
        None => std::thread::park(),
    }
    #[cfg(loom)]
    {
        // loom has no clock: in a model only an unpark ends a timed wait.
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
