//! The caching allocator: keeps freed memory, and hands it out again.
//!
//! It takes segments from a device and splits them into blocks. Two *engines* manage blocks,
//! `torch` and `native`, the default, behind one *front*; docs/allocator.md has their interface.
//!
//! The front:
//! * `caching`: the public [`CachingAllocator`], and the steps of a `request`; `cached`: requests
//!   that must not wait; `allocated`: the result
//! * `state`: what the lock guards: both engines, `pending` frees, and the `ledger` that they
//!   share: settings, `limits`, `pool`, `stats`
//! * `out_of_memory`, `turn`, `waits`, `sleepers`: the steps of a shortage, and its error
//! * `source`: the device's memory; `release`: the way back; `shared`: memory that a device and
//!   the host share
//! * `recorder`, `recording`: what the log is told, and what blocks are for
//! * `snapshot`: the state as plain values; `invariants`
//!
//! Engine `torch`: `block`, `free_index`; `policy`: its decisions;
//! `growth`, `expandable`, `release`: memory from the source and back; `restore`. Engine `native`
//! has its own folder.

mod allocated;
mod block;
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
mod ledger;
mod limits;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod many_streams_tests;
mod native;
mod observers;
mod out_of_memory;
mod pending;
#[cfg(all(test, not(loom)))]
mod pending_tests;
pub(crate) mod policy;
mod pool;
pub(crate) mod recorder;
pub(crate) mod recording;
mod release;
mod request;
pub(crate) mod restore;
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
pub(crate) use pending::UsePoint;
pub use pool::{PoolId, PoolOptions};
pub(crate) use recorder::Recorded;
pub use request::Request;
pub use stats::{PooledStat, Stat, Statistics};
