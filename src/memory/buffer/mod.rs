//! Buffers: memory that is allocated at once and freed in stream order.
//!
//! * [`handle`]: the public [`Buffer`], a view of an allocation
//! * [`allocation`]: the memory that views share, its uses, and the accesses that delay its free
//! * [`counted`]: the reference count of that memory
//! * [`thread_hints`]: a thread's cached stream, allocator and allocations for its next buffer
//! * [`uses`]: the tasks that use an allocation, per stream
//! * [`free`]: returns memory to its allocator, ordered after every use
//! * [`order`]: enqueues tasks behind conflicting uses
//! * [`transfer`], [`commands`]: copies and fills as tasks, and the wait for one of these tasks
//! * [`future`]: the end of a copy or fill as a future
//! * [`launch`]: FFI calls that use buffers
//! * [`host`], [`host_accesses`]: accesses by host threads, and the queue of waiting threads

pub(crate) mod allocation;
pub(crate) mod commands;
mod counted;
pub(crate) mod free;
pub(crate) mod future;
mod handle;
mod host;
mod host_accesses;
#[cfg(all(test, not(loom)))]
mod host_accesses_tests;
mod launch;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod order;
pub mod thread_hints;
mod transfer;
mod uses;
#[cfg(all(test, not(loom)))]
mod uses_tests;

pub use handle::{Buffer, ExportGuard};
pub use order::Order;

pub use transfer::{HostTransfer, Transfer};
