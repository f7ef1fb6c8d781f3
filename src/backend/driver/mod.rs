//! Code that the driver kinds share.

pub(crate) mod courier;
pub(crate) mod opencl_c;
