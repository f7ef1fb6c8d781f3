//! Behaviour of the engine, through the public API: one file a noun, one test a sentence.
//!
//! No test is decided by a clock. Tasks are held by gates and watched by channels and events; a
//! test that could hang runs inside [`support::finishes`], which gives up loudly. What needs a
//! process of its own (an exit, a fork, the environment) runs this binary again, see
//! [`support::process`].

#[path = "../common/asked.rs"]
mod asked;
#[path = "../common/child.rs"]
mod child;
#[path = "../common/gate.rs"]
mod gate;
#[macro_use]
#[path = "../common/hand_on.rs"]
mod hand_on;
#[path = "../common/late.rs"]
mod late;
#[path = "../common/numbers.rs"]
mod numbers;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/process.rs"]
mod process;
#[path = "../common/processors.rs"]
mod processors;
#[path = "../common/scheduled.rs"]
mod scheduled;
#[path = "../common/seed.rs"]
mod seed;
#[path = "../common/steps.rs"]
mod steps;
#[path = "../common/thread_id.rs"]
mod thread_id;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod devices;
mod driver_errors;
mod driver_kind;
mod endings;
mod errors;
mod events;
mod exit;
mod fork;
mod frontiers;
#[cfg(feature = "async")]
mod futures;
mod guards;
mod handing_over;
mod helping;
mod limits;
mod lingering;
mod order;
mod outside_kinds;
mod panics;
mod places;
mod priorities;
mod receipts;
mod scopes;
mod shutdown;
mod streams;
mod support;
mod synchronize;
mod timeouts;
mod wakes;
mod workers;
