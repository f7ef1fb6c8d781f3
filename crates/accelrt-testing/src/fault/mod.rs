//! Fault injection: [`FaultBackend`] wraps another backend and fails planned calls.
//!
//! A failing call does not reach the inner backend, as if the driver had refused it. A failing
//! release ([`Method::is_release`]) is the exception: as in drivers, the inner backend releases
//! first, then the call reports the error. A planned fault therefore leaks nothing, and a second
//! attempt would be a double release. A failed `when_done` drops its callback uncalled.
//!
//! Infallible methods forward their calls to the inner backend.
#![cfg_attr(
    test,
    allow(dead_code, unreachable_pub, reason = "unit tests of accelrt use some of it")
)]

mod backend;
mod method;
mod plan;
#[cfg(test)]
mod tests;

pub use backend::FaultBackend;
pub use method::Method;
pub use plan::{Fault, FaultError, Repeat};
