//! Notifies a pool when one of its threads blocks, so that the pool can start a substitute.
//!
//! A pool registers a hook on each of its threads. Code that blocks a thread calls its hook through
//! this module. On a thread without a hook the call has no effect.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// The time between two attempts to start a thread that the system refused.
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// The callbacks of a pool.
pub(crate) trait BlockingHook {
    /// The calling thread is about to block.
    fn begin(&self);
    /// The thread no longer blocks.
    fn end(&self);
    /// Called while the thread blocks. Tries again to start a thread that the system refused. True
    /// when the system still refuses. If the system refuses another thread later, the pool unparks
    /// the blocked thread.
    fn try_again(&self) -> bool {
        false
    }
}

thread_local! {
    static HOOK: RefCell<Option<Arc<dyn BlockingHook>>> = const { RefCell::new(None) };
}

/// Registers `hook`. Each later blocking call of this thread calls the hook.
pub(crate) fn set_hook(hook: Arc<dyn BlockingHook>) {
    HOOK.replace(Some(hook));
}

/// Calls `wait`, which may block this thread.
pub(crate) fn while_blocked<R>(wait: impl FnOnce() -> R) -> R {
    struct End(Arc<dyn BlockingHook>);
    impl Drop for End {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let _end = hook().map(|hook| {
        hook.begin();
        End(hook)
    });
    wait()
}

/// Called before each park within [`while_blocked`]. Lets the pool try again to start a thread that
/// the system refused. Returns the maximum time until the next attempt; `None` when no start is
/// pending.
pub(crate) fn longest_park() -> Option<Duration> {
    hook().is_some_and(|hook| hook.try_again()).then_some(RETRY_PERIOD)
}

fn hook() -> Option<Arc<dyn BlockingHook>> {
    // `try_with`: handlers at process exit call this after the thread-locals are destroyed.
    HOOK.try_with(|hook| hook.borrow().clone()).ok().flatten()
}
