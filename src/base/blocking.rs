//! Tells a pool that one of its threads blocks, so that it can start another one meanwhile.
//!
//! A pool registers a hook on each of its threads; whoever makes a thread wait asks for it here. On
//! a thread without a hook nothing happens.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// Between two tries to start a thread that the system refused.
const RETRY_PERIOD: Duration = Duration::from_millis(10);

/// What a pool wants to know.
pub(crate) trait BlockingHook {
    /// The calling thread is about to block.
    fn begin(&self);
    /// It no longer blocks.
    fn end(&self);
    /// Asked while it blocks: tries again to start a thread that the system refused. True when it
    /// is refused still; a pool that is refused one later unparks the thread.
    fn try_again(&self) -> bool {
        false
    }
}

thread_local! {
    static HOOK: RefCell<Option<Arc<dyn BlockingHook>>> = const { RefCell::new(None) };
}

/// From now on `hook` is told when this thread blocks.
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

/// Asked before each park inside of [`while_blocked`]: how long that may be, for the sake of the
/// pool, which has tried again then what the system refused it. `None` when it misses nothing.
pub(crate) fn longest_park() -> Option<Duration> {
    hook().is_some_and(|hook| hook.try_again()).then_some(RETRY_PERIOD)
}

fn hook() -> Option<Arc<dyn BlockingHook>> {
    // `try_with`: handlers at the exit of a process run after the thread's own variables are gone.
    HOOK.try_with(|hook| hook.borrow().clone()).ok().flatten()
}
