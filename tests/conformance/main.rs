//! The conformance kit on our own kinds: what every backend has to do, on cpu, null and xpu.
//!
//! The tests themselves are in `crates/accelrt-testing/src/conformance`, for makers of devices as
//! well.

mod cpu_subject;
#[cfg(feature = "xpu")]
#[path = "../fake_opencl/fake.rs"]
mod fake;
#[cfg(feature = "xpu")]
mod fake_subject;
#[cfg(feature = "xpu")]
#[path = "../fake_opencl/library.rs"]
mod library;
mod null_subject;
#[cfg(feature = "xpu")]
mod xpu_subject;
