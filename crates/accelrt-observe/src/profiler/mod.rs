//! The profiler: what ran where and when, with tables and a trace for Perfetto.
//!
//! A [`Profile`] subscribes to the log of the tasks of one runtime. Its end makes a [`Trace`],
//! with the time of each function, kernel and range ([`Trace::key_averages`]), how busy streams
//! and devices were and how much they overlapped ([`Trace::streams`], [`Trace::devices`]), and
//! the longest waits with what they waited for ([`Trace::longest_waits`]). Several profiles may
//! be on at once. While none is, tasks cost what they cost without a profiler. While a
//! capture of verbose lines of `accelrt-mkl` is open, the calls of its library are rows as well.
//!
//! ```
//! use accelrt_observe::profiler::{Profile, record_function};
//! use accelrt::{Config, Device, Runtime};
//!
//! let runtime = Runtime::new(Config::default())?;
//! let stream = runtime.stream(Device::cpu(0))?;
//! let profile = Profile::start(&runtime);
//! {
//!     let _range = record_function("load");
//!     stream.enqueue(|| { /* what takes its time */ })?;
//!     stream.synchronize()?;
//! }
//! let trace = profile.stop();
//! println!("{}", trace.key_averages().table(None, 10));
//! assert_eq!(trace.streams()[0].num_tasks, 1);
//! # Ok::<(), accelrt::Error>(())
//! ```

mod averages;
mod chrome_trace;
pub(crate) mod environment;
mod json;
#[doc(hidden)]
pub mod library_calls;
mod memory;
#[cfg(test)]
mod model_tests;
mod occupancy;
pub(crate) mod profile;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;
mod waits;

pub use averages::{KeyAverage, KeyAverages, SortKey};
pub use environment::watch_environment;
pub use occupancy::{DeviceUse, StreamUse};
pub use profile::{Profile, ProfileOptions, RecordedRange, Trace, record_function};
pub use waits::{LongWait, WaitedBy};
