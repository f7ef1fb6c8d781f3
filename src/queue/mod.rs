//! The command queue: a list of segments, whose slots producers claim by one counter.
//!
//! Source: crossbeam's segmented queue, with helping (Kogan and Petrank) at segment boundaries.
//!
//! Many producers, one consumer at a time, unbounded, first in first out over all producers. A
//! producer claims a slot by advancing one 64-bit counter, whose new value is the task's *ticket*.
//! No thread waits for a producer that stopped at a segment boundary: each thread that needs the
//! next segment links that segment.
//!
//! * [`command`]: the content of a slot: a command, inline up to 40 bytes, boxed if larger
//! * [`segment`]: 64 slots on a cache line each, and the pool of unused segments
//! * [`mod@channel`]: the protocol between [`Sender`] and [`Receiver`]

mod channel;
mod command;
#[cfg(all(test, loom))]
mod loom_tests;
mod segment;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use channel::{Entry, Head, Pushed, Receiver, Sender, channel};
pub(crate) use command::CommandContext;
pub(crate) use command::INLINE_BYTES;
pub use command::{Class, Command};
#[cfg(all(test, not(loom)))]
pub(crate) use segment::SLOTS;
