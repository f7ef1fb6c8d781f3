//! The conformance kit: proves that a kind of device does what the contract says.
//!
//! A maker of a device gives the kit a fresh backend for each test, and has a test for each promise
//! of [`contract`](accelrt::backend::contract), written against the contract alone:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use accelrt::backend::contract::Backend;
//! # use accelrt_testing::null::{NullBackend, NullConfig};
//! # fn backend() -> Arc<dyn Backend> { NullBackend::new(NullConfig::default()) }
//! // In a file of `tests/`: one `#[test]` for each promise, in a module of this name.
//! accelrt_testing::conformance!(npu, backend());
//!
//! // In a program: the same as a table of promises, tests, and what is wrong.
//! fn main() {
//!     print!("{}", accelrt_testing::conformance::report(backend));
//! }
//! ```
//!
//! No test dereferences an address of a device: contents are seen through copies to host memory.
//! Work is waited for with channels, marks by asking the backend; nothing reads a clock but for a
//! deadline that only a hang reaches. `docs/devices.md` walks through the contract.

mod allocator;
mod copies;
mod engine;
mod faults;
mod kernels;
mod marks;
mod memory;
mod order;
mod probing;
mod promises;
mod report;
mod shutdown;
mod streams;
mod support;
mod threads;
mod virtual_memory;

pub use promises::{Promise, promises};
pub use report::{KitReport, Verdict, check, report, verdict};
pub use support::Subject;
