//! Tests of programs and of backends that use accelrt.
//!
//! For programs:
//!
//! * [`Schedule`]: chooses the order in which the streams of cpu devices run their tasks. The same
//!   seed repeats the same order.
//! * [`FaultPlan`]: lets chosen calls of devices fail
//!
//! For backends:
//!
//! * [`conformance`](mod@conformance): a test for each promise of the contract of backends
//! * [`null`]: a backend of addresses without memory, which checks how it is called
//! * [`fault`]: a backend that lets calls of another backend fail
//!
//! ```
//! use accelrt::{Config, Device, Runtime};
//! use accelrt_testing::Schedule;
//!
//! let runtime = Runtime::new(Config::default())?;
//! let scheduled = "seed:7".parse::<Schedule>()?.start(&runtime)?;
//! let stream = runtime.stream(Device::cpu(0))?;
//! stream.enqueue(|| { /* runs when a thread waits */ })?;
//! stream.synchronize()?;
//! assert!(scheduled.num_steps() > 0);
//! # Ok::<(), accelrt::Error>(())
//! ```

pub mod conformance;
pub mod fault;
mod fault_plan;
pub mod null;
mod process;
mod schedule;
mod scheduler;
mod strategy;
#[doc(hidden)]
pub mod trusted;

pub use fault_plan::{FaultPlan, Faults, heed_faults};
pub use process::{end_faults, end_schedule, start_faults, start_schedule, watch_environment};
pub use schedule::{Schedule, Strategy};
pub use scheduler::Scheduled;
