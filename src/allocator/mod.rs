//! The caching allocator: segments from a device, cut into blocks, handed out by a policy.
//!
//! * [`AllocatorConfig`]: the settings
//! * [`snapshot`]: what it holds, as plain values
//! * [`pool`]: private pools
//! * [`replay`]: recorded requests, replayed

mod config;
#[cfg(test)]
mod config_tests;
pub mod pool;
pub mod replay;
mod settings;
pub mod snapshot;

pub use config::{AllocatorConfig, PolicyName, ROUNDUP_INTERVALS};
