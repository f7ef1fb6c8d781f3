//! A failure at any single backend call, on the OpenCL runtime of this machine.
//!
//! The campaign is that of the root package's suite `faults`, whose head describes it.

#[path = "../../../../tests/common/asked.rs"]
mod asked;
#[path = "../../../../tests/faults/campaign.rs"]
mod campaign;
#[path = "../../../../tests/faults/laws.rs"]
mod laws;
#[path = "../../../../tests/faults/ledger.rs"]
mod ledger;
#[path = "../../../accelrt-random/tests/faults/random_fills.rs"]
mod random_fills;
#[path = "../../../../tests/faults/scenarios/mod.rs"]
mod scenarios;
#[path = "../../../../tests/faults/table.rs"]
mod table;
#[path = "../../../../tests/common/watchdog.rs"]
#[expect(dead_code, reason = "the campaign says itself which run hangs")]
mod watchdog;
#[path = "../../../../tests/faults/world.rs"]
#[expect(dead_code, reason = "the root package's suite uses the rest")]
mod world;

use accelrt::DeviceKind;
use accelrt_opencl::XpuBackend;
use accelrt_testing::fault::Method;

use crate::campaign::Campaign;
use crate::world::Kind;

/// What the OpenCL runtime of this machine has.
const XPU: Kind = Kind {
    name: "xpu",
    accelerator: DeviceKind::XPU,
    is_real: true,
    make: |config| (XpuBackend::new(config), None),
};

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
#[expect(clippy::print_stdout, reason = "the table, for who asks")]
fn every_method_fails_in_turn_on_xpu_and_the_laws_hold() {
    let campaign = Campaign::run(&[XPU], scenarios::ALL);
    println!("{}", campaign.table);
    campaign.assert_lawful();
    // Pages do not move there, so what moves them is not called.
    for method in
        Method::ALL.into_iter().filter(|method| !method.name().starts_with("VirtualMemory"))
    {
        assert!(campaign.table.failures_of(method) > 0, "{method} was never failed");
    }
}

#[test]
#[ignore = "needs an OpenCL runtime: make test-xpu"]
fn every_method_fails_in_turn_in_random_fills_on_xpu_and_the_laws_hold() {
    Campaign::run(&[XPU], &random_fills::SCENARIOS).assert_lawful();
}
