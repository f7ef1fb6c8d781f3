//! L3, the runtime: a process's devices, each thread's current ones, and the shutdown.
//!
//! * [`instance`]: [`Runtime`], with its devices, streams and counters
//! * [`allocators`]: the caching allocators
//! * [`guard`]: guards that make a device or stream current for a scope
//! * [`extensions`]: values that other crates keep for the life of a runtime
//! * [`memory`]: creates buffers; callbacks for out-of-memory errors
//! * [`pools`]: private pools, and each thread's current pool
//! * [`process_hooks`]: what others do at the begin and the end of the process's runtime
//! * [`report`]: messages on standard error
//! * `second_copy`: warns of another copy of accelrt in the process
//! * [`streams`]: the current devices, streams and pools of each thread; creates and finds streams;
//!   compiles kernels
//! * [`shutdown`]: drain, cancel, join, report; the process's runtime shuts down at exit

mod allocators;
mod extensions;
pub(crate) mod guard;
mod instance;
pub(crate) mod memory;
mod pools;
pub mod process_hooks;
pub mod report;
#[cfg(not(loom))]
pub mod second_copy;
pub(crate) mod shutdown;
pub(crate) mod streams;

pub use instance::{Counters, Runtime};
pub use pools::{MemPool, PoolGuard};
pub use shutdown::ShutdownReport;
