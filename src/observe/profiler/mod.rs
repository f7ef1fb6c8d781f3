//! The profiler: what ran where and when, with tables and a trace for Perfetto.
//!
//! The public module `accelrt::profiler` is these items and `watch_environment`.

mod averages;
mod chrome_trace;
mod json;
pub(crate) mod library_calls;
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
pub use occupancy::{DeviceUse, StreamUse};
pub use profile::{Profile, ProfileOptions, RecordedRange, Trace, record_function};
pub use waits::{LongWait, WaitedBy};
