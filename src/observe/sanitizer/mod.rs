//! The sanitizer: finds uses of the same bytes that nothing orders, although nothing went wrong.
//!
//! It is told of each task as it is enqueued, of waits, allocations and frees
//! (`engine/stream/order_watch`), and keeps vector clocks of its own, as `FastTrack` does
//! (Flanagan and Freund, PLDI 2009): the engine's frontiers may lag behind and are capped. So it
//! needs no device, and finds a race that did not happen this time. docs/sanitizer.md.
//!
//! * [`clock`]: vector clocks
//! * [`streams`]: what is before the next task of each stream, and what the host knows to be over
//! * [`timeline`]: one stream of them
//! * [`shadow`]: the uses of each allocation's bytes
//! * [`written`]: the bytes of each allocation that were written
//! * [`detector`]: applies the reported events to all of these
//! * [`finding`]: what is found, and what would order it
//! * [`watch`]: watches of a runtime
//! * [`report`]: the same for programs in Rust

#[cfg(test)]
mod argument_tests;
#[cfg(test)]
mod case_tests;
mod clock;
mod detector;
pub(crate) mod finding;
pub(crate) mod report;
mod shadow;
mod streams;
#[cfg(test)]
mod tests;
mod timeline;
pub mod watch;
mod written;
