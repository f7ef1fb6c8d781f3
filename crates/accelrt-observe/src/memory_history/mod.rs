//! Memory histories: what the allocators of a runtime's devices did, the newest events, in order.
//!
//! The events come from the log, as a profile's records do, so that both may be there at once.
//!
//! ```
//! use accelrt::allocator::snapshot::TraceAction;
//! use accelrt_observe::memory_history::{MemoryHistory, memory_tag};
//!
//! let runtime = accelrt::Runtime::new(accelrt::Config::default())?;
//! let device = accelrt::Device::cpu(0);
//! let history = MemoryHistory::start(&runtime, 1000);
//! let tag = memory_tag("weights");
//! let buffer = runtime.empty(1000, device)?;
//! drop(tag);
//! let events = history.events(device);
//! let served = events.iter().find(|it| it.event.action == TraceAction::Alloc).unwrap();
//! assert_eq!((served.event.bytes, &*served.tag), (1000, "weights"));
//! drop(buffer);
//! let (tag, bytes) = &runtime.allocator(device)?.tag_statistics()[0];
//! assert_eq!((&**tag, bytes.current, bytes.peak), ("weights", 0, 1024));
//! # Ok::<(), accelrt::Error>(())
//! ```

mod events;
mod ranges;
mod tag;

pub use events::{MemoryEvent, MemoryHistory};
pub use ranges::{PassedRange, RangeHistory};
pub use tag::{MemoryTag, memory_tag};
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod played_events;
#[cfg(test)]
mod tests;
