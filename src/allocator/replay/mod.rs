//! Replaying recorded requests against an allocator.

mod operation;

pub use operation::{Figures, Operation};
