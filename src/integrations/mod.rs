//! L3, integrations: other libraries of the process that this runtime serves or is told by.
//!
//! * `host_heap`: `malloc` and its kin over the cache of pinned memory
//! * `mkl_allocator`: which allocator gives oneMKL its memory
//! * `verbose`: what oneMKL, oneDNN and this runtime print about their calls

#[cfg(not(loom))] // as `verbose`
pub(crate) mod host_heap;
#[cfg(not(loom))] // as `host_heap`
pub(crate) mod mkl_allocator;
#[cfg(not(loom))] // models have no statics with locks
pub(crate) mod verbose;
