//! L2, memory: allocators, and buffers with the uses that their frees wait for.
//!
//! * `allocator`: memory of one device, kept when it is freed
//! * `buffer`: views of memory, freed behind every use

pub mod allocator;
pub(crate) mod buffer;
