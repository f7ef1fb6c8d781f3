//! L3, the runtime: one process's devices, what is current in a thread, and the orderly end.
//!
//! * [`instance`]: the [`Runtime`] itself
//! * [`current`]: the current device and streams of each thread
//! * [`memory`]: making buffers
//! * [`shutdown`]: drain, cancel, join, report; at exit for the process's own runtime

mod current;
mod instance;
mod memory;
mod shutdown;

pub use instance::{Counters, Runtime};
pub use shutdown::ShutdownReport;
