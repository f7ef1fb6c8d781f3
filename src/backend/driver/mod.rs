//! What kinds share whose work a driver runs.

pub(crate) mod courier;
pub(crate) mod opencl_c;
