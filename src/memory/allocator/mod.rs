//! The caching allocator: keeps freed memory, and hands it out again.
//!
//! It takes segments from a device and splits them into blocks. Two *engines* manage blocks,
//! `torch` and `native`, the default, behind one *front*; docs/allocator.md has their interface.
//!
//! The front:
//! * `caching`: the public [`CachingAllocator`], and the steps of a `request`; `cached`: requests
//!   that must not wait; `allocated`: the result, and the word that names it
//! * `state`: what the lock guards: both engines, `pending` frees, and the `ledger` that they
//!   share: settings, limits, `stats`
//! * `turn`, `out_of_memory`: the steps of a shortage, its error and its observers
//! * `source`: the device's memory; `segments`: memory from it and the way back
//! * `recorder`, `recording`: what the log is told, and what blocks are for
//! * `snapshot`: the state as plain values; `invariants`
//!
//! Engine `torch`: `torch`, `block`; `policy`: its decisions; `expandable`; `restore`. Engine
//! `native` has its own folder.

mod allocated;
mod block;
mod cached;
mod caching;
mod expandable;
mod host;
#[cfg(test)]
mod host_tests;
mod invariants;
mod ledger;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod many_streams_tests;
mod native;
mod out_of_memory;
mod pending;
#[cfg(all(test, not(loom)))]
mod pending_tests;
pub(crate) mod policy;
pub(crate) mod recorder;
pub(crate) mod recording;
mod request;
pub(crate) mod restore;
mod segments;
pub mod snapshot;
mod source;
mod state;
mod stats;
mod torch;
mod turn;

pub use crate::base::config::{AllocatorConfig, PolicyName, recorded_settings};
pub use allocated::{Allocated, ForeignBlock};
pub use caching::CachingAllocator;
pub use host::{DurationStat, HOST_BUCKETS, HostStatistics};
pub(crate) use pending::UsePoint;
pub(crate) use recorder::Recorded;
pub use request::Request;
pub use request::{PoolId, PoolOptions};
pub use stats::{PooledStat, Stat, Statistics};
