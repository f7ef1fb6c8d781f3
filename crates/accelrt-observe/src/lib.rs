//! Observers of accelrt: what ran where and when, what allocators did, and what is not ordered.
//!
//! * [`profiler`]: times of tasks, waits and ranges, as tables and as a trace for Perfetto
//! * [`memory_history`]: requests, frees and segments of the allocators, and memory by tag
//! * [`sanitizer`]: uses of the same bytes that nothing orders
//!
//! Each observer subscribes to the log of a runtime. Without a subscription the log costs nothing
//! measurable.
//!
//! ```
//! use accelrt::{Config, Device, Runtime};
//! use accelrt_observe::profiler::Profile;
//!
//! let runtime = Runtime::new(Config::default())?;
//! let profile = Profile::start(&runtime);
//! let stream = runtime.stream(Device::cpu(0))?;
//! stream.enqueue(|| { /* what takes its time */ })?;
//! stream.synchronize()?;
//! assert_eq!(profile.stop().streams()[0].num_tasks, 1);
//! # Ok::<(), accelrt::Error>(())
//! ```

#[doc(hidden)]
pub mod callers;
#[doc(hidden)]
pub mod internal;
pub mod memory_history;
#[doc(hidden)]
pub mod output_file;
pub mod profiler;
pub mod sanitizer;
#[doc(hidden)]
pub mod task_lines;

#[cfg(test)]
#[path = "../../../tests/common/numbers.rs"]
mod numbers;
#[cfg(test)]
#[path = "../../../tests/common/seed.rs"]
mod seed;
#[cfg(test)]
#[path = "../../../tests/semantics/mod.rs"]
mod semantics;
#[cfg(test)]
#[path = "../../../tests/common/semantics_run.rs"]
mod semantics_run;
