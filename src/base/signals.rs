//! Signals: the runtime's threads block all signals but those that report a thread's own fault.
#![expect(unsafe_code, reason = "calls the system's signal functions")]

use std::mem::MaybeUninit;

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
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
