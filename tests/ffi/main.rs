//! Native calls and deferred tasks: placed, ordered, failed, skipped and cancelled as promised.
//!
//! Native functions are written in Rust as `extern "C"`, so the compiler places what they expect
//! and the library what they get. Nothing here is decided by a clock: threads meet in channels.

#[path = "../common/gate.rs"]
mod gate;
#[macro_use]
#[path = "../common/hand_on.rs"]
mod hand_on;

mod arguments;
mod blocking;
mod deferred;
mod deferred_ends;
#[path = "../common/late.rs"]
mod late;
mod launch;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/steps.rs"]
mod steps;
mod support;
#[path = "../common/thread_id.rs"]
mod thread_id;
