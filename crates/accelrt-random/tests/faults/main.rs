//! A failure at any single backend call of a random fill.
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
mod random_fills;
#[path = "../../../../tests/faults/scenarios/mod.rs"]
#[expect(dead_code, reason = "the root package's suite uses the rest")]
mod scenarios;
#[path = "../../../../tests/faults/table.rs"]
mod table;
#[path = "../../../../tests/common/watchdog.rs"]
#[expect(dead_code, reason = "the campaign says itself which run hangs")]
mod watchdog;
#[path = "../../../../tests/faults/world.rs"]
mod world;

use accelrt_testing::fault::Method;

use crate::campaign::Campaign;
use crate::world::Kind;

const KINDS: [Kind; 3] = [Kind::CPU, Kind::NULL_AT_ONCE, Kind::NULL_WHEN_ASKED];

#[test]
#[expect(clippy::print_stdout, reason = "the table, for who asks")]
fn every_method_fails_in_turn_in_random_fills_and_the_laws_hold() {
    let campaign = Campaign::run(&KINDS, &random_fills::SCENARIOS);
    println!("{}", campaign.table);
    campaign.assert_lawful();
    for method in [Method::KernelsCompile, Method::KernelsKernel, Method::KernelsLaunch] {
        assert!(campaign.table.failures_of(method) > 0, "{method} was never failed");
    }
}
