//! Native calls: arguments placed, calls ordered, failed, skipped and refused as promised.
//!
//! Native functions are written in Rust as `extern "C"`, so the compiler places what they expect
//! and the library what they get. Nothing here is decided by a clock: threads meet in channels.

mod arguments;
mod launch;
mod support;
