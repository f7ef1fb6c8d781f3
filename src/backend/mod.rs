//! L1, the machine: one folder a kind of device, behind one contract. A kind never names another.

pub mod contract;
pub(crate) mod courier;
pub(crate) mod cpu;
