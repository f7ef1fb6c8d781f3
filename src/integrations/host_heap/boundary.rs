//! The last line before C: what cannot be continued there is leaked, counted, and told of once.
//!
//! The callers are libraries that free memory. They cannot be told of a mistake, theirs or ours,
//! and an abort would end a program that may not even miss the memory.

use std::fmt::Arguments;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicU64;

/// How often memory was leaked. Relaxed, here and below: a number that orders nothing.
static LEAKS: AtomicU64 = AtomicU64::new(0);

/// Counts memory that cannot be taken back, and says so on standard error the first time.
#[cold]
pub(super) fn leak(reason: Arguments<'_>) {
    if LEAKS.fetch_add(1, Ordering::Relaxed) == 0 {
        let rest = "the memory stays in use; host_memory_stats counts such leaks as num_leaks";
        // Nothing can be done about a standard error that is closed.
        let _ = writeln!(std::io::stderr(), "accelrt: {reason}: {rest}");
    }
}

/// How often that was.
pub(super) fn leaks() -> u64 {
    LEAKS.load(Ordering::Relaxed)
}

/// Acts for a function of C; `otherwise` when that panics, which would end the process there. A
/// panic gives back the locks that it meets, and what it was about is in no list.
#[inline]
pub(super) fn contain<R>(otherwise: R, act: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        std::mem::forget(panic); // its drop may panic as well; the message was printed
        leak(format_args!("a call of malloc, realloc or free panicked"));
        otherwise
    })
}
