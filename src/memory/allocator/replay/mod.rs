//! Replays of recorded requests: the memory that an allocator needs for them.
//!
//! * `operation`: the events of a replay, and its figures
//! * `engine`: the replay itself, on any allocator; [`Accounting`] makes one without memory
//! * `places`: small numbers in place of the ids of blocks in use
//! * `rewind`: the layout in which a recording began
//! * `check`: whether an allocator takes the recorded decisions

mod check;
mod engine;
mod operation;
mod places;
mod rewind;

pub use check::{Agreement, check};
pub use engine::{Accounting, Replay, replay};
pub use operation::{Operation, ReplayFigures};
pub use places::{Places, Step};
pub use rewind::rewind;
