//! oneMKL and oneDNN beside accelrt: their verbose lines, and pinned memory for them.
//!
//! * [`VerboseScope`]: makes oneMKL, oneDNN or accelrt print a line for each call
//! * [`VerboseCapture`]: returns these lines instead of printing them
//! * `host_heap`: `malloc` and related functions over a cache of pinned memory, for allocators of
//!   other libraries
//! * `MklAllocator`: the functions with which oneMKL allocates
//!
//! ```
//! use accelrt::{Config, Device, Runtime};
//! use accelrt_mkl::{VerboseLibrary, VerboseScope};
//!
//! let runtime = Runtime::new(Config::default())?;
//! let stream = runtime.stream(Device::cpu(0))?;
//! let scope = VerboseScope::enter(VerboseLibrary::Accelrt, 1, &[])?;
//! stream.enqueue(|| { /* one line tells of this task */ })?;
//! stream.synchronize()?;
//! drop(scope);
//! # Ok::<(), accelrt::Error>(())
//! ```

#[doc(hidden)]
pub mod host_heap;
#[doc(hidden)]
pub mod internal;
mod mkl_allocator;
mod verbose;

#[cfg(test)]
#[path = "../../../tests/common/numbers.rs"]
mod numbers;
#[cfg(test)]
#[path = "../../../tests/common/seed.rs"]
mod seed;

pub use verbose::{VerboseCapture, VerboseLibrary, VerboseScope, watch_environment};
