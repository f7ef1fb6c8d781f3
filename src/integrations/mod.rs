//! L3, integrations: other libraries of the process that use this runtime or report to it.
//!
//! * `host_heap`: `malloc` and related functions over the cache of pinned memory
//! * `mkl_allocator`: the selection of oneMKL's allocator
//! * `verbose`: the lines that oneMKL, oneDNN and this runtime print per call

#[cfg(not(loom))] // as `verbose`
pub(crate) mod host_heap;
#[cfg(not(loom))] // as `host_heap`
pub(crate) mod mkl_allocator;
#[cfg(not(loom))] // models have no statics with locks
pub(crate) mod verbose;
