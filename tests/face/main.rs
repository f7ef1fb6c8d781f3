//! The Rust face beside the core: tasks over typed views, homes that are named, cancelled streams.
//!
//! No test is decided by a clock: tasks are held by gates and watched by channels.

#[path = "../common/gate.rs"]
mod gate;
#[path = "../common/steps.rs"]
mod steps;
#[path = "../common/thread_id.rs"]
mod thread_id;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod cancel;
mod error_kinds;
mod guards;
mod homes;
mod outcomes;
mod refusals;
mod support;
mod views;
