//! A clock that counts its readings: how fast the machine is changes nothing then.
#![expect(unsafe_code, reason = "stands in for a function of the C library")]

use std::sync::atomic::{AtomicI64, Ordering};

/// Between two readings; a task looks short by it.
const STEP_NS: i64 = 100;
const SECOND_NS: i64 = 1_000_000_000;

static NOW_NS: AtomicI64 = AtomicI64::new(SECOND_NS);

/// What the standard library asks for the time.
///
/// # Safety
///
/// `time` may be written.
// SAFETY: the signature is the C library's, whose function of this name nobody else here calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(_: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let now_ns = NOW_NS.fetch_add(STEP_NS, Ordering::Relaxed); // only itself has to go on
    let now = libc::timespec { tv_sec: now_ns / SECOND_NS, tv_nsec: now_ns % SECOND_NS };
    // SAFETY: the caller's promise.
    unsafe { time.write(now) };
    0
}
