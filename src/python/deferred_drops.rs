//! What tasks let go of and only a thread with the GIL may drop.
//!
//! A worker that took the GIL would make streams wait for Python code. So it parks what it holds
//! for Python's sake, and the next call of a binding drops that.

use std::sync::LazyLock;

use pyo3::Python;

use crate::fork;
use crate::spin::SpinMutex;
use crate::sync::Ordering;
use crate::sync::unmodelled::AtomicBool;

/// Something that is dropped with the GIL.
pub(super) trait Parked: Send {
    /// Lets go of it.
    fn release(self: Box<Self>, py: Python<'_>);
}

static PARKED: LazyLock<SpinMutex<Vec<Box<dyn Parked>>>> =
    LazyLock::new(|| SpinMutex::new(Vec::new()));

/// Spares the lock where nothing is parked, the usual case.
static HAS_PARKED: AtomicBool = AtomicBool::new(false);

/// Leaves something to the next call of [`drop_parked`]. Takes no GIL and does not block.
pub(super) fn park(parked: Box<dyn Parked>) {
    PARKED.lock().push(parked);
    // Release: who sees it finds the entry; pairs with the swap in `drop_parked`.
    HAS_PARKED.store(true, Ordering::Release);
}

/// Drops what is parked. Python code may run.
pub(super) fn drop_parked(py: Python<'_>) {
    // Relaxed: an entry that is overlooked is found by the next call.
    if !HAS_PARKED.load(Ordering::Relaxed) || fork::is_child() {
        return; // in a child the lock may have been held at the fork
    }
    // Acquire: pairs with the release in `park`.
    if HAS_PARKED.swap(false, Ordering::Acquire) {
        let parked = std::mem::take(&mut *PARKED.lock());
        for parked in parked {
            parked.release(py);
        }
    }
}
