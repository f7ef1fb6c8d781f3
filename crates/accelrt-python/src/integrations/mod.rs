//! L4, integrations: NumPy's memory, verbose lines, the profiler, kinds from outside, testing.

pub(crate) mod numpy_memory;
pub(crate) mod outside_kinds;
pub(crate) mod profiler;
pub(crate) mod sanitizer;
pub(crate) mod testing;
pub(crate) mod verbose;
