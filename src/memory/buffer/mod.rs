//! Buffers: memory that is allocated at once and freed in stream order.
//!
//! * [`handle`]: the public [`Buffer`], a view of an allocation
//! * [`allocation`]: the memory that views share, its uses, and the accesses that delay its free
//! * [`thread_hints`]: a thread's cached stream, allocator and allocations for its next buffer
//! * [`uses`]: the tasks that use an allocation, per stream, and the free that follows them
//! * [`order`]: enqueues tasks behind conflicting uses
//! * [`transfer`], [`commands`]: copies, fills and FFI calls as tasks, and the wait for one, also
//!   as a future
//! * [`host`], [`host_accesses`]: accesses by host threads, and the queue of waiting threads

pub(crate) mod allocation;
pub(crate) mod commands;
mod handle;
mod host;
mod host_accesses;
#[cfg(all(test, not(loom)))]
mod host_accesses_tests;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod order;
pub mod thread_hints;
pub(crate) mod transfer;
mod uses;
#[cfg(all(test, not(loom)))]
mod uses_tests;

pub use handle::{Buffer, ExportGuard};
pub use order::Order;

pub use transfer::{HostTransfer, Transfer};
