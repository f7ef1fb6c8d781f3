//! Deterministic schedules: the seed says what runs when, and what waits still waits.
//!
//! A process follows one schedule at a time, so tests take turns, each with its own runtime. What
//! one seed does is compared with what it does again, in this process and in another one.
#![cfg(not(loom))] // models have no schedules

#[path = "../common/asked.rs"]
mod asked;
#[path = "../common/hang.rs"]
mod hang;
#[path = "../common/numbers.rs"]
mod numbers;
#[path = "../common/process.rs"]
mod process;
#[path = "../semantics/mod.rs"]
mod semantics;
#[path = "../common/semantics_contents.rs"]
mod semantics_contents;
#[path = "../common/semantics_run.rs"]
mod semantics_run;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod bugs;
mod ends;
mod faults;
mod programs;
mod repeats;
mod support;
mod waits;
