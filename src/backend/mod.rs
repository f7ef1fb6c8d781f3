//! L1, the machine: one folder a kind of device, behind one contract. A kind never names another.

pub mod contract;
pub mod cpu;
pub(crate) mod driver;
pub mod fault;
pub mod null;
pub mod registry;

// Kinds beside the core, to the next empty line.
#[cfg(feature = "xpu")]
pub mod xpu;
