//! A heap of the process over pinned host memory, for libraries whose allocator can be replaced.
//!
//! NumPy's arrays and oneMKL's buffers come from it.
//!
//! * `boundary`: what cannot be continued, in front of C
//! * `functions`: `malloc` and its kin, from any thread, also in a forked child and at the end
//! * `heap`: the allocator behind them, by addresses alone

mod boundary;
mod functions;
mod heap;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use crate::base::device::{Device, DeviceKind};
use crate::base::error::Result;
use crate::base::fork;
use crate::base::sync::Ordering;
use crate::base::sync::unmodelled::AtomicBool;
use crate::memory::allocator::{CachingAllocator, HostStatistics};
use crate::runtime::Runtime;
use crate::runtime::shutdown::register_end_handler;
use heap::Heap;

pub(crate) use functions::{Functions, calloc, free, is_ours, malloc, realloc};

static HEAP: OnceLock<Heap> = OnceLock::new();
/// True when the runtime of the process has ended: its memory is nobody's to give back any more.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Makes the heap of the process, at the first call: its memory is that of the accelerator's kind.
/// Fails when the runtime cannot be used.
pub(crate) fn open() -> Result<()> {
    fork::check()?;
    if HEAP.get().is_none() {
        // First: a shutdown that has begun refuses the allocator, a later one calls `end`.
        register_end_handler(end);
        let runtime = Runtime::of_process()?;
        let device = Device::new(runtime.accelerator()?, 0)?;
        let allocator = runtime.heap_allocator(device)?;
        HEAP.get_or_init(|| Heap::new(allocator));
    }
    Ok(())
}

/// The heap, once it was made.
#[inline]
fn process_heap() -> Option<&'static Heap> {
    HEAP.get()
}

/// True while the heap serves requests.
#[inline]
fn is_serving() -> bool {
    // Relaxed: what still runs beside the end may use the heap a moment longer.
    !HAS_ENDED.load(Ordering::Relaxed) && !fork::is_child()
}

/// The runtime of the process ends: from now on nothing is given and nothing is taken back.
fn end() {
    // Relaxed: as in `is_serving`.
    HAS_ENDED.store(true, Ordering::Relaxed);
}

fn of_kind(kind: DeviceKind) -> Option<&'static Heap> {
    process_heap().filter(|heap| heap.allocator().device().kind() == kind)
}

/// What the heap counts, where its memory is that of this kind.
pub(crate) fn statistics(kind: DeviceKind) -> Option<HostStatistics> {
    of_kind(kind).map(Heap::statistics)
}

/// The allocator of the heap, where its memory is of this kind and it serves.
pub(crate) fn allocator(kind: DeviceKind) -> Option<Arc<CachingAllocator>> {
    let heap = of_kind(kind).filter(|_| is_serving())?;
    Some(Arc::clone(heap.allocator()))
}
