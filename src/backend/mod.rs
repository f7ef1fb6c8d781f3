//! L1, the machine: one folder per device kind, all behind `contract`. No kind uses another kind.

pub mod contract;
pub mod cpu;
pub mod driver;
pub mod fault;
#[cfg(feature = "conformance")]
pub mod null;
#[cfg(not(feature = "conformance"))]
pub(crate) mod null;
pub mod registry;

pub use registry::register;

// What kinds of drivers from outside the core need, and optional kinds behind cargo features.
// `make core` deletes this block, up to the next empty line.
pub mod callbacks;
#[cfg(not(loom))]
pub mod foreign;
#[cfg(feature = "xpu")]
pub mod xpu;
