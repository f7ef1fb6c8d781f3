//! L3, for tests of programs: schedules that repeat, and faults at calls that are planned.
//!
//! A [`Schedule`] says in which order the streams of cpu devices go, and is [`Scheduled`] until a
//! drop; a [`FaultPlan`] says which calls of devices fail.
//!
//! [`crate::profiler::watch_environment`] makes a program heed the variables.

mod fault_plan;
#[doc(hidden)]
pub mod process;
mod random;
mod schedule;
mod scheduler;
mod strategy;

pub use fault_plan::{FaultPlan, Faults, heed_faults};
pub use schedule::{Schedule, Strategy};
pub use scheduler::Scheduled;
