//! Code that the driver kinds share.

pub(crate) mod opencl_c;
pub(crate) mod resume_threads;
