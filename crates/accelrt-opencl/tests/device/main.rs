//! The xpu kind on the OpenCL runtime of this machine: the conformance kit, and the engine.

#[path = "../../../../tests/common/child.rs"]
mod child;
#[path = "../../../../tests/common/process.rs"]
mod process;
#[path = "../../../../tests/common/watchdog.rs"]
mod watchdog;

mod xpu;
mod xpu_subject;
