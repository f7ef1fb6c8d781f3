//! The caching allocator: keeps freed memory, and hands it out again.
//!
//! It takes segments from a device and splits them into blocks. Two *policies* manage blocks,
//! `torch` and `native`, the default; docs/allocator.md walks through both.
//!
//! * `caching`: the public [`CachingAllocator`]; `request`, `allocated`: what it is asked for, and
//!   what it returns
//! * `allocate`, `free`: the path of a request and of a free, from top to bottom
//! * `thread_cache`, `bins`, `caches`: what a thread keeps, to take it without a lock, and its
//!   counts (`thread_counters`, `stats_sum`); `addresses`: the host heap's blocks by address
//! * `state`: what the lock guards: the heaps of both policies, frees that wait for streams
//!   (`pending`), and the `ledger` that they share, with `stats`
//! * the native heaps: `core`, `serve`, `plan`; blocks (`block`, `tiles`, `ids`), free blocks
//!   (`free_blocks`, `search`, `fallback`), slabs (`slab`, `heap`), what programs have
//!   (`block_ref`, `live_table`), counts (`pool_counters`)
//! * pages: `area`, `pages`, `page_work`, `growth`, `shrink`
//! * policy torch: `torch`, `torch_blocks`, `policy`, `segments`, `expandable`, `restore`
//! * `reclaim`, `out_of_memory`: the last steps of a request
//! * `source`: the device's memory; `host`: statistics of pinned memory
//! * `recorder`, `recording`: what the log is told; `snapshot`, `inspect`, `invariants`: the state
//!   as plain values, and its laws

mod addresses;
pub(crate) mod allocate;
mod allocated;
mod area;
mod bins;
#[cfg(all(test, not(loom)))]
mod bins_tests;
mod block;
mod block_ref;
#[cfg(all(test, loom))]
mod cache_loom_tests;
mod caches;
mod caching;
mod core;
mod expandable;
mod fallback;
mod free;
mod free_blocks;
mod growth;
mod heap;
mod host;
#[cfg(test)]
mod host_tests;
mod ids;
mod inspect;
mod invariants;
#[cfg(all(test, not(loom)))]
mod leaving_tests;
mod ledger;
mod live_table;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod many_streams_tests;
mod out_of_memory;
mod page_work;
mod pages;
mod pending;
#[cfg(all(test, not(loom)))]
mod pending_tests;
mod plan;
pub(crate) mod policy;
mod pool_counters;
#[cfg(all(test, not(loom)))]
mod pressure_tests;
mod reclaim;
pub(crate) mod recorder;
pub(crate) mod recording;
mod request;
pub(crate) mod restore;
mod search;
mod segments;
mod serve;
mod shrink;
mod slab;
pub mod snapshot;
mod source;
mod state;
mod stats;
mod stats_sum;
mod thread_cache;
mod thread_counters;
mod tiles;
mod torch;
mod torch_blocks;

pub use crate::base::config::{AllocatorConfig, PolicyName, recorded_settings};
pub use allocated::{Allocated, ForeignBlock};
pub use caching::CachingAllocator;
pub use host::{DurationStat, HOST_BUCKETS, HostStatistics};
pub(crate) use pending::UsePoint;
pub(crate) use recorder::Recorded;
pub use request::Request;
pub use request::{PoolId, PoolOptions};
pub use stats::{PooledStat, Stat, Statistics};
