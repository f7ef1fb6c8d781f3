//! L2, memory: what devices have, who uses it, and when it may be used again.
//!
//! * `allocator`: memory of one device, kept when it is freed
//! * `buffer`: views of memory, freed behind every use

pub mod allocator;
pub(crate) mod buffer;
