//! Host threads, which call Python callables: waits for unfinished work fail there.

use std::cell::Cell;

use pyo3::prelude::*;

thread_local! {
    /// True on host threads, which call the callables of `launch_host`.
    static MUST_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Makes waits for unfinished work fail on this thread, which then drops no parked objects either.
/// Host threads call this function, because other threads wait for them.
pub(crate) fn forbid_waits() {
    MUST_NOT_WAIT.set(true);
}

/// True on threads that call the callables of `launch_host`. Waits for unfinished work fail there.
#[pyfunction]
pub(crate) fn must_not_wait() -> bool {
    MUST_NOT_WAIT.get()
}
