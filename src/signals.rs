//! Signals are for the program's own threads: those that we start block all of them.
#![expect(unsafe_code, reason = "calls the system's signal functions")]

use std::mem::MaybeUninit;

/// Calls `start` while this thread blocks all signals: threads it starts inherit that.
pub(crate) fn with_signals_blocked<R>(start: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to a set that the call initialises.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first set was initialised above, the second is written by the call, which cannot
    // fail with these arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let result = start();
    // SAFETY: `before` was written by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
