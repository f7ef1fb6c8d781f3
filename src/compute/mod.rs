//! L2, compute: kernels and random numbers, beside the copies and fills of buffers.
//!
//! * `program`: kernels compiled for a device
//! * `generator`: random numbers, bitwise equal on every kind

pub(crate) mod generator;
pub(crate) mod program;
