//! The scenarios: one a noun of the conformance suite.
//!
//! Each is a small program that goes on whatever becomes of its calls.

mod copies;
mod kernels;
mod marks;
mod memory;
mod pages;
mod probing;
mod shutdown;
mod streams;
mod threads;

use std::time::Duration;

use accelrt_testing::fault::Method;

use crate::world::World;

/// How a scenario ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a synchronise; it can be run again.
    Synchronise,
    /// With a shutdown, while things are queued.
    Shutdown,
}

/// A program over a world.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&World),
    pub(crate) end: End,
    pub(crate) exit_timeout: Duration,
    /// Settings of the allocators.
    pub(crate) settings: &'static str,
    /// What gives back what the runtime keeps for its life, beside streams.
    pub(crate) kept_until: &'static [Method],
}

impl Scenario {
    pub(crate) const fn new(name: &'static str, run: fn(&World)) -> Self {
        Self {
            name,
            run,
            end: End::Synchronise,
            exit_timeout: FINISHES,
            settings: "",
            kept_until: &[],
        }
    }
}

/// Enough for everything that is queued.
const FINISHES: Duration = Duration::from_secs(20);

pub(crate) const ALL: &[Scenario] = &[
    Scenario::new("probing", probing::run),
    Scenario::new("streams", streams::run),
    Scenario::new("marks", marks::run),
    Scenario::new("memory", memory::run),
    // By default a kind with virtual memory is asked for pages alone.
    Scenario { settings: "policy:torch", ..Scenario::new("segments", memory::run) },
    Scenario::new("copies", copies::run),
    Scenario::new("virtual memory", pages::run),
    Scenario::new("kernels", kernels::run),
    Scenario::new("threads", threads::run),
    Scenario { end: End::Shutdown, ..Scenario::new("shutdown", shutdown::run) },
    Scenario {
        end: End::Shutdown,
        exit_timeout: Duration::ZERO,
        ..Scenario::new("cancellation", shutdown::run_held)
    },
];
