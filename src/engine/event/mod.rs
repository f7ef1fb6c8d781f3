//! Events: positions in streams, with a version for each record and time stamps on request.
//!
//! Events behave as torch 2.13's `Event`, with more checks of the arguments.
//!
//! * [`core`]: the state that the handles and the queued records of one event share, and its
//!   lifetime: handles and queued records are counted separately
//! * [`handle`]: the public type, [`Event`], and the record as a task
//! * [`future`]: the end of a record as a future, [`EventFuture`](future::EventFuture), and a value
//!   that waits for a record without a thread
//!
//! Each record creates a new *version*. The event is done when its latest version is known to be
//! done. To record an event, a thread takes the event's lock, pushes a command with the event and
//! the version, stores stream and ticket, releases the lock and schedules the stream. This is O(1)
//! and clones no frontier: a waiting stream looks up the ticket in the source stream's history.

mod core;
pub(crate) mod future;
mod handle;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use handle::Event;
