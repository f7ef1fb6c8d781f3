//! L1, the machine: the contract of backends, the cpu kind, and what backends of drivers share.

pub mod contract;
pub mod cpu;
pub mod driver;
pub mod registry;

pub use registry::register;

// What backends of drivers need.
pub mod callbacks;
#[cfg(not(loom))]
pub mod foreign;
