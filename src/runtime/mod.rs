//! L3, the runtime: one process's devices, what is current in a thread, and the orderly end.
//!
//! * [`instance`]: the [`Runtime`] itself
//! * [`allocators`]: where memory comes from
//! * [`capability`]: the vector instructions of this machine
//! * [`current`]: the current device and streams of each thread
//! * [`guard`]: what is current, for a while
//! * [`generators`]: making generators, seeding the default ones
//! * [`index`]: the current device by its index, with torch's names
//! * [`memory`]: making buffers
//! * [`observers`]: who is told of shortages
//! * [`pools`]: private pools, and which one a thread is inside of
//! * [`programs`]: compiling kernels
//! * [`report`]: what it says on standard error
//! * [`shutdown`]: drain, cancel, join, report; at exit for the process's own runtime

mod allocators;
mod capability;
mod current;
mod generators;
pub(crate) mod guard;
mod index;
mod instance;
pub(crate) mod memory;
mod observers;
mod pools;
mod programs;
mod report;
mod shutdown;

pub use capability::cpu_capability;
pub use instance::{Counters, Runtime};
pub use pools::{MemPool, PoolGuard};
pub use shutdown::ShutdownReport;
#[cfg(not(loom))]
pub(crate) use shutdown::before_end_of_process;
