//! Behaviour of buffers, through the public API: views, stream-ordered frees, copies, host access.
//!
//! No test is decided by a clock. Tasks are held by gates and watched by channels; what every kind
//! has to do runs on cpu with one and three devices and on null with both completions. Leaks are
//! looked for by [`support::Machine::assert_nothing_taken`], which compares the free memory of
//! every device with that at the start.

#[path = "../common/child.rs"]
mod child;
#[path = "../common/edges.rs"]
mod edges;
#[path = "../common/gate.rs"]
mod gate;
#[path = "../common/numbers.rs"]
mod numbers;
#[path = "../common/pattern.rs"]
mod pattern;
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

mod copies;
mod crowded;
mod driver;
mod faults;
mod fork;
mod frees;
mod host;
mod kernels;
mod launches;
mod model;
mod native;
mod order;
mod reclaimers;
mod release;
mod runtimes;
mod shortage;
mod shutdown;
mod support;
mod turns;
mod views;
