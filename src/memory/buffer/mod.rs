//! Buffers: memory that is allocated at once and freed in stream order.
//!
//! * [`handle`]: the public [`Buffer`], a view of an allocation
//! * [`allocation`]: the memory that views share, its uses, the accesses that delay its free, and a
//!   thread's hints for its next buffer
//! * [`counted`]: the reference count of an allocation
//! * [`uses`]: the tasks that use an allocation, per stream, and the free that follows them
//! * [`order`]: enqueues tasks and C functions behind conflicting uses
//! * [`copies`], [`transfer`]: copies and fills as tasks, and the wait for one, also as a future
//! * [`host`], [`host_accesses`]: accesses by host threads, and the queue of waiting threads

pub(crate) mod allocation;
pub(crate) mod copies;
mod counted;
mod handle;
mod host;
mod host_accesses;
#[cfg(all(test, not(loom)))]
mod host_accesses_tests;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod order;
pub(crate) mod transfer;
mod uses;
#[cfg(all(test, not(loom)))]
mod uses_tests;

pub use handle::{Buffer, ExportGuard};
pub use order::Order;
pub use transfer::{HostTransfer, Transfer};
