//! The caching allocator: memory is kept when a program frees it, and handed out again.
//!
//! It comes from a device in segments, which are cut into blocks.

mod config;
#[cfg(test)]
mod config_tests;
mod settings;

pub use config::{AllocatorConfig, PolicyName, ROUNDUP_INTERVALS};
