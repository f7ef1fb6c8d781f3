//! L4, NumPy's memory, and what oneMKL and oneDNN print.

pub(crate) mod numpy_memory;
pub(crate) mod verbose;
