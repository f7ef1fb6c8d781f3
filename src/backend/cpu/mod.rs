//! The cpu kind: devices on the machine's own cores and memory.
//!
//! * `backend`: the contract's methods
//! * `run_queue`, `workers`: scheduling of work on worker threads
//! * `copy`, `properties`: the machine's copy instructions and properties
//! * `memory`: allocations
//! * `virtual_memory`, with the rest of the files: pages that can be moved

mod backend;
mod copy;
#[cfg(all(test, not(loom)))]
mod faults;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod pages;
mod physical;
pub(crate) mod properties;
mod reservation;
mod run_queue;
mod virtual_memory;
mod workers;
#[cfg(all(test, not(loom)))]
mod workers_tests;

pub use backend::CpuBackend;
