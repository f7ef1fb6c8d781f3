//! Replaying recorded requests: what an allocator would have needed for them.
//!
//! * `operation`: what is replayed, and the figures that come out of it
//! * `engine`: the replay itself, on any allocator; [`Accounting`] makes one without memory
//! * `recorded`: the requests that a snapshot records, as events
//! * `rewind`: the layout in which a recording began
//! * `check`: whether an allocator takes the recorded decisions

mod check;
mod engine;
mod operation;
mod recorded;
mod rewind;

pub use check::{Agreement, check};
pub use engine::{Accounting, replay};
pub use operation::{Operation, ReplayFigures};
pub use recorded::operations;
pub use rewind::rewind;
