//! What driver kinds share, those from outside too.

pub(crate) mod opencl_c;
pub(crate) mod resume_threads;

pub use resume_threads::ResumeThreads;
