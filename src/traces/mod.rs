//! L3, traces: recorded events of any number, and what replays of them tell.
//!
//! Every pass over a trace hands its events on in batches and keeps none, so that memory grows with
//! the blocks in use at once, not with the events.
//!
//! * `events`: a trace, in memory or elsewhere; `error`: why a pass over one ended early
//! * `table`: tables of events in files; `line`: the parser of their lines
//! * `recorded`: the requests of a snapshot's trace, as events
//! * `survey`: the sizes and the peak of a trace, without an allocator
//! * `minimum`: the smallest capacity that completes a trace
//! * `timeline`: live and reserved bytes over a trace, for plots
//! * `shortage`: the request that a recording ended with when memory ran out

mod error;
mod events;
mod line;
mod minimum;
mod recorded;
mod shortage;
mod survey;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod timeline;

pub use error::TraceError;
pub use events::{Events, Visitor, replay_all};
pub use minimum::{Minimum, minimum};
pub use recorded::operations;
pub use shortage::{FailedRequest, failed_request};
pub use survey::{Survey, survey};
pub use table::EventTable;
pub use timeline::{Timeline, TimelinePoint, timeline};
