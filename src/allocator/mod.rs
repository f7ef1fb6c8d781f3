//! The caching allocator: segments from a device, cut into blocks, handed out by a policy.
//!
//! * [`snapshot`]: what it holds, as plain values
//! * [`pool`]: private pools
//! * [`replay`]: recorded requests, replayed

pub mod pool;
pub mod replay;
pub mod snapshot;
