//! L1, the machine: one folder per device kind, all behind `contract`. No kind uses another kind.

pub mod contract;
pub mod cpu;
pub mod driver;
pub mod registry;

pub use registry::register;

// What kinds of drivers from outside the core need, and optional kinds behind cargo features.
pub mod callbacks;
#[cfg(not(loom))]
pub mod foreign;
#[cfg(feature = "xpu")]
pub mod xpu;
