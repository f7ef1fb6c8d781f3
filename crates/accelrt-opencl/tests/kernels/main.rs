//! Kernels on the OpenCL runtime of this machine, which has to compile them.

#[path = "../../../../tests/common/seed.rs"]
mod seed;
#[path = "../../../accelrt-random/tests/generator/support.rs"]
#[expect(dead_code, reason = "the suite of generators uses the rest")]
mod support;

mod xpu;
