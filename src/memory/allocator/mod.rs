//! The caching allocator: memory is kept when a program frees it, and handed out again.
//!
//! It comes from a device in segments, which are cut into blocks. Two *engines* know blocks,
//! `torch` and `native`, the default; one *front* is before both. docs/allocator.md has what is
//! between them.
//!
//! The front:
//! * `caching`: the public [`CachingAllocator`], and in which steps a `request` is answered
//! * `allocated`: what it got; `cached`: requests that free memory serves, for who must not wait
//! * `state`: what the lock guards: both engines, `pending` (frees that wait for streams), and the
//!   `ledger` that they share: settings, `limits`, `pool`, `stats`
//! * `out_of_memory`, `turn`, `waits`: what is tried when memory is short, and what is said then;
//!   `observers`: functions that are told
//! * `source`: where memory comes from; what a device and the host share comes from an allocator
//!   beside the device's, in `shared`
//! * `snapshot`: what it holds, as plain values; `invariants`: the laws, checked
//! * `replay`: recorded requests, replayed
//!
//! The engines:
//! * `torch`: how its blocks change hands: `block`, `segment`, `free_index`, `page_map`, `homes`;
//!   `policy`: what is decided, by the settings of `base::config`; `growth`, `expandable`,
//!   `release`: memory from the source and back; `restore`: from a snapshot
//! * `native`: the policy of our own

mod allocated;
mod block;
mod cached;
mod caching;
mod departure;
mod expandable;
mod free_index;
mod growth;
mod homes;
mod host;
#[cfg(test)]
mod host_tests;
mod invariants;
mod known_stream;
mod ledger;
mod limits;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod many_streams_tests;
mod native;
mod observers;
mod out_of_memory;
mod page_map;
mod pending;
#[cfg(all(test, not(loom)))]
mod pending_tests;
mod policy;
mod pool;
mod release;
pub mod replay;
mod request;
mod restore;
mod segment;
mod shared;
mod sleepers;
pub mod snapshot;
mod source;
mod state;
mod stats;
mod torch;
mod turn;
mod waits;

pub use crate::base::config::{AllocatorConfig, PolicyName, recorded_settings};
pub use allocated::{Allocated, ForeignBlock};
pub use caching::CachingAllocator;
pub use host::{DurationStat, HOST_BUCKETS, HostStatistics};
pub(crate) use observers::new_observer_id;
pub(crate) use pending::UsePoint;
pub use pool::{PoolId, PoolOptions};
pub use request::Request;
pub use stats::{PooledStat, Stat, Statistics};
