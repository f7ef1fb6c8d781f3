//! L2, memory: allocators, and buffers with the uses that delay their frees.
//!
//! * `allocator`: the caching allocator of one device
//! * `buffer`: views of memory, freed in stream order

pub mod allocator;
pub(crate) mod buffer;
