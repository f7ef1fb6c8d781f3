//! L1, the machine: one folder a kind of device, behind one contract. A kind never names another.

pub(crate) mod blocking;
pub(crate) mod capacity;
pub mod contract;
pub(crate) mod courier;
pub mod cpu;
pub mod fault;
pub(crate) mod machine_memory;
pub mod null;
pub(crate) mod opencl_c;
pub(crate) mod owned;
pub mod registry;
#[cfg(feature = "xpu")]
pub mod xpu;
