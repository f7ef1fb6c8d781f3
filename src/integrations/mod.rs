//! L3, integrations with other libraries of the process: their memory and their verbose lines.
//!
//! * `capability`: the vector instructions of this machine
//! * `external_streams`: streams that other code has made with the driver
//! * `host_heap`: `malloc` and related functions over an allocator of pinned memory
//! * `mkl_allocator`: the selection of oneMKL's allocator
//! * `process_profile`: the profile that `ACCELRT_PROFILE` asks for
//! * `process_runtime`: what happens at the begin and the end of the process's runtime
//! * `verbose`: the lines that oneMKL, oneDNN and this runtime print per call

mod external_streams;
// Absent from loom builds: these modules have locks in statics, which models do not support.
#[cfg(not(loom))]
pub mod host_heap;
#[cfg(not(loom))]
pub(crate) mod mkl_allocator;
#[cfg(not(loom))]
pub(crate) mod process_profile;
#[cfg(not(loom))]
pub mod process_runtime;
#[cfg(not(loom))]
pub(crate) mod verbose;
