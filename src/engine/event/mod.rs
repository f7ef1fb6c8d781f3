//! Events: lazy, versioned marks in streams, with time stamps on request.
//!
//! Source of the behaviour: torch 2.13's `Event`, with its argument checks made complete.
//!
//! * [`core`]: what the handles and the queued records of one event share
//! * [`shared`]: how long that lives, counted without a cache line that both sides write
//! * [`command`]: the record as a task
//! * [`handle`]: the public face
//!
//! Each record makes a new *version*. The event is done when its highest version known to be done
//! is the latest one. Recording is: under the lock, push a command that names the event and its
//! version, note stream and ticket; then schedule the stream. It is O(1) and clones no frontier:
//! the ticket is looked up in the stream's history by who waits.

mod command;
mod core;
mod handle;
#[cfg(all(test, loom))]
mod loom_tests;
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;

pub use handle::Event;
