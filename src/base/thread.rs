//! What concerns one thread: its signals, its stack, its panics, and when it is about to block.
//!
//! # Blocking
//!
//! A pool registers a hook on each of its threads. Code that blocks calls the hook of its thread
//! through this module. On a thread without a hook, these calls have no effect.
#![expect(unsafe_code, reason = "calls the system's signal functions")]

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// The signals that a thread gets for its own faults. If a thread blocked these signals, a fault
/// would end the process silently: no handler of Python, Rust or a crash reporter could report the
/// fault's location.
const SYNCHRONOUS_SIGNALS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Calls `start` while this thread blocks all signals except the synchronous ones. Threads that
/// `start` starts inherit the mask.
pub fn with_signals_blocked<R>(start: impl FnOnce() -> R) -> R {
    let mut others = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to a set that the call initialises.
    unsafe { libc::sigfillset(others.as_mut_ptr()) };
    for signal in SYNCHRONOUS_SIGNALS {
        // SAFETY: the set was initialised above, and `signal` is a valid signal number.
        unsafe { libc::sigdelset(others.as_mut_ptr(), signal) };
    }
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `others` was initialised above. The call writes `before`, and cannot fail with these
    // arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, others.as_ptr(), before.as_mut_ptr()) };
    let result = start();
    // SAFETY: the first `pthread_sigmask` call initialised `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

/// The stack size of a worker. Native functions expect the stack of a main thread.
pub const WORKER_STACK_BYTES: usize = 8 << 20;

/// The tolerated shortfall of a stack. The thread's frames already use a part of the stack, and the
/// system uses a part of a main thread's eight mebibytes for the program's arguments and guards.
const TOLERANCE_BYTES: usize = 1 << 20;

/// The value of `LOWEST` for a stack that is too small: an address above every frame.
const TOO_SMALL: usize = usize::MAX;

thread_local! {
    /// The lowest frame address with enough stack below it; 0 before the first query.
    static LOWEST: Cell<usize> = const { Cell::new(0) };
}

/// True when a function called here has about as much stack as on a worker.
#[inline]
pub(crate) fn has_worker_size() -> bool {
    let here = MaybeUninit::<u8>::uninit();
    let lowest = LOWEST.get();
    ptr::from_ref(&here).addr() >= if lowest == 0 { query() } else { lowest }
}

#[cold]
fn query() -> usize {
    let needed_bytes = WORKER_STACK_BYTES - TOLERANCE_BYTES;
    // A stack without a description counts as too small: the C library describes workers' stacks.
    let lowest = lowest_address().map_or(TOO_SMALL, |lowest| lowest.saturating_add(needed_bytes));
    LOWEST.set(lowest);
    lowest
}

/// The lowest address of the calling thread's stack. For a main thread this is the lowest address
/// that the limit lets the stack grow to.
fn lowest_address() -> Option<usize> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the function has no pre-condition.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the handle is the calling thread's, and the call initialises the attributes behind
    // the pointer when it returns 0.
    let refused = unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) };
    if refused != 0 {
        return None;
    }
    let (mut lowest, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the attributes were initialised above, and both pointers are to variables here.
    let refused = unsafe {
        libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut bytes)
    };
    // SAFETY: the attributes were initialised above, and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (refused == 0 && bytes > 0).then(|| lowest.addr())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Calls `ask` on a new thread with a stack of `bytes`.
    fn on_a_stack_of<R: Send + 'static>(bytes: usize, ask: fn() -> R) -> R {
        std::thread::Builder::new().stack_size(bytes).spawn(ask).unwrap().join().unwrap()
    }

    #[test]
    fn a_stack_is_as_large_as_a_workers_up_to_the_tolerance() {
        assert!(on_a_stack_of(WORKER_STACK_BYTES, has_worker_size));
        assert!(on_a_stack_of(64 << 20, has_worker_size));
        // The C library may reuse an ended thread's stack, but no stack of four times the size.
        assert!(!on_a_stack_of(WORKER_STACK_BYTES / 8, has_worker_size));
        assert!(!on_a_stack_of(256 << 10, has_worker_size));
    }

    #[test]
    fn used_stack_counts_and_released_stack_does_not() {
        #[inline(never)]
        fn below(used_bytes: usize) -> bool {
            let room = [0_u8; 16 << 10];
            let rest = used_bytes.saturating_sub(black_box(&room).len());
            if rest == 0 { has_worker_size() } else { black_box(below(rest)) }
        }
        let asked = on_a_stack_of(WORKER_STACK_BYTES, || {
            [has_worker_size(), below(2 * TOLERANCE_BYTES), has_worker_size()]
        });
        assert_eq!(asked, [true, false, true]);
    }
}

/// Calls `act` and catches its panic. The panic hook has printed the message by then.
pub fn contain(act: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(act))
        && !panic.is::<&str>()
        && !panic.is::<String>()
    {
        std::mem::forget(panic); // the drop of this value may panic too
    }
}

#[cfg(all(test, not(loom)))]
mod contain_tests {
    use super::*;

    /// A panic payload that panics when it is dropped.
    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_panic_is_contained_and_so_is_that_of_its_payload() {
        let mut is_called = false;
        contain(|| is_called = true);
        assert!(is_called);
        contain(|| panic!("on purpose"));
        contain(|| std::panic::panic_any(PanicsOnDrop));
    }
}

/// The time between two attempts to start a thread that the system refused.
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// The functions by which a pool learns that one of its threads blocks.
pub(crate) trait BlockingHook {
    /// Called by the thread before it blocks.
    fn begin(&self);
    /// Called by the thread when it no longer blocks, also after a panic.
    fn end(&self);
    /// Called by the blocked thread before each park. Retries to start a thread that the system
    /// refused. True when the system still refuses. If the system refuses another thread later, the
    /// pool unparks the blocked thread.
    fn try_again(&self) -> bool {
        false
    }
}

thread_local! {
    static HOOK: RefCell<Option<Arc<dyn BlockingHook>>> = const { RefCell::new(None) };
    /// True inside of `while_blocked` on a thread with a hook. A pool counts such a thread once.
    static IS_BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Registers the calling thread's hook, and replaces an earlier hook.
pub(crate) fn set_hook(hook: Arc<dyn BlockingHook>) {
    HOOK.replace(Some(hook));
}

/// Calls `wait`, which may block this thread, between the `begin` and `end` of the thread's hook.
/// Inside of another such call, as a function that may block and then waits for a stream, it only
/// calls `wait`.
pub fn while_blocked<R>(wait: impl FnOnce() -> R) -> R {
    struct End(Arc<dyn BlockingHook>);
    impl Drop for End {
        fn drop(&mut self) {
            IS_BLOCKED.set(false);
            self.0.end();
        }
    }
    let _end = hook().filter(|_| !IS_BLOCKED.replace(true)).map(|hook| {
        hook.begin();
        End(hook)
    });
    wait()
}

/// Called before each park within [`while_blocked`]. Lets the pool retry to start a thread that the
/// system refused. Returns the longest time to park before the next retry; `None` when no start is
/// pending.
#[must_use]
pub fn longest_park() -> Option<Duration> {
    hook().is_some_and(|hook| hook.try_again()).then_some(RETRY_PERIOD)
}

fn hook() -> Option<Arc<dyn BlockingHook>> {
    // `try_with`: handlers at process exit call this after the thread-locals are destroyed.
    HOOK.try_with(|hook| hook.borrow().clone()).ok().flatten()
}
