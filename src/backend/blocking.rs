//! Tells a pool that one of its threads blocks, so that it can start another one meanwhile.
//!
//! A pool registers a hook on each of its threads; whoever makes a thread wait asks for it here. On
//! a thread without a hook nothing happens.

use std::cell::RefCell;
use std::sync::Arc;

/// What a pool wants to know.
pub(crate) trait BlockingHook {
    /// The calling thread is about to block.
    fn begin(&self);
    /// It no longer blocks.
    fn end(&self);
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
    // While the thread's own locals are being dropped it is no worker of anybody any more.
    let hook = HOOK.try_with(|hook| hook.borrow().clone()).ok().flatten();
    let _end = hook.map(|hook| {
        hook.begin();
        End(hook)
    });
    wait()
}
