//! Notifies a thread pool when one of its threads blocks, so that the pool can start a substitute.
//!
//! A pool registers a hook on each of its threads. Code that blocks calls the hook of its thread
//! through this module. On a thread without a hook, these calls have no effect.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

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
