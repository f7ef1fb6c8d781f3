//! The caching allocator: memory is kept when a program frees it, and handed out again.
//!
//! It comes from a device in segments, which are cut into blocks. A *policy* decides how requests
//! are rounded, which free block serves one and what is split; the rest is the same for all but
//! `native`, the default.
//!
//! * `caching`: the public [`CachingAllocator`], and in which steps a request is answered
//! * `allocated`: what it got; `cached`: requests that free memory serves, for who must not wait
//! * `books`: what it knows, and how blocks change hands: `block`, `segment`, `free_index`,
//!   `page_map`, `pool`, `limits`, `stats`
//! * `policy`: what is decided, by the settings of `base::config`
//! * `growth`, `expandable`, `release`: memory from the `source` and back; what a device and the
//!   host share comes from an allocator beside the device's, in `shared`
//! * `native`: the policy of our own, which keeps books of its own
//! * `pending`: who still uses what was freed; `known_stream`: a stream there, or gone
//! * `out_of_memory`, `turn`, `waits`: what is tried when memory is short, and what is said then
//! * `snapshot`, `restore`: what it holds, as plain values, and back
//! * `invariants`: the laws, checked
//! * `replay`: recorded requests, replayed

mod allocated;
mod block;
mod books;
mod cached;
mod caching;
mod expandable;
mod free_index;
mod growth;
mod host;
#[cfg(test)]
mod host_tests;
mod invariants;
mod known_stream;
mod limits;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod many_streams_tests;
mod native;
mod out_of_memory;
mod page_map;
mod pending;
#[cfg(all(test, not(loom)))]
mod pending_tests;
mod policy;
mod pool;
mod release;
pub mod replay;
mod restore;
mod segment;
mod shared;
mod sleepers;
pub mod snapshot;
mod source;
mod stats;
mod turn;
mod waits;

pub use crate::base::config::{AllocatorConfig, PolicyName, recorded_settings};
pub use allocated::{Allocated, ForeignBlock};
pub use books::Request;
pub use caching::CachingAllocator;
pub use host::{DurationStat, HOST_BUCKETS, HostStatistics};
pub(crate) use out_of_memory::new_observer_id;
pub(crate) use pending::UsePoint;
pub use pool::{PoolId, PoolOptions};
pub use stats::{PooledStat, Stat, Statistics};
