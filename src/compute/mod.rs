//! L2, compute: what devices run that is no copy and no fill.
//!
//! * `program`: kernels compiled for a device
//! * `generator`: random numbers, the same bits on every kind

pub(crate) mod generator;
pub(crate) mod program;
