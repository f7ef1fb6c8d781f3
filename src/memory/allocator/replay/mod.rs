//! Replays of recorded requests: the memory that an allocator needs for them.
//!
//! * `operation`: the events of a replay, and its figures
//! * `engine`: the replay itself, on any allocator; [`Accounting`] makes one without memory
//! * `recorded`: the requests of a snapshot's trace, as events
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
