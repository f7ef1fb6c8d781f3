//! Law 6: a failure at any single backend call leaves the laws true and leaks nothing.
//!
//! Goal: every method of the contract is failed in turn, at every call of it that a scenario makes,
//! once and from then on, on every kind of machine. Method: scenarios ([`scenarios`], one a noun of
//! the conformance suite) drive the engine and its buffers over a backend that fails as planned;
//! after each run [`laws`] looks at the ledger of tasks, at what was said about the failure, at
//! what the backend still has out, and runs the scenario once more, which must succeed then.
//!
//! `make faults` prints methods × scenarios with the number of failures. A method that was never
//! failed fails the test. What cannot fail is listed from the contract itself ([`contract`]).

#[path = "../common/asked.rs"]
mod asked;
mod campaign;
mod contract;
mod laws;
mod ledger;
mod planted;
mod scenarios;
mod table;
#[path = "../common/watchdog.rs"]
#[expect(dead_code, reason = "the campaign says itself which run hangs")]
mod watchdog;
mod world;

use accelrt_testing::fault::Method;

use crate::campaign::Campaign;
use crate::world::Kind;

/// cpu with several devices, and a driver with both ways to complete.
const KINDS: [Kind; 3] = [Kind::CPU, Kind::NULL_AT_ONCE, Kind::NULL_WHEN_ASKED];

#[test]
#[expect(clippy::print_stdout, reason = "the table, for who asks")]
fn every_method_fails_in_turn_in_every_scenario_and_the_laws_hold() {
    let campaign = Campaign::run(&KINDS, scenarios::ALL);
    println!("{}", campaign.table);
    println!("{}", contract::infallible_report());
    campaign.assert_lawful();
    for method in Method::ALL {
        assert!(campaign.table.failures_of(method) > 0, "{method} was never failed");
    }
}
