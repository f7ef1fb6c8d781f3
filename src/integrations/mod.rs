//! L3, integrations: other libraries of the process that use this runtime or report to it.
//!
//! * `host_heap`: `malloc` and related functions over the cache of pinned memory
//! * `mkl_allocator`: the selection of oneMKL's allocator
//! * `verbose`: the lines that oneMKL, oneDNN and this runtime print per call

// Absent from loom builds: these modules have statics with locks, which models cannot have.
#[cfg(not(loom))]
pub(crate) mod host_heap;
#[cfg(not(loom))]
pub(crate) mod mkl_allocator;
#[cfg(not(loom))]
pub(crate) mod verbose;
