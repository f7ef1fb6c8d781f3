//! L3, for tests of programs: schedules that repeat, and faults at calls that are planned.
//!
//! * [`schedule`]: what a schedule is like, from a text too; [`scheduler`] follows one
//! * [`strategy`]: which runnable stream goes next, drawn from [`random`] numbers
//! * [`fault_plan`]: which calls of devices fail, from a text
//! * [`process`]: what the process's runtime follows, by its variable too
//!
//! [`crate::profiler::watch_environment`] makes a program heed the variables.

mod fault_plan;
pub(crate) mod process;
mod random;
mod schedule;
mod scheduler;
mod strategy;

pub use fault_plan::{FaultPlan, Faults, heed_faults};
pub use schedule::{Schedule, Strategy};
pub use scheduler::Scheduled;
