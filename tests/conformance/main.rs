//! The conformance kit on the kinds cpu and null: what every backend has to do.
//!
//! The tests themselves are in `crates/accelrt-testing/src/conformance`, for makers of devices as
//! well.

mod cpu_subject;
mod null_subject;
