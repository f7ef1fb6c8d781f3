//! The process's heap over pinned host memory: for NumPy's arrays and oneMKL's buffers.
//!
//! * `boundary`: errors and panics in front of C
//! * `functions`: `malloc` and the related functions, also in a forked child and after the end
//! * `heap`: the allocator behind these functions, used by addresses alone

mod boundary;
mod functions;
mod heap;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use accelrt::allocator::HostStatistics;
use accelrt::internal::{fork, register_end_handler};
use accelrt::{CachingAllocator, Device, DeviceKind, Result, Runtime};
pub use functions::{Functions, calloc, free, is_ours, malloc, realloc};
use heap::Heap;

static HEAP: OnceLock<Heap> = OnceLock::new();
/// Set when the shutdown of the global runtime begins: the heap then serves no request.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Creates the process's heap over pinned memory of the accelerator's kind, unless it exists. Fails
/// when the runtime cannot be used.
pub fn open() -> Result<()> {
    fork::check()?;
    if HEAP.get().is_none() {
        // Registers `end` first: a later shutdown calls it; an earlier one fails the calls below.
        register_end_handler(end);
        let runtime = Runtime::of_process()?;
        let device = Device::new(runtime.accelerator()?, 0)?;
        let allocator = runtime.heap_allocator(device)?;
        HEAP.get_or_init(|| Heap::new(allocator));
    }
    Ok(())
}

/// Returns the process's heap; `None` before [`open`].
#[inline]
fn process_heap() -> Option<&'static Heap> {
    HEAP.get()
}

/// True if the heap may serve requests: before the end of the runtime, and not in a forked child.
#[inline]
fn is_serving() -> bool {
    // Relaxed: a thread that runs during the shutdown may use the heap a moment longer.
    !HAS_ENDED.load(Ordering::Relaxed) && !fork::is_child()
}

/// Stops the heap. The shutdown of the global runtime calls this first.
fn end() {
    // Relaxed: as in `is_serving`.
    HAS_ENDED.store(true, Ordering::Relaxed);
}

fn of_kind(kind: DeviceKind) -> Option<&'static Heap> {
    process_heap().filter(|heap| heap.allocator().device().kind() == kind)
}

/// Returns the heap's statistics, if its memory is pinned memory of this kind.
pub fn statistics(kind: DeviceKind) -> Option<HostStatistics> {
    of_kind(kind).map(Heap::statistics)
}

/// Returns the heap's allocator, if its memory is of this kind and the heap serves requests.
#[must_use]
pub fn allocator(kind: DeviceKind) -> Option<Arc<CachingAllocator>> {
    let heap = of_kind(kind).filter(|_| is_serving())?;
    Some(Arc::clone(heap.allocator()))
}
