//! L4, integrations: NumPy's memory, the verbose lines of oneMKL and oneDNN, and the profiler.

pub(crate) mod numpy_memory;
pub(crate) mod profiler;
pub(crate) mod verbose;
