//! L3, the runtime: a process's devices, each thread's current ones, and the shutdown.
//!
//! * [`instance`]: [`Runtime`], with its devices, counters, and values of other crates
//! * [`current`]: the current devices, streams and pools of each thread
//! * [`streams`]: creates and finds streams, makes them current, compiles kernels
//! * [`allocators`], [`memory`]: the caching allocators; creates buffers; callbacks for
//!   out-of-memory errors
//! * [`guard`]: guards that make a device or stream current for a scope
//! * [`pools`]: private pools
//! * [`process`]: the process's runtime, what others do at its begin and end, messages
//! * `second_copy`: warns of another copy of accelrt in the process
//! * [`shutdown`]: drain, cancel, join, report

mod allocators;
pub(crate) mod current;
pub(crate) mod guard;
mod instance;
pub(crate) mod memory;
mod pools;
pub(crate) mod process;
#[cfg(not(loom))]
pub mod second_copy;
pub(crate) mod shutdown;
pub(crate) mod streams;

pub use instance::{Counters, Runtime};
pub use pools::{MemPool, PoolGuard};
pub use shutdown::ShutdownReport;
