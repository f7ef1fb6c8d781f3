//! The xpu kind over a fake OpenCL: what no driver that we can have does when a test wants it.
//!
//! Goal: a device that is lost, full, slow to call back, refuses, is of another type or is not
//! there, and addresses that the host cannot read, end in what the contract promises: an error that
//! says why, never a crash, never a hang, nothing left behind. Method: accelrt opens the fake of
//! `tests/fake_opencl`, a copy for each test, so that its settings and counters are the test's own;
//! at the end the fake says that no rule of OpenCL was broken and that all objects were released.

#[path = "../../../../tests/common/child.rs"]
mod child;
#[path = "../fake_opencl/fake.rs"]
mod fake;
#[path = "../fake_opencl/library.rs"]
mod library;
#[path = "../../../../tests/common/pattern.rs"]
mod pattern;
#[path = "../../../../tests/common/process.rs"]
mod process;
#[path = "../../../../tests/common/timed_waits.rs"]
mod timed_waits;
#[path = "../../../../tests/common/watchdog.rs"]
mod watchdog;

mod callbacks;
mod conformance;
mod counters;
mod fork_methods;
mod forks;
mod loss;
mod memory;
mod observed_waits;
mod probing;
mod programs;
mod queues;
mod refusals;
mod self_test;
mod support;
