//! Random programs of records and waits on the OpenCL runtime of this machine.
//!
//! The programs are those of the root package's suite `order`, whose head describes them.

#[path = "../../../../tests/common/asked.rs"]
mod asked;
#[path = "../../../../tests/order/check.rs"]
mod check;
#[path = "../../../../tests/common/hang.rs"]
mod hang;
#[path = "../../../../tests/order/model.rs"]
mod model;
#[path = "../../../../tests/common/numbers.rs"]
mod numbers;
#[path = "../../../../tests/order/program.rs"]
#[expect(dead_code, reason = "the root package's suite uses the rest")]
mod program;
#[path = "../../../../tests/order/run.rs"]
mod run;
#[path = "../../../../tests/common/scheduled.rs"]
mod scheduled;
#[path = "../../../../tests/semantics/mod.rs"]
#[expect(dead_code, reason = "the root package's suite uses the rest")]
mod semantics;
#[path = "../../../../tests/order/support.rs"]
mod support;
#[path = "../../../../tests/order/world.rs"]
mod world;

use accelrt::DeviceKind;

use crate::check::check;
use crate::numbers::Numbers;
use crate::program::{Program, Target};

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn random_programs_of_records_and_waits_end_on_xpu() {
    accelrt_opencl::register().unwrap();
    let target = Target::Driver { kind: DeviceKind::XPU, completion: None };
    check(|seed| Program::draw(seed, target, &mut Numbers::new(seed)), 300);
}
