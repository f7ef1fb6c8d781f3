//! The caching allocator: memory is kept when a program frees it, and handed out again.
//!
//! It comes from a device in segments, which are cut into blocks.
//!
//! * [`config`]: its settings, parsed from text by [`settings`]
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
