//! Replays of recorded allocations, on the allocators of accelrt and without a device.
//!
//! * [`Events`]: recorded requests and frees: a slice of [`Operation`]s, an [`EventTable`] in a
//!   file, or the trace of a snapshot ([`operations`])
//! * [`Accounting`]: makes an allocator whose addresses are only numbers
//! * [`Replay`], [`replay()`], [`replay_all`]: run events on an allocator and return
//!   [`ReplayFigures`]
//! * [`survey()`], [`timeline`]: sizes and peaks, and the memory in use over time
//! * [`minimum()`]: the smallest capacity on which a recording completes
//! * [`check()`], [`rewind()`]: whether an allocator takes the decisions that were recorded
//! * [`failed_request`]: the request that ran out of memory
//!
//! A pass over a recording hands its events on in batches and keeps none, so its memory grows with
//! the number of blocks in use at once, not with the number of events.
//!
//! ```
//! use accelrt::AllocatorConfig;
//! use accelrt_replay::{Accounting, Operation, minimum};
//!
//! let (config, capacity_bytes) = (AllocatorConfig::default(), 1 << 30);
//! let most = Accounting { config, capacity_bytes, granularity_bytes: 2 << 20 };
//! let events = [Operation::Allocate { id: 7, bytes: 3 << 20, stream: 0 }];
//! assert_eq!(minimum(&events[..], &most)?.bytes, Some(4 << 20));
//! # Ok::<(), accelrt_replay::TraceError>(())
//! ```

mod check;
mod events;
mod minimum;
mod recorded;
mod replay;
mod rewind;
mod survey;
mod table;
#[cfg(test)]
mod tests;

#[cfg(test)]
#[path = "../../../tests/common/numbers.rs"]
mod numbers;
#[cfg(test)]
#[path = "../../../tests/common/seed.rs"]
mod seed;

pub use check::{Agreement, check};
pub use events::{Events, Operation, TraceError, Visitor};
pub use minimum::{Minimum, minimum};
pub use recorded::{FailedRequest, failed_request, operations};
pub use replay::{Accounting, Places, Replay, ReplayFigures, Step, replay, replay_all};
pub use rewind::rewind;
pub use survey::{Survey, Timeline, TimelinePoint, survey, timeline};
pub use table::EventTable;
