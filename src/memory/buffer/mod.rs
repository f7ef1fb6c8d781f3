//! Buffers: memory that is allocated at once and freed in stream order.
//!
//! * [`handle`]: the public [`Buffer`], a view of an allocation
//! * [`allocation`]: the memory of one or several views, its uses, and what prevents its release
//! * [`counted`], [`here`]: how views share an allocation, and what a thread keeps for its next one
//! * [`uses`]: which tasks of which streams use it
//! * [`free`]: giving it back behind every use, and waiting for that when memory is short
//! * [`order`]: enqueues tasks behind conflicting uses
//! * [`transfer`], [`commands`]: copies and fills as tasks, and waiting for one of them
//! * [`launch`]: native calls that use buffers
//! * [`host`], [`hosts`]: the host's own access, which is a synchronisation, and waits for one

pub(crate) mod allocation;
mod commands;
mod counted;
pub(crate) mod free;
mod handle;
pub(crate) mod here;
mod host;
mod hosts;
#[cfg(all(test, not(loom)))]
mod hosts_tests;
mod launch;
#[cfg(all(test, loom))]
mod loom_tests;
mod order;
mod transfer;
mod uses;
#[cfg(all(test, not(loom)))]
mod uses_tests;

pub(crate) use allocation::Access;
pub use handle::{Buffer, ExportGuard};
pub(crate) use order::Order;
pub(crate) use uses::Task;

pub use transfer::{HostTransfer, Transfer};
