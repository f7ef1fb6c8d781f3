//! Buffers: memory that is allocated at once and freed in stream order.
//!
//! * [`handle`]: the public [`Buffer`], a view of an allocation
//! * [`allocation`]: the memory of one or several views, its uses, and what prevents its release
//! * [`counted`]: how views share an allocation
//! * [`thread_hints`]: the state that a thread's next buffer is made from
//! * [`uses`]: which tasks of which streams use it
//! * [`free`]: giving it back behind every use, and waiting for that when memory is short
//! * [`order`]: enqueues tasks behind conflicting uses
//! * [`transfer`], [`commands`]: copies and fills as tasks, and waiting for one of them
//! * [`launch`]: native calls that use buffers
//! * [`host`], [`host_accesses`]: the host's access, which is a synchronisation, and its queue

pub(crate) mod allocation;
mod commands;
mod counted;
pub(crate) mod free;
mod handle;
mod host;
mod host_accesses;
#[cfg(all(test, not(loom)))]
mod host_accesses_tests;
mod launch;
#[cfg(all(test, loom))]
mod loom_tests;
mod order;
pub(crate) mod thread_hints;
mod transfer;
mod uses;
#[cfg(all(test, not(loom)))]
mod uses_tests;

pub(crate) use allocation::Access;
pub use handle::{Buffer, ExportGuard};
pub(crate) use order::Order;
pub(crate) use uses::Task;

pub use transfer::{HostTransfer, Transfer};
