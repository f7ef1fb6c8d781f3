//! L4, integrations: NumPy's memory, and the verbose lines of oneMKL and oneDNN.

pub(crate) mod numpy_memory;
pub(crate) mod verbose;
