//! L2, compute: work of devices other than copies and fills.
//!
//! * `program`: kernels compiled for a device
//! * `generator`: random numbers, bitwise equal on every kind

pub(crate) mod generator;
pub(crate) mod program;
