//! The runtime under load: many threads, many streams, many tasks; order is checked inside.
//!
//! Goal: what holds for ten tasks holds for a hundred million. Method: every stream counts its own
//! tasks, so a task that runs twice, never or early is seen where it happens; waits are checked by
//! what the awaited stream has published. Nothing waits on a clock; only the test that is *about*
//! a minute lasts one. `make test` runs this with a million tasks, once more under the address
//! sanitizer; `make stress` runs the big ones, which are ignored by themselves.

#[path = "../common/numbers.rs"]
mod numbers;
#[path = "../common/seed.rs"]
mod seed;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod first_use;
mod lanes;
mod limit;
mod memory;
mod order;
mod parked;
mod turnover;

use std::time::Duration;

use accelrt::{Config, Device, Runtime};

use crate::watchdog::finishes_within;

const CPU: Device = Device::cpu(0);

/// Far beyond what the small tests take on a busy machine: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(300);

/// Runs a test that would hang if it failed; a hang is a failure then.
fn finishes(test: impl FnOnce() + Send + 'static) {
    finishes_within(HANG, test);
}

/// A runtime with so many workers.
fn workers(count: usize) -> Runtime {
    let config = Config::builder().cpu_threads(count).build().unwrap();
    Runtime::new(config).expect("the settings are right")
}

/// A number that the environment may set, to make a test larger or smaller.
fn setting(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name}={given}")))
}
