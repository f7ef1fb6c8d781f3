//! Waits for a device in profiles, on a fake OpenCL.

#[path = "../../../../tests/fake_opencl/fake.rs"]
mod fake;
#[path = "../../../../tests/fake_opencl/library.rs"]
mod library;
#[path = "../../../../tests/xpu_fake/support.rs"]
#[expect(dead_code, reason = "other suites use the rest")]
mod support;
#[path = "../../../../tests/common/timed_waits.rs"]
mod timed_waits;
mod waits;
#[path = "../../../../tests/common/watchdog.rs"]
mod watchdog;
