//! Errors at the boundary to C: the heap leaks the memory, counts the leak and reports the first.
//!
//! The callers are libraries that free memory. `free` cannot return an error to them, and an abort
//! would end a program that may not need the memory.

use std::fmt::Arguments;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of leaks. Relaxed, here and below: a statistic orders nothing.
static LEAKS: AtomicU64 = AtomicU64::new(0);

/// Counts a leak. Reports the process's first leak on standard error.
#[cold]
pub(super) fn leak(reason: Arguments<'_>) {
    if LEAKS.fetch_add(1, Ordering::Relaxed) == 0 {
        let rest = "the memory stays in use; host_memory_stats counts such leaks as num_leaks";
        // The result is ignored: when standard error is closed, the message is lost.
        let _ = writeln!(std::io::stderr(), "accelrt: {reason}: {rest}");
    }
}

pub(super) fn leaks() -> u64 {
    LEAKS.load(Ordering::Relaxed)
}

/// Calls `act` for a C function, where a panic would end the process. A panic counts as a leak, and
/// `contain` then returns `otherwise`. The unwinding releases the locks of `act`.
#[inline]
pub(super) fn contain<R>(otherwise: R, act: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        std::mem::forget(panic); // its drop may panic too; the message is already printed
        leak(format_args!("a call of malloc, realloc or free panicked"));
        otherwise
    })
}
